"""Where in a file a passage was read: its lines, pages or cells, and the headings above it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from quarry.engine.documents.document import Document
from quarry.engine.documents.outline import Heading, Outline

__all__ = ["FilePlace", "find_place", "heading_starts"]

_WORD = re.compile(r"\w")
_SHORT = {"line": ("line", "lines"), "page": ("p.", "pp."), "cell": ("cell", "cells")}


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where a passage, or a whole document, was read; ``str`` writes it as in "manual.pdf, p. 12".

    Attributes:
        path: the path of the file, relative to the folder that was read, with slashes.
        part: names the document among several of one file ("message 3"), or "".
        unit: "line", "page" or "cell", or "" when the kind of file has none, and for a whole document.
        first: number of the first line, page or cell of the passage, from 1; None without a unit.
        last: number of the last one.
        headings: the headings that the passage is under, from the highest level down.
    """

    path: str
    part: str = ""
    unit: str = ""
    first: int | None = None
    last: int | None = None
    headings: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [self.path, self.part]
        if self.unit and self.first is not None:
            one, several = _SHORT[self.unit]
            is_one = self.first == self.last
            parts.append(f"{one} {self.first}" if is_one else f"{several} {self.first}-{self.last}")
        parts.append(" > ".join(" ".join(heading.split()) for heading in self.headings))
        return ", ".join(filter(None, parts))


def find_place(
    text: str, title: str, metadata: Mapping[str, object], spans: tuple[tuple[int, int], ...] = ()
) -> FilePlace | None:
    """Find where a passage of a document was read.

    Args:
        text: the text of the document.
        title: the title of the document.
        metadata: the metadata of the document; ``metadata["file"]`` says what file it was read from.
        spans: (start, end) characters of the passage, ascending, in the full text (title, line break, text); none
            for the whole document.

    Returns:
        The place, or None when the document was not read from a file.
    """
    file = metadata.get("file")
    if not isinstance(file, Mapping) or not isinstance(path := file.get("path"), str):
        return None
    part = file.get("part")
    part = part if isinstance(part, str) else ""
    offset = len(title) + 1 if title else 0
    if not spans or spans[-1][1] <= offset:  # all of the document, or a passage of its title
        return FilePlace(path, part)
    start, end = max(0, spans[0][0] - offset), spans[-1][1] - offset
    outline = Outline.unpacked(file.get("places"))
    word = _WORD.search(text, start, end)  # a heading may begin after marks: "# Title"
    above = _headings_above(outline.headings, word.start() if word else start)
    headings = tuple(text[each.start : each.end] for each in above)
    if outline.unit == "line":
        first = 1 + text.count("\n", 0, start)
        return FilePlace(path, part, "line", first, first + text.count("\n", start, max(start, end - 1)), headings)
    if outline.starts:
        first, last = (max(1, bisect_right(outline.starts, each)) for each in (start, max(start, end - 1)))
        return FilePlace(path, part, outline.unit, first, last, headings)
    return FilePlace(path, part, headings=headings)


def heading_starts(document: Document) -> list[int]:
    """Return where headings begin in the text of a document that was read from a file, ascending."""
    file = document.metadata.get("file")
    outline = Outline.unpacked(file.get("places") if isinstance(file, Mapping) else None)
    return [heading.start for heading in outline.headings if heading.start < len(document.text)]


def _headings_above(headings: tuple[Heading, ...], position: int) -> list[Heading]:
    """The heading of the section that a position is in, after those of the sections around it."""
    above: list[Heading] = []
    for heading in headings:
        if heading.start > position:
            break
        while above and above[-1].level >= heading.level:
            above.pop()
        above.append(heading)
    return above
