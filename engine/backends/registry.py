"""Backends by name; each is imported when it is chosen, and a missing library is a clear error."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from quarry.engine.arguments import is_one_of, shown
from quarry.engine.backends.protocol import Backend, BackendType, Resources
from quarry.engine.gpu.device import Device
from quarry.engine.process.libraries import loading
from quarry.formats.errors import BackendUnavailable, InvalidSetting
from quarry.formats.snapshot import OpenSegment

__all__ = ["BACKENDS", "Adapter", "check_backend", "open_backend"]


class Adapter(NamedTuple):
    """Where a backend is.

    Attributes:
        place: "module:class", a `BackendType`; importing the module must load no heavy library.
        extra: of this distribution, that installs what it needs; "" where nothing more is needed.
    """

    place: str
    extra: str = ""

    def load(self, name: str) -> BackendType:
        """The class.

        Raises:
            BackendUnavailable: the module or what it imports is missing.
        """
        module, _, class_name = self.place.partition(":")
        try:
            with loading(module):
                found: BackendType = getattr(import_module(module), class_name)
        except ImportError as error:
            raise self.unavailable(name, str(error)) from error
        return found

    def unavailable(self, name: str, why: str) -> BackendUnavailable:
        """The error that says how to install what is missing."""
        wanted = f"'.[{self.extra}]'" if self.extra else "."
        expected = f"pip install {wanted} in a checkout of Quarry"
        return BackendUnavailable(f"backend {name} cannot be loaded", expected=expected, actual=why)


BACKENDS: dict[str, Adapter] = {
    "exact": Adapter("quarry.engine.backends.exact:ExactBackend"),
    "scan": Adapter("quarry.engine.backends.scan:ScanBackend"),
    "cpu_faiss": Adapter("quarry.engine.backends.cpu_faiss:FaissBackend"),
    "hnsw": Adapter("quarry.engine.backends.hnsw:HnswBackend"),
    "gpu": Adapter("quarry.engine.backends.gpu.backend:GpuBackend", "gpu"),
}


def check_backend(name: str, device: Device) -> None:
    """Find out before the first search whether the backend asked for can be used at all.

    Raises:
        InvalidSetting: there is no backend, or no device, of that name.
        BackendUnavailable: a library, or the device, is missing.
    """
    if not is_one_of(name, {"auto", *BACKENDS}):
        raise InvalidSetting("unknown backend", expected=f"auto, {', '.join(BACKENDS)}", actual=shown(name))
    if name == "gpu":
        try:
            _ = device.place
        except ImportError as error:
            raise BACKENDS[name].unavailable(name, str(error)) from error


def open_backend(name: str, segment: OpenSegment, resources: Resources | None = None) -> Backend:
    """The backend `name` for a segment, which must have what it needs (see `quarry.engine.backends.selection`).

    Args:
        name: a key of `BACKENDS`.
        segment: stays open as long as the backend is used.
        resources: threads and the device; None: one thread, and the first CUDA device.

    Raises:
        BackendUnavailable: a library, or the device, is missing.
        InvalidSetting: the segment does not fit into the device's memory budget.
    """
    adapter = BACKENDS[name]
    try:
        with loading(name):
            return adapter.load(name)(segment, resources or Resources())
    except ImportError as error:
        raise adapter.unavailable(name, str(error)) from error
