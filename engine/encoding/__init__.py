"""Encoders: texts to token vectors.

Start with `encoder`: the `Encoder` protocol and `open_encoder`. `batch_encoder` is the protocol of encoders that
take many texts in one call; `functions` makes one of an embedding function. `runtimes` chooses what runs a bundle:
`onnx_encoder` (ONNX Runtime on the CPU, one text at a time) or `batched_encoder` (batches on an accelerator, by
`onnx_runner` or `tensorrt_runner`); both extend `bundle_encoder`. `tokenizer` makes tokens, `windows` cuts long
texts, `token_vectors` is what an encoder returns, `queries` validates and encodes the texts of queries, and
`shared_models` opens each model once.

May import: `quarry.engine.arguments`, `quarry.engine.documents`, `quarry.engine.gpu`, `quarry.engine.process`,
`quarry.formats`.
"""
