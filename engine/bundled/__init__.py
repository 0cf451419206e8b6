"""What comes with Quarry, so that nothing has to be downloaded: an encoder, and a collection of texts.

The encoder is all-MiniLM-L6-v2 in int8, which `quarry.engine.encoding.opening` opens by default;
`stdlib_docstrings` collects the docstrings of Python's standard library, for demonstrations and measurements.

May import: the standard library.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["default_bundle_path"]


def default_bundle_path() -> Path:
    """Return the folder of the bundled default encoder, all-MiniLM-L6-v2 in int8."""
    return Path(__file__).parent / "all-MiniLM-L6-v2"
