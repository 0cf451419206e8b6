"""Torch on a device: memory, transfers and kernels; no search.

Start with `device`: a device with its memory budget. `transfer` moves arrays to the device and back, `stream` runs
work on a side stream, and `kernels` are Triton kernels, which `kernel_check` compares with torch before their
first use.
"""
