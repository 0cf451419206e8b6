"""An encoder and a collection of texts that come with Quarry, so that nothing has to be downloaded.

The encoder is a bundle, which `quarry.engine.encoding.opening` opens by default. Installed packages bring others:
an entry point of the group ``quarry.bundles`` has the identity of a bundle as its name, and a function that
returns its folder. `INSTALLABLE` lists those that the folder ``bundles`` of a checkout has.
`stdlib_docstrings` collects the docstrings of Python's standard library, for demonstrations and measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, cast

from quarry.formats.errors import InvalidSetting

__all__ = [
    "BUNDLED",
    "DEFAULT_NAME",
    "INSTALLABLE",
    "Installable",
    "bundled_path",
    "default_bundle_path",
    "is_installed",
    "not_installed",
    "path_by_identity",
]

DEFAULT_NAME = "quarry-minilm-l6"
"""The encoder of new indexes."""

BUNDLED = {DEFAULT_NAME: "89531a451839f066c94efc3795b810bf"}
"""Name and identity of each encoder that is part of Quarry."""


class Installable(NamedTuple):
    """The identity of an encoder that has a distribution of its own, and this with the way to install it."""

    identity: str
    distribution: str


INSTALLABLE = {
    "all-MiniLM-L6-v2": Installable(
        "a5d4b94e229bbcc70d2387a095aa1302",
        "quarry-minilm (pip install ./bundles/minilm in a checkout of Quarry)",
    ),
    "multilingual": Installable(
        "58ef53fd2da1b5425b074216fc9c1611",
        "quarry-multilingual (pip install ./bundles/multilingual in a checkout of Quarry)",
    ),
}
"""The encoders of the folder ``bundles`` by name."""


def bundled_path(name: str) -> Path:
    """Return the folder of the bundle of an encoder that is part of Quarry or `INSTALLABLE`.

    Raises:
        InvalidSetting: there is no such encoder, or its distribution is not installed.
        ExtensionFailed: its distribution cannot be used.
    """
    if name in BUNDLED:
        return Path(__file__).parent / name
    if name not in INSTALLABLE:
        expected = " or ".join([*BUNDLED, *INSTALLABLE])
        raise InvalidSetting("no encoder of this name comes with Quarry", expected=expected, actual=repr(name))
    folder = path_by_identity(INSTALLABLE[name].identity)
    if folder is None:
        raise not_installed(name)
    return folder


def not_installed(name: str) -> InvalidSetting:
    """Return the error of an encoder that is `INSTALLABLE`."""
    expected = INSTALLABLE[name].distribution
    return InvalidSetting(f"the encoder {name!r} is not installed", expected=expected, setting="encoder")


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
