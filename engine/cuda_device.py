"""Which CUDA device this machine has."""

from __future__ import annotations

__all__ = ["cuda_target"]


def cuda_target() -> str | None:
    """The first CUDA device's compute capability, such as "sm90"; None without one, or without torch to ask."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return f"sm{major}{minor}"
