"""Checks that everything can be imported, and describes the device and the versions of libraries."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import torch

from bench.gpu.harness import guarded
from bench.gpu.sizes import Size
from bench.harness.environment import describe_environment
from bench.harness.records import Record

__all__ = ["check_imports", "describe"]

_NEEDED = (
    *("faiss", "msgpack", "numpy", "onnx", "onnxruntime", "safetensors", "simsimd", "Stemmer", "tokenizers"),
    *("transformers", "triton", "webencodings", "xxhash", "zstandard", "hypothesis", "pytest", "xdist"),
    *("quarry.engine.engine", "quarry.exporters.export", "quarry.engine.gpu.kernels"),
)


def describe(place: torch.device) -> Record:
    """Return the machine, the versions of libraries and the device, which are part of every record."""
    device = str(place)
    if place.type == "cuda":
        about = torch.cuda.get_device_properties(place)
        device = (
            f"{about.name}, {about.total_memory / (1 << 30):.0f} GiB, {about.multi_processor_count} "
            f"multiprocessors, compute capability {about.major}.{about.minor}, CUDA {torch.version.cuda}"
        )
    return {**describe_environment(), "device": device, "torch": torch.__version__}


def check_imports(place: torch.device, size: Size, work: Path) -> Iterator[Record]:
    """Yield for each module its version, or that it cannot be imported; and whether the device computes."""
    del size, work
    for name in _NEEDED:
        yield from guarded({"what": "check import", "name": name}, partial(_import, name))
    product = torch.ones((16, 16), device=place) @ torch.ones((16, 16), device=place)
    yield {"what": "check import", "name": str(place), "sound": bool((product == 16).all())}


def _import(name: str) -> Iterator[Record]:
    yield {"version": str(getattr(import_module(name), "__version__", "")), "sound": True}
