"""The encoder that comes with Quarry, so that nothing has to be downloaded."""

from __future__ import annotations

from pathlib import Path

__all__ = ["default_bundle_path"]


def default_bundle_path() -> Path:
    """Return the folder of the bundled default encoder, all-MiniLM-L6-v2 in int8."""
    return Path(__file__).parent / "all-MiniLM-L6-v2"
