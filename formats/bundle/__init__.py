"""Exported models: a folder with an ONNX graph, a tokenizer and a manifest.

Start with `folder`, which reads and writes the folder and checks its files. A bundle holds an encoder
(`encoder`) or a reranker (`reranker`), and may hold TensorRT engines (`plan`). `onnx_check` refuses graphs that
name other files or
foreign operators before a runtime loads them; `onnx_outline` rewrites a graph so that its weights are mapped;
`protobuf` reads the fields of both.

May import: `quarry.formats.container`.
"""
