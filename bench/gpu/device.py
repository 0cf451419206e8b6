"""The device: what it is, whether everything can be imported, and how fast it copies, uploads and multiplies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import torch

from bench.gpu.harness import guarded, median_ms
from bench.gpu.sizes import Size
from bench.harness.environment import describe_environment
from bench.harness.records import Record
from quarry.engine.gpu.transfer import upload

__all__ = ["check_imports", "describe", "measure_ceilings", "time_matrix_product"]

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


_COPY_BYTES = 1 << 32
_SMALL_COPY_BYTES = 1 << 24
_UPLOAD_SHARE = 4  # uploads are a quarter of that
_ROW_BYTES = 1 << 10
_SIDE = 8192  # rows of square matrices
_SMALL_SIDE = 256


def measure_ceilings(place: torch.device, size: Size, work: Path) -> Iterator[Record]:
    """Yield the rates of a copy within the device (bytes read and written), an upload and a matrix product."""
    del work
    n_bytes = _SMALL_COPY_BYTES if place.type == "cpu" else _COPY_BYTES
    yield from guarded({"what": "copy"}, lambda: [_time_copy(place, n_bytes, size.n_calls)])
    yield from guarded({"what": "upload"}, lambda: [_time_upload(place, n_bytes // _UPLOAD_SHARE, size.n_calls)])
    yield from guarded({"what": "matrix product"}, lambda: [time_matrix_product(place, size)])


def _time_copy(place: torch.device, n_bytes: int, n_calls: int) -> Record:
    source = torch.randint(0, 255, (n_bytes,), dtype=torch.uint8, device=place)
    target = torch.empty_like(source)
    ms = median_ms(partial(target.copy_, source), place, n_calls)
    return {"n_bytes": 2 * n_bytes, "ms": ms, "gb_s": 2 * n_bytes / ms / 1e6}


def _time_upload(place: torch.device, n_bytes: int, n_calls: int) -> Record:
    host = np.random.default_rng(0).integers(0, 255, (n_bytes // _ROW_BYTES, _ROW_BYTES), np.uint8)
    ms = median_ms(lambda: upload(lambda low, high: host[low:high], len(host), place), place, n_calls)
    return {"n_bytes": n_bytes, "ms": ms, "gb_s": n_bytes / ms / 1e6}


def time_matrix_product(place: torch.device, size: Size) -> Record:
    """Time a product of square matrices, in float16 on a GPU and in float32 on a CPU."""
    small = place.type == "cpu"
    side, kind = (_SMALL_SIDE, torch.float32) if small else (_SIDE, torch.float16)
    one, other = (torch.randn((side, side), device=place).to(kind) for _ in range(2))
    ms = median_ms(partial(torch.matmul, one, other), place, size.n_calls)
    return {"kind": str(kind), "side": side, "ms": ms, "tflop_s": 2 * side**3 / ms / 1e9}
