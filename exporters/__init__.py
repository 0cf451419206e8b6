"""Trained checkpoints to bundles that the engine runs.

Start with `export`: it reads a checkpoint (`checkpoint`), makes a graph (`graph`), converts it to the requested
precision (`precision`), compares it with fp32 (`parity`) and writes a bundle. `to_tensorrt` builds TensorRT
engines of a
bundle.
`command` and `plan_command` are ``quarry export`` and ``quarry plan``; `bundled` makes the bundle that ships
with Quarry.

May import: `quarry.engine`, `quarry.formats`; onnx and safetensors; torch and transformers when needed.
"""
