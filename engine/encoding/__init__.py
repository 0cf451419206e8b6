"""Encoders: texts to token vectors.

Start with `encoder`, the `Encoder` protocol, and `opening`, which opens one. `batch_encoder` is the protocol of
encoders that take many texts in one call, `device_encoder` of those that leave vectors on a device, `trained` of
those that state what they were trained with; `no_encoder` takes the place of one if documents come with vectors.
`runtimes` runs exported bundles, `functions` calls embedding functions. `tokenizer` makes tokens, `windows` cuts
long texts, `text_checks` refuses texts that are not Unicode, `token_vectors` is what an encoder returns, and
`queries` validates and encodes the texts of queries.

May import: `quarry.engine.arguments`, `quarry.engine.bundled`, `quarry.engine.documents`, `quarry.engine.gpu`,
`quarry.engine.process`, `quarry.formats`.
"""
