"""A hit as a person reads it on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.snippet import snippet

if TYPE_CHECKING:
    from engine import Hit

__all__ = ["hit_lines"]


def hit_lines(hit: Hit) -> list[str]:
    """Write a hit: its score and id, the beginning of its text, and what matched where that was asked for."""
    return [f"  {hit.score:6.3f}  {snippet(hit.id, 48)}", f"          {snippet(hit.text)}"]
