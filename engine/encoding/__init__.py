"""Encoders: texts to token vectors.

Start with `encoder`, the `Encoder` protocol and the `TokenVectors` that it returns, and `opening`, which opens
one. `batch_encoder` has the protocols of encoders that take many texts in one call, on a device or not, and
encodes queries; `no_encoder` is the encoder of an index whose documents all come with vectors. `runtimes` runs
exported bundles, `functions` calls embedding functions. `tokenizer` makes tokens, `windows` cuts long texts.
"""
