"""Torch on a device: memory, transfers and kernels; no search.

Start with `device`: the device and the account of its memory. `upload` and `download` move arrays, `stream` runs
work on a side stream, `kernels` and `scan_kernel` are Triton kernels which `kernel_check` compares with torch
before their
first use, `cuda` asks the driver for devices without importing torch.

May import: `quarry.formats`, and torch.
"""
