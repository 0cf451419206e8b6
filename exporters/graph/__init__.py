"""ONNX graphs of a network and its head.

Start with `sources`, the three ways to a network's graph: built from the weights without torch (`bert`), traced by
torch (`torch_trace`, verified by `torch_check`), or read from the checkpoint (`onnx_folder`).
`head` adds pooling and linear layers; `builder` assembles graphs node by node.
"""
