"""Patterns of ``.gitignore`` files, matched by own code because that of a library can take exponential time.

pathspec 1.1 makes one regular expression of a pattern: ``*a`` twelve times and ``*b`` take 29 s for a name of 32
letters, and microseconds here. It also differs from git: ``[[:alpha:]]`` is not a class, and "é" is one character.
"""

from __future__ import annotations

import re

__all__ = ["GlobPattern"]

_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\t\n\r ",  # git's own
    "blank": r"\t ",
    "punct": r"!-\/:-@\[-`{-~",
    "xdigit": "0-9a-fA-F",
    "cntrl": r"\x00-\x1f\x7f",
    "graph": "!-~",
    "print": " -~",
}
_SPECIAL = re.compile(rb"[*?\[\\]")
_FOLDERS = re.compile(r"\*\*+(?P<end>/|\\/|\Z)")
_SLASH = re.compile(r"\\?/")
_NEVER = re.compile(rb"(?!)")
_ANY_NAME = re.compile(rb".*", re.DOTALL)

_Step = re.Pattern[bytes] | None
"""What a name must match; None: any number of names."""


class GlobPattern:
    """A pattern of a path, in which ``**`` between slashes matches any number of folders.

    ``*`` matches any bytes but slashes, ``?`` one byte, ``[...]`` one of a set; a backslash makes the next byte
    literal (gitignore(5), wildmatch of git). As in git, names are compared as bytes: ``?`` does not match "é".

    Args:
        pattern: without a leading or trailing slash.
    """

    def __init__(self, pattern: bytes) -> None:
        first_special = _SPECIAL.search(pattern)
        end = first_special.start() if first_special else len(pattern)
        self._prefix = pattern[:end]
        # As in git, two stars after nothing but literals begin a path of their own: "a**/b" matches "ab".
        self._steps = _parse_steps(pattern[end:].decode("latin-1"))

    def matches(self, path: bytes) -> bool:
        """Whether the whole path, or the name, matches.

        Backtracks to the last ``**`` only, as matching of ``*`` in a string does: O(names times steps).
        """
        if not path.startswith(self._prefix):
            return False
        steps = self._steps
        names = path[len(self._prefix) :].split(b"/")
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


def _parse_steps(pattern: str) -> list[_Step]:
    """Return what the names of a path must match, in order.

    Args:
        pattern: a character for each byte.
    """
    steps: list[_Step] = []
    position: int | None = 0
    while position is not None:
        if folders := _FOLDERS.match(pattern, position):
            steps.append(None)
            position = folders.end() if folders["end"] else None
            if folders["end"] != "/":  # folder/** is what is in the folder, not the folder
                steps.append(_ANY_NAME)
            continue
        parsed = _parse_name(pattern, position)
        if parsed is None:
            return [_NEVER]
        step, position = parsed
        steps.append(step)
    return steps


def _parse_name(pattern: str, position: int) -> tuple[re.Pattern[bytes], int | None] | None:
    """Return the expression for the name that begins here and the position after its slash, or None at the end.

    Returns None if nothing matches the pattern. What is between two stars is matched as early as possible and
    never again (atomic groups): that finds a match if there is one, in time proportional to the lengths of name
    and pattern.
    """
    pieces = [""]
    next_position = None
    while position < len(pattern):
        if slash := _SLASH.match(pattern, position):
            next_position = slash.end()
            break
        character = pattern[position]
        position += 1
        if character == "*":
            pieces.append("")
        elif character == "?":
            pieces[-1] += "."
        elif character == "[":
            bracket = _bracket(pattern, position)
            if bracket is None:
                return None
            expression, position = bracket
            pieces[-1] += expression
        elif character == "\\" and position == len(pattern):
            return None
        else:
            literal, position = (pattern[position], position + 1) if character == "\\" else (character, position)
            pieces[-1] += re.escape(literal)
    first, *others = pieces
    middle = "".join(f"(?>.*?{each})" for each in others[:-1] if each)
    expression = f"{first}{middle}.*{others[-1]}" if others else first
    return re.compile(expression.encode("latin-1"), re.DOTALL), next_position


def _bracket(part: str, position: int) -> tuple[str, int] | None:
    """The expression for a set that begins here, and the position after it; None when nothing matches."""
    is_negated = part[position : position + 1] in {"!", "^"}
    position += is_negated
    first = position
    members: list[str] = []
    while position < len(part):
        if part[position] == "]" and position > first:
            return f"[{'^' if is_negated else ''}{''.join(members)}]", position + 1
        member = _class(part, position) or _range(part, position)
        if member is None or member[0] is None:
            return None
        members.append(member[0])
        position = member[1]
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
    return (f"{re.escape(low)}-{re.escape(high)}" if low <= high else re.escape(low)), position  # as in git


def _member(part: str, position: int) -> tuple[str | None, int]:
    """A character of a set, and the position after it; None when the set ends after a backslash."""
    if part[position] != "\\":
        return part[position], position + 1
    return (part[position + 1], position + 2) if position + 1 < len(part) else (None, position)
