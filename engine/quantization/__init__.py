"""Quantizers: trained coarse centroids, product quantization codebooks, calibrated search settings.

Start with `training`, which trains a quantizer on a sample; `coder` encodes vectors with it, many at a time.
`codebook` and `rotation` train its parts. `calibration` measures how many lists a query reads and how many rows it
rescores for a target recall, with the query-like texts of `query_sample`; without an encoder, `nprobe` and
`candidates` estimate both with rows of the training sample, the self-queries of `held_out`.
"""
