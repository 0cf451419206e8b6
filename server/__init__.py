"""Indexes over HTTP: an ASGI application, the command ``quarry serve``, and a page for searching.

`app` opens indexes and returns an application, to be run by a server or mounted in another application. Start with
`application`. A request passes `http.gate` (hosts) and `http.operations` (keys, errors); `endpoints` and `service`
answer it, with a `served_index`. `running`, `processes` and `command` are ``quarry serve``, to which
`quarry.distributed` adds ``--ray``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from quarry.engine.process.libraries import importing

if TYPE_CHECKING:
    from quarry.server.application import SearchApp, app
    from quarry.server.http.access import Access
    from quarry.server.limits import Limits

__all__ = ["Access", "Limits", "SearchApp", "app"]

_PLACES = {"Access": "http.access", "Limits": "limits", "SearchApp": "application", "app": "application"}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with importing("server"):
        value: object = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
