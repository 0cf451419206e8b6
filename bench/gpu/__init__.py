"""Checks and timings on a GPU, each part in a separate process.

Start with `command`, which runs the parts and compares the results with targets. `device` checks imports and
measures the limits of the device, `checks` kernels and search, `engine` whole indexes, and `memory` what is used
of the device; `sizes`, `encoders`, `end_to_end` and `papers` everything else. `shapes` and `synthetic`
create models and segments, and `harness` has shared helpers.
"""
