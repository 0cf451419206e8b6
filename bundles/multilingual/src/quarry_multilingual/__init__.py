"""The encoder multilingual-e5-small, which Quarry finds by the name "multilingual"."""

from pathlib import Path

__all__ = ["bundle_folder"]


def bundle_folder() -> Path:
    """Return the folder of the bundle."""
    return Path(__file__).parent / "multilingual-e5-small"
