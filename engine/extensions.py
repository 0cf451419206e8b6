"""Parts of other packages by name: file readers, backends, representations, encoders and rerankers.

An installed package registers a part by an entry point of one of the groups ``quarry.readers``,
``quarry.backends``, ``quarry.representations``, ``quarry.encoders``, ``quarry.rerankers`` and ``quarry.bundles``
(`quarry.engine.bundled`). Nothing is imported before the name of a part is used, and names of Quarry's own parts
cannot be taken.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from quarry.engine.arguments import shown
from quarry.formats.errors import ExtensionFailed, InvalidSetting
from quarry.formats.system_errors import access_failed

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

__all__ = [
    "distributions_of",
    "extension_failed",
    "load_extension",
    "make_extension",
    "registered_names",
    "unknown_name",
]


def registered_names(kind: str) -> frozenset[str]:
    """Return the names that installed packages have registered for parts of a kind, such as "backend"."""
    return frozenset(_entries(kind).names)


def load_extension(kind: str, name: str, own: Collection[str] = ()) -> object:
    """Import what a package has registered under a name.

    Args:
        kind: "reader", "backend", "representation", "encoder", "reranker" or "bundle".
        name: the name of the part.
        own: names of the parts of Quarry, for messages.

    Raises:
        InvalidSetting: no installed package has registered the name; the message has the nearest ones.
        ExtensionFailed: several have, or the import fails; the message names the distributions.
    """
    entries = [*_entries(kind).select(name=name)]
    if not entries:
        raise unknown_name(kind, name, own)
    if len(entries) > 1:
        expected = f"one of {distributions_of(kind, name)} to be installed"
        raise ExtensionFailed(f"several packages register the {kind} {name!r}", expected=expected)
    try:
        part: object = entries[0].load()
    except Exception as error:  # whatever the code of the package raises
        raise extension_failed(kind, name, f"{type(error).__name__}: {error}") from error
    return part


def make_extension(kind: str, source: Path, own: Collection[str] = ()) -> object:
    """Return what a registered function without arguments makes; None if its name is not registered.

    Args:
        kind: "encoder" or "reranker".
        source: the name, as a path; it means the file or folder of that name if there is one.
        own: names of the parts of Quarry, which no package can take.

    Raises:
        InvalidSetting: there is no such file or folder, and it is nearly a name.
        ExtensionFailed: the function cannot be loaded, or fails.
    """
    name = str(source)
    if name in own or os.path.exists(source):  # noqa: PTH110  # false if access is refused
        return None
    if name not in registered_names(kind):
        if _nearest_names(kind, name, own):
            raise unknown_name(kind, name, own)
        return None
    make = load_extension(kind, name)
    try:
        made: object = make() if callable(make) else None
    except Exception as error:  # whatever the code of the package raises
        raise extension_failed(kind, name, f"{type(error).__name__}: {error}") from error
    if made is None:
        raise extension_failed(kind, name, "it is not a function that returns something")
    return made


def extension_failed(kind: str, name: str, why: str) -> ExtensionFailed:
    """Return an error that names the distribution of a part."""
    return ExtensionFailed(f"the {kind} {name!r} of {distributions_of(kind, name)} cannot be used", actual=why)


def distributions_of(kind: str, name: str) -> str:
    """Return the distributions that register a part, with their versions."""
    return ", ".join(sorted(map(_distribution, _entries(kind).select(name=name))))


def unknown_name(kind: str, name: object, own: Iterable[str] = ()) -> InvalidSetting:
    """Return an error that has all names of parts of a kind, and the nearest of them."""
    names = [*own, *sorted(registered_names(kind))]
    near = _nearest_names(kind, name, own)
    hint = f" (the nearest: {', '.join(near)})" if near else ""
    expected = f"one of {', '.join(names)}{hint}" if names else "a name that an installed package registers"
    return InvalidSetting(f"unknown {kind}", expected=expected, actual=shown(name), setting=kind)


def _nearest_names(kind: str, name: object, own: Iterable[str]) -> list[str]:
    """Return the names of parts of a kind that are spelled like one that is none, best first."""
    from difflib import get_close_matches

    return get_close_matches(name, {*own, *registered_names(kind)}) if isinstance(name, str) else []


def _entries(kind: str) -> EntryPoints:
    from importlib.metadata import entry_points  # with archives and mail, which opening an index does without

    try:
        return entry_points(group=f"quarry.{kind}s")
    except OSError as error:
        raise access_failed(error, "read", sys.prefix, "that the packages installed there can be read") from error


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
