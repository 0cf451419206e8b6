"""Backends by name, imported when they are used, with an error that says how to install what is missing.

A backend of another package has its class in the place of the module: one that it registers under a name (see
`quarry.engine.extensions`), or one that an application gives.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import NamedTuple, TypeGuard

from quarry.engine.backends.protocol import Accelerator, Backend, BackendType, Resources
from quarry.engine.extensions import extension_failed, load_extension, unknown_name
from quarry.engine.process.libraries import loading
from quarry.formats.errors import BackendUnavailable
from quarry.formats.snapshot import OpenSegment

__all__ = ["BACKENDS", "Adapter", "check_backend", "find_backend", "open_backend"]


class Adapter(NamedTuple):
    """Location and properties of a backend.

    Attributes:
        place: "module:class", a `BackendType`; importing the module must not load a heavy library. Or the class.
        extra: extra of this distribution that installs its libraries; "" if they are always installed.
        uses_codes: whether it finds candidates by their codes, so that the number of candidates that was measured
            for the quantizer applies.
        is_fallback: whether "auto" may choose it for any segment, when nothing else works.
        needs_device: whether it runs on `Resources.device`.
    """

    place: str | BackendType
    extra: str = ""
    uses_codes: bool = False
    is_fallback: bool = False
    needs_device: bool = False

    def load(self, name: str) -> BackendType:
        """Import and return the class.

        Raises:
            BackendUnavailable: the module, or a module that it imports, is missing.
        """
        if not isinstance(self.place, str):
            return self.place
        module, _, class_name = self.place.partition(":")
        try:
            with loading(module):
                backend: BackendType = getattr(import_module(module), class_name)
        except ImportError as error:
            raise self.unavailable(name, str(error)) from error
        return backend

    def open(self, name: str, segment: OpenSegment, resources: Resources) -> Backend:
        """Open the backend for a segment that it is suited to (see `quarry.engine.backends.selection`).

        Args:
            name: the name of the backend, for messages.
            segment: the segment, which must stay open as long as the backend is used.
            resources: threads and the device.

        Raises:
            BackendUnavailable: a library, or the device, is missing.
            InvalidSetting: the segment does not fit into the device's memory budget.
        """
        try:
            with loading(name):
                return self.load(name)(segment, resources)
        except ImportError as error:
            raise self.unavailable(name, str(error)) from error

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


def find_backend(backend: str | BackendType) -> tuple[str, Adapter]:
    """Return the name and the adapter of a backend.

    Args:
        backend: a key of `BACKENDS`, a name that another package has registered, or a class.

    Raises:
        InvalidSetting: it is none of these.
        ExtensionFailed: what is registered under the name cannot be used.
    """
    if isinstance(backend, str):
        return backend, BACKENDS[backend] if backend in BACKENDS else _registered(backend)
    if not _is_backend(backend):
        raise unknown_name("backend", backend, ("auto", *BACKENDS, "a class with the methods of BackendType"))
    return backend.__name__, Adapter(backend)


@cache
def _registered(name: str) -> Adapter:
    backend = load_extension("backend", name, ("auto", *BACKENDS))
    if not _is_backend(backend):
        raise extension_failed("backend", name, f"{backend!r} is not a class with the method needed_bytes")
    return Adapter(backend)


def _is_backend(value: object) -> TypeGuard[BackendType]:
    return isinstance(value, type) and callable(getattr(value, "needed_bytes", None))


def check_backend(backend: str | BackendType, device: Accelerator) -> None:
    """Check before the first search that the requested backend can be used.

    Raises:
        InvalidSetting: there is no backend, or no device, with that name.
        ExtensionFailed: it is of another package, and cannot be used.
        BackendUnavailable: a library, or the device, is missing.
    """
    if isinstance(backend, str) and backend == "auto":
        return
    name, adapter = find_backend(backend)
    if adapter.needs_device:
        try:
            _ = device.place
        except ImportError as error:
            raise adapter.unavailable(name, str(error)) from error


def open_backend(backend: str | BackendType, segment: OpenSegment, resources: Resources | None = None) -> Backend:
    """Open a backend, see `find_backend` and `Adapter.open`."""
    name, adapter = find_backend(backend)
    return adapter.open(name, segment, resources or Resources())
