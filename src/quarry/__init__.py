"""Quarry: an embeddable semantic search engine for text.

``quarry.build(docs, "idx/")`` builds an index, ``quarry.Engine.open("idx/")`` opens one to search and to change
it. The same names are in `quarry.engine`, so that ``from quarry import engine`` and ``engine.build(...)`` work
too.
`quarry.exporters` converts trained encoders to bundles, `quarry.formats` reads and writes the files of an index.
Modules are imported when a name of theirs is first used; ``import quarry`` loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quarry import engine as _engine

if TYPE_CHECKING:
    from quarry.engine import *  # noqa: F403
    from quarry.engine import __version__ as __version__

__all__ = ["engine", *_engine.__all__]  # noqa: PLE0604

engine = _engine


def __getattr__(name: str) -> object:
    if name in _engine.__all__ or name == "__version__":
        value: object = getattr(_engine, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
