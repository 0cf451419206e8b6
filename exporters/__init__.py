"""Export of trained checkpoints as bundles that the engine runs.

Start with `export`: it reads a checkpoint (`checkpoint`), builds its graph (`graph`), converts the graph to the
requested precision (`precision`), compares it with fp32 (`parity`) and writes a bundle. `to_tensorrt` builds
TensorRT engines from a bundle. `command` and `plan_command` implement ``quarry export`` and ``quarry plan``;
`bundled` creates the bundle that is distributed with Quarry.
"""
