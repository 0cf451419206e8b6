"""Formats hits for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quarry.engine import Hit

__all__ = ["format_hit"]

_ID_WIDTH = 36


def format_hit(hit: Hit) -> list[str]:
    """Return the lines of a hit: score, id and the beginning of its text; then its matches, if explained."""
    from quarry.engine.search.hits import snippet  # with numpy, which ``--help`` does without

    lines = [f"  {hit.score:6.3f}  {snippet(hit.id, _ID_WIDTH):<{_ID_WIDTH}}  {snippet(hit.text, 70)}"]
    if place := hit.place:
        lines.append(f"          {snippet(str(place), 100)}")
    lines += [f"          {match.weight:4.0%}  {snippet(match.text, 100)}" for match in hit.matches]
    return lines
