"""A text shortened to one line for a terminal."""

from __future__ import annotations

__all__ = ["snippet"]


def snippet(text: str, n_characters: int = 88) -> str:
    """Put the beginning of a text on one line.

    White space becomes single spaces; characters that a terminal would act upon are left out, because the
    text is a stranger's.
    """
    # A bounded part is enough: a text of megabytes need not be split into words for one line.
    words = text[: 8 * n_characters].split()
    line = "".join(character for character in " ".join(words) if character.isprintable())
    return line if len(line) <= n_characters else line[: n_characters - 3].rstrip() + "..."
