"""Encoders and a collection of texts that come with Quarry, so that nothing has to be downloaded.

The encoders are bundles, by name and by identity; `quarry.engine.encoding.opening` opens one of them by default.
`stdlib_docstrings` collects the docstrings of Python's standard library, for demonstrations and measurements.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["BUNDLED", "DEFAULT_NAME", "bundled_path", "default_bundle_path", "path_by_identity"]

DEFAULT_NAME = "quarry-minilm-l6"
"""The encoder of new indexes."""

BUNDLED = {
    "all-MiniLM-L6-v2": "a5d4b94e229bbcc70d2387a095aa1302",
    "quarry-minilm-l6": "89531a451839f066c94efc3795b810bf",
}
"""Name and identity of each encoder."""


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


def path_by_identity(identity: str) -> Path | None:
    """Return the folder of the bundled encoder whose vectors have an identity; None if there is none."""
    return next((bundled_path(name) for name, its_own in BUNDLED.items() if its_own == identity), None)
