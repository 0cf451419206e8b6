"""ONNX graphs of a network and its head.

Start with `sources`, the three ways to a network's graph: built from the weights without torch (`bert`), traced by
torch and compared with it (`torch_trace`), or read from the checkpoint.
`head` adds pooling and linear layers; `builder` assembles graphs node by node.
"""
