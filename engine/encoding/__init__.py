"""Encoders: texts to token vectors.

Start with `encoder`, the `Encoder` protocol, and `opening`, which opens one. `batch_encoder` has the protocols of
encoders that take many texts in one call, on a device or not; `no_encoder` takes the place of one if documents
come with vectors. `runtimes` runs exported bundles, `functions` calls embedding functions. `tokenizer` makes
tokens, `windows` cuts long texts, `token_vectors` is what an encoder returns, and `queries` validates and encodes
the texts of queries.

May import: `quarry.engine.arguments`, `quarry.engine.bundled`, `quarry.engine.documents`, `quarry.engine.gpu`,
`quarry.engine.process`, `quarry.formats`.
"""
