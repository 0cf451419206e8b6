"""Quantizers: trained coarse centroids, product quantization codebooks, calibrated search settings.

Start with `training`, which trains a quantizer on a sample; `coder` encodes vectors with it. `codebook` and
`rotation` train its parts; `nprobe` and `candidates` calibrate how many lists a query reads and how many documents
it rescores, on queries from `held_out`; `drift` says when a quantizer should be trained again.

May import: `quarry.engine.scoring`, `quarry.formats`.
"""
