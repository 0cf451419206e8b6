"""Encoders that run an exported bundle.

Start with `selection`, which chooses what runs a bundle. `onnx_encoder` runs one text at a time with ONNX Runtime
on the CPU, `batched_encoder` batches on an accelerator, by `onnx_runner`, `tensorrt_runner` or `torch_runner`,
which runs a `torch_graph`; both extend `bundle_encoder`. `onnx_session` loads and runs graphs, `device_batches`
restores the order of texts on a device.
"""
