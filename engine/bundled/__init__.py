"""Encoders and a collection of texts that come with Quarry, so that nothing has to be downloaded.

The encoders are bundles, by name and by identity; `quarry.engine.encoding.opening` opens one of them by default.
Installed packages bring others: an entry point of the group ``quarry.bundles`` has the identity of a bundle as its
name, and a function that returns its folder.
`stdlib_docstrings` collects the docstrings of Python's standard library, for demonstrations and measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import cast

__all__ = [
    "BUNDLED",
    "DEFAULT_NAME",
    "INSTALLABLE",
    "bundled_path",
    "default_bundle_path",
    "is_installed",
    "path_by_identity",
]

DEFAULT_NAME = "quarry-minilm-l6"
"""The encoder of new indexes."""

BUNDLED = {
    "all-MiniLM-L6-v2": "a5d4b94e229bbcc70d2387a095aa1302",
    "quarry-minilm-l6": "89531a451839f066c94efc3795b810bf",
}
"""Name and identity of each encoder."""

INSTALLABLE = {"multilingual": "pip install ./bundles/multilingual in a checkout of Quarry"}
"""For encoders that have distributions of their own how to install these, by name."""


def bundled_path(name: str) -> Path:
    """Return the folder of the bundle of a bundled encoder.

    Raises:
        KeyError: there is no such encoder.
    """
    if name not in BUNDLED:
        raise KeyError(name)
    return Path(__file__).parent / name


def default_bundle_path() -> Path:
    """Return the folder of the default encoder's bundle."""
    return bundled_path(DEFAULT_NAME)


@lru_cache(maxsize=64)  # every query asks, and names of installed packages take milliseconds to read
def is_installed(identity: str) -> bool:
    """Return whether there is a bundle whose vectors have an identity, without opening it."""
    from quarry.engine.extensions import registered_names  # with numpy, which the command line begins without

    return identity in BUNDLED.values() or identity in registered_names("bundle")


def path_by_identity(identity: str) -> Path | None:
    """Return the folder of the installed bundle whose vectors have an identity; None if there is none.

    Raises:
        ExtensionFailed: the package that has it cannot be used.
    """
    for name, its_own in BUNDLED.items():
        if its_own == identity:
            return bundled_path(name)
    if not is_installed(identity):
        return None
    from quarry.engine.extensions import extension_failed, load_extension

    find = cast("Callable[[], str | Path]", load_extension("bundle", identity))
    try:
        return Path(find())
    except Exception as error:  # whatever the code of the package raises
        raise extension_failed("bundle", identity, f"{type(error).__name__}: {error}") from error
