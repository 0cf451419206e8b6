"""Backends by name, imported when they are used, with an error that says how to install what is missing."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from quarry.engine.arguments import is_one_of, shown
from quarry.engine.backends.protocol import Accelerator, Backend, BackendType, Resources
from quarry.engine.process.libraries import loading
from quarry.formats.errors import BackendUnavailable, InvalidSetting
from quarry.formats.snapshot import OpenSegment

__all__ = ["BACKENDS", "Adapter", "check_backend", "open_backend"]


class Adapter(NamedTuple):
    """Location and properties of a backend.

    Attributes:
        place: "module:class", a `BackendType`; importing the module must not load a heavy library.
        extra: extra of this distribution that installs its libraries; "" if they are always installed.
        uses_codes: whether it finds candidates by their codes, so that the number of candidates that was measured
            for the quantizer applies.
        is_fallback: whether "auto" may choose it for any segment, when nothing else works.
        needs_device: whether it runs on `Resources.device`.
    """

    place: str
    extra: str = ""
    uses_codes: bool = False
    is_fallback: bool = False
    needs_device: bool = False

    def load(self, name: str) -> BackendType:
        """Import and return the class.

        Raises:
            BackendUnavailable: the module, or a module that it imports, is missing.
        """
        module, _, class_name = self.place.partition(":")
        try:
            with loading(module):
                found: BackendType = getattr(import_module(module), class_name)
        except ImportError as error:
            raise self.unavailable(name, str(error)) from error
        return found

    def unavailable(self, name: str, why: str) -> BackendUnavailable:
        """Return an error that says how to install what is missing."""
        target = f"'.[{self.extra}]'" if self.extra else "."
        expected = f"pip install {target} in a checkout of Quarry"
        return BackendUnavailable(f"backend {name} cannot be loaded", expected=expected, actual=why)


BACKENDS: dict[str, Adapter] = {
    "exact": Adapter("quarry.engine.backends.exact:ExactBackend", is_fallback=True),
    "scan": Adapter("quarry.engine.backends.scan:ScanBackend", is_fallback=True),
    "cpu_faiss": Adapter("quarry.engine.backends.cpu_faiss:FaissBackend", uses_codes=True),
    "hnsw": Adapter("quarry.engine.backends.hnsw:HnswBackend"),
    "gpu": Adapter("quarry.engine.backends.gpu.backend:GpuBackend", "gpu", uses_codes=True, needs_device=True),
}


def check_backend(name: str, device: Accelerator) -> None:
    """Check before the first search that the requested backend can be used.

    Raises:
        InvalidSetting: there is no backend, or no device, with that name.
        BackendUnavailable: a library, or the device, is missing.
    """
    if not is_one_of(name, {"auto", *BACKENDS}):
        raise InvalidSetting("unknown backend", expected=f"auto, {', '.join(BACKENDS)}", actual=shown(name))
    if name != "auto" and BACKENDS[name].needs_device:
        try:
            _ = device.place
        except ImportError as error:
            raise BACKENDS[name].unavailable(name, str(error)) from error


def open_backend(name: str, segment: OpenSegment, resources: Resources | None = None) -> Backend:
    """Open the backend `name` for a segment that it is suited to (see `quarry.engine.backends.selection`).

    Args:
        name: a key of `BACKENDS`.
        segment: the segment, which must stay open as long as the backend is used.
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
