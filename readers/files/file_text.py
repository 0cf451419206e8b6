"""What a reader makes of a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from quarry.engine.documents.outline import Outline

__all__ = ["FileText", "UnreadableError", "printable"]

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\ufffe]")


class UnreadableError(Exception):
    """A file is not of its kind, is damaged or exceeds a limit; the message says what was expected and found."""


@dataclass(frozen=True, slots=True)
class FileText:
    """A document of a file.

    Attributes:
        text: its characters.
        title: or "".
        outline: what divides the text.
        part: names it among several of one file, or "".
        metadata: what else is known about it.
    """

    text: str
    title: str = ""
    outline: Outline = field(default_factory=Outline)
    part: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)


def printable(text: str) -> str:
    """Leave out control characters, which extracted texts have none of."""
    return _CONTROL.sub("", text)
