"""Patterns of paths as in ``.gitignore`` files, matched in time that no pattern can make exponential."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["GlobPattern"]

_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\t\n\v\f\r ",
    "blank": r"\t ",
    "punct": r"!-\/:-@\[-`{-~",
    "xdigit": "0-9a-fA-F",
    "cntrl": r"\x00-\x1f\x7f",
    "graph": "!-~",
    "print": " -~",
}
_NEVER = re.compile(r"(?!)")


class GlobPattern:
    """A pattern of a path, in which ``**`` between slashes matches any number of folders.

    ``*`` matches any characters but slashes, ``?`` one, ``[...]`` one of a set; a backslash makes the next
    character
    literal (gitignore(5), wildmatch of git). Names are compared as characters, while git compares bytes of UTF-8.

    Args:
        pattern: without a leading or trailing slash.
    """

    def __init__(self, pattern: str) -> None:
        self._steps = [None if part == "**" else _compiled(part) for part in pattern.split("/")]

    def matches(self, names: Sequence[str]) -> bool:
        """Whether the whole path, given as its names, matches.

        Backtracks to the last ``**`` only, as matching of ``*`` in a string does: O(names times steps).
        """
        steps = self._steps
        if steps[-1] is None and len(steps) > 1:  # folder/** is what is in the folder, not the folder
            names, steps = names[:-1], [*steps[:-1], None]
            if not self._matches_from(steps, names):
                return False
            return len(names) > 0
        return self._matches_from(steps, names)

    @staticmethod
    def _matches_from(steps: Sequence[re.Pattern[str] | None], names: Sequence[str]) -> bool:
        step = name = 0
        retry_step, retry_name = -1, 0
        while name < len(names):
            if step < len(steps) and steps[step] is None:
                retry_step, retry_name = step, name
                step += 1
            elif step < len(steps) and (pattern := steps[step]) is not None and pattern.fullmatch(names[name]):
                step, name = step + 1, name + 1
            elif retry_step >= 0:
                retry_name += 1
                step, name = retry_step + 1, retry_name
            else:
                return False
        return all(each is None for each in steps[step:])


def _compiled(part: str) -> re.Pattern[str]:
    """The expression for one name.

    What stands between two stars is matched as early as possible and never again (atomic groups): that finds a
    match whenever there is one, in time proportional to the lengths of name and pattern.
    """
    pieces: list[list[str]] = [[]]
    position = 0
    while position < len(part):
        character = part[position]
        position += 1
        if character == "*":
            pieces.append([])
        elif character == "?":
            pieces[-1].append(".")
        elif character == "[":
            found = _bracket(part, position)
            if found is None:
                return _NEVER
            pieces[-1].append(found[0])
            position = found[1]
        elif character == "\\":
            if position == len(part):
                return _NEVER
            pieces[-1].append(re.escape(part[position]))
            position += 1
        else:
            pieces[-1].append(re.escape(character))
    first, *others = ["".join(piece) for piece in pieces]
    if not others:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?>.*?{each})" for each in others[:-1] if each)
    return re.compile(f"{first}{middle}.*{others[-1]}", re.DOTALL)


def _bracket(part: str, position: int) -> tuple[str, int] | None:
    """The expression for a set that begins here, and the position after it; None when nothing matches."""
    is_negated = part[position : position + 1] in {"!", "^"}
    position += is_negated
    first = position
    members: list[str] = []
    while position < len(part):
        if part[position] == "]" and position > first:
            if not members:  # only ranges that hold nothing
                return ("." if is_negated else "(?!)"), position + 1
            return f"[{'^' if is_negated else ''}{''.join(members)}]", position + 1
        found = _class(part, position) or _range(part, position)
        if found is None or found[0] is None:
            return None
        members += filter(None, [found[0]])
        position = found[1]
    return None


def _class(part: str, position: int) -> tuple[str | None, int] | None:
    """The members of a class such as [:alpha:], and the position after it; None when there is none here.

    The members of a class that is not known are None.
    """
    end = part.find("]", position + 2) if part.startswith("[:", position) else -1
    if end < position + 3 or part[end - 1] != ":":
        return None
    return _CLASSES.get(part[position + 2 : end - 1]), end + 1


def _range(part: str, position: int) -> tuple[str, int] | None:
    """A character of a set, or a range of them, and the position after it; None when it is not whole."""
    low, position = _member(part, position)
    if low is None:
        return None
    if part[position : position + 1] != "-" or part[position + 1 : position + 2] in {"", "]"}:
        return re.escape(low), position
    high, position = _member(part, position + 1)
    if high is None:
        return None
    return (f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""), position


def _member(part: str, position: int) -> tuple[str | None, int]:
    """A character of a set, and the position after it; None when the set ends after a backslash."""
    if part[position] != "\\":
        return part[position], position + 1
    return (part[position + 1], position + 2) if position + 1 < len(part) else (None, position)
