"""The encoder all-MiniLM-L6-v2, which Quarry finds by this name."""

from pathlib import Path

__all__ = ["bundle_folder"]


def bundle_folder() -> Path:
    """Return the folder of the bundle."""
    return Path(__file__).parent / "all-MiniLM-L6-v2"
