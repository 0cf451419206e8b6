"""Checks and timings on a GPU, each part in a process of its own.

Start with `command`; `checks` compares kernels and search with oracles, `ceilings` measures the limits of the
device,
`sizes`, `shapes`, `encoders`, `end_to_end` and `peers` measure, and `targets` sets the results
against targets.
"""
