"""Checks and timings on a GPU, each part in a separate process.

Start with `command`; `checks` compares kernels and search with oracles, `ceilings` measures the limits of the
device, `sizes`, `encoders`, `end_to_end` and `peers` measure, `shapes` and `synthetic` create models and segments,
and `targets` compares the results with targets. `harness` has shared helpers.

May import: `bench.harness`, `quarry`, torch.
"""
