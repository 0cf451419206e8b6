"""Backends by name; each is imported when it is chosen, and a missing library is a clear error."""

from __future__ import annotations

from importlib import import_module

from engine.backends.protocol import Backend
from engine.options import OpenOptions
from formats.errors import BackendUnavailable, InvalidSetting
from formats.snapshot import OpenSegment

__all__ = ["BACKENDS", "check_backend", "open_backend"]

BACKENDS: dict[str, tuple[str, str]] = {
    "exact": ("engine.backends.exact:ExactBackend", ""),
    "scan": ("engine.backends.scan:ScanBackend", ""),
    "cpu_faiss": ("engine.backends.cpu_faiss:FaissBackend", ""),
    "gpu": ("engine.backends.gpu:GpuBackend", "gpu"),
}
"""Name -> (module:class, extra that installs what it needs)."""


def check_backend(name: str) -> None:
    """Raise InvalidSetting unless `name` is "auto" or a backend's."""
    if name != "auto" and name not in BACKENDS:
        raise InvalidSetting("unknown backend", expected=f"auto, {', '.join(BACKENDS)}", actual=repr(name))


def open_backend(name: str, segment: OpenSegment, options: OpenOptions | None = None) -> Backend:
    """The backend `name` for a segment.

    "auto", and "cpu_faiss" for a segment without inverted lists, take what fits the segment: lists where it has
    them, else a scan of all its centroids.

    Args:
        name: see `BACKENDS`.
        segment: stays open as long as the backend is used.
        options: threads and memory, on this machine and on a device; None: the defaults.

    Raises:
        BackendUnavailable: a library, or the device, is missing.
        InvalidSetting: the segment does not fit into the device's memory budget.
    """
    lists = segment.reader.lists is not None
    if name in ("auto", "cpu_faiss"):
        name = "cpu_faiss" if lists else "scan"
    if name == "scan" and segment.reader.centroids.kind == "none":
        name = "exact"
    place, extra = BACKENDS[name]
    module, _, class_name = place.partition(":")
    try:
        factory = getattr(import_module(module), class_name)
    except ImportError as error:
        hint = f"pip install 'quarry-search[{extra}]'" if extra else "pip install quarry-search"
        raise BackendUnavailable(f"backend {name} cannot be loaded", expected=hint, actual=str(error)) from error
    backend: Backend = factory(segment, options or OpenOptions()) if name == "gpu" else factory(segment)
    return backend
