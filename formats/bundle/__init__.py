"""Exported models: a folder with an ONNX graph, a tokenizer and a manifest.

Start with `folder`, which reads and writes the folder and checks its files. A bundle contains an encoder
(`encoder`) or a reranker (`reranker`), and optionally TensorRT engines (`plan`). `onnx_check` refuses graphs with
references to other files or with unknown operators before a runtime loads them; `onnx_outline` rewrites a graph
so that a runtime maps its weights; `protobuf` parses graphs for both.
"""
