"""ONNX graphs of a network and its head.

Start with `sources`, the ways from a network to a graph: built from its weights without torch (`bert`, `head`,
put together with `builder`), traced by torch (`torch_trace`, checked by `torch_check`), or taken from a folder
that holds one
(`onnx_folder`).
"""
