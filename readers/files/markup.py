"""Headings of Markdown and reStructuredText, found by own code because their characters in the file are needed.

The text is kept as it is, so that its lines are those of the file; parsers of libraries return another text, or
lines alone, and docutils reads further files that a text names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime

from quarry.engine.documents.document import MAX_TEXT_CHARACTERS
from quarry.engine.documents.outline import Heading, Outline
from quarry.readers.files.characters import decoded, decoded_source
from quarry.readers.files.file_text import FileText, UnreadableError

__all__ = ["markdown_headings", "read_markdown", "read_plain", "read_rst", "read_source"]

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)")
_CLOSING = re.compile(r"(?:^|[ \t]+)#+[ \t]*$")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*[ \t]*$")
_LINE = re.compile(r"[^\n]*\n?")
_BYTES = 8  # of a text for each character: four, and as many that are left out of line ends
_MAX_HEADING = 500  # characters; what is longer is not a heading
_MAX_FRONT_MATTER = 1 << 16  # characters
_MAX_TAGS = 64
_ENTRY = re.compile(r"([A-Za-z_][\w-]*):(?:[ \t]+(.*))?")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.+)")


def read_plain(content: bytes, max_characters: int = MAX_TEXT_CHARACTERS) -> FileText:
    """Make the document of a text file."""
    return FileText(_decoded(content, max_characters), outline=Outline("line"))


def read_source(content: bytes) -> FileText:
    """Make the document of source code."""
    return FileText(_decoded(content, decode=decoded_source), outline=Outline("line"))


def read_markdown(content: bytes) -> FileText:
    """Make the document of a Markdown file: title, tags and date of its front matter are title and metadata."""
    text = _decoded(content)
    lines = _lines(text[:_MAX_FRONT_MATTER])
    title, metadata = _front_matter([line for _, line in lines[: _front_matter_lines(lines)]])
    return FileText(
        text, title, outline=Outline("line", headings=tuple(markdown_headings(text))), metadata=metadata
    )


def read_rst(content: bytes) -> FileText:
    """Make the document of a reStructuredText file."""
    text = _decoded(content)
    return FileText(text, outline=Outline("line", headings=tuple(_rst_headings(text))))


def _decoded(
    content: bytes, max_characters: int = MAX_TEXT_CHARACTERS, decode: Callable[[bytes], str] = decoded
) -> str:
    if len(content) > _BYTES * max_characters:
        raise UnreadableError(f"has more than {max_characters} characters: split it into several files")
    return decode(content)


def markdown_headings(text: str, offset: int = 0) -> Iterator[Heading]:
    """Yield the headings, ATX and setext (CommonMark 0.31, 4.2 and 4.3), that stand outside of fenced code.

    Args:
        text: Markdown.
        offset: added to all positions.
    """
    fence = ""
    above: tuple[int, str] | None = None  # the line before, if it may be the text of a heading
    lines = _lines(text)
    skipped = _front_matter_lines(lines)
    for start, line in lines[skipped:]:
        marks = _FENCE.match(line)
        if fence or marks:
            if not fence and marks:
                fence = marks[1]
            elif marks and marks[1].startswith(fence) and not line[marks.end() :].strip():
                fence = ""
            above = None
            continue
        heading = _atx(line, start, offset)
        under = _SETEXT.match(line)
        if heading is None and under and above is not None:
            heading = _heading(1 if under[1][0] == "=" else 2, above[1], above[0] + offset)
        if heading is not None:
            yield heading
        is_text = bool(line.strip()) and heading is None and not line.startswith(("    ", "\t", ">", "- ", "* "))
        above = (start, line) if is_text else None


def _atx(line: str, start: int, offset: int) -> Heading | None:
    marks = _ATX.match(line)
    if not marks:
        return None
    content = _CLOSING.sub("", line[marks.end() :][: _MAX_HEADING + 1])
    return _heading(len(marks[1]), content, start + marks.end() + offset)


def _front_matter_lines(lines: list[tuple[int, str]]) -> int:
    """How many lines at the beginning are metadata between two lines of dashes."""
    if not lines or lines[0][1].rstrip() != "---":
        return 0
    ends = (number for number, (_, line) in enumerate(lines[1:], 2) if line.rstrip() in {"---", "..."})
    return next(ends, 0)


def _front_matter(lines: list[str]) -> tuple[str, dict[str, object]]:
    """Return the title, and the tags and date as metadata, of YAML with scalars and lists of one level."""
    values: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if entry := _ENTRY.fullmatch(line.rstrip()):
            name, value = entry[1].lower(), entry[2] or ""
            is_list = value[:1] == "[" and value[-1:] == "]"
            parts = (
                value[1:-1].split(",") if is_list else re.split(r"[,\s]+", value) if name == "tags" else [value]
            )
            values[name] = [part for part in map(_scalar, parts) if part]
        elif name and (item := _ITEM.fullmatch(line.rstrip())) and (part := _scalar(item[1])):
            values[name].append(part)
    metadata: dict[str, object] = {"tags": [tag.lstrip("#") for tag in values.get("tags", ())][:_MAX_TAGS]}
    for day in values.get("date", ())[:1]:
        with suppress(ValueError):  # it is written in another way
            moment = datetime.fromisoformat(day)
            metadata["date"] = moment.date().isoformat() if len(day) <= len("2025-01-02") else moment.isoformat()
    return " ".join(values.get("title", ())[:1])[:_MAX_HEADING], {
        key: each for key, each in metadata.items() if each
    }


def _scalar(value: str) -> str:
    """Return a scalar of YAML without its quotation marks or its comment."""
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1].strip()
    return value.partition(" #")[0].strip()[:_MAX_HEADING]


def _rst_headings(text: str) -> Iterator[Heading]:
    """Yield section titles: a line with an adornment of one character under it, perhaps over it too.

    The level of an adornment is that in which it first appears (docutils, "reStructuredText Markup Specification",
    sections).
    """
    styles: list[tuple[str, bool]] = []
    lines = _lines(text)
    for number in range(1, len(lines)):
        under = _ADORNMENT.match(lines[number][1])
        start, title = lines[number - 1]
        if not under or not title.strip() or _ADORNMENT.match(title):
            continue
        before = lines[number - 2][1] if number > 1 else ""
        over = _ADORNMENT.match(before)
        is_over = over is not None and over[0].rstrip() == under[0].rstrip()
        is_first = is_over or not before.strip()
        if not is_first or len(under[0].rstrip()) < len(title.rstrip()) or (title[0].isspace() and not is_over):
            continue
        style = (under[1], is_over)
        if style not in styles:
            styles.append(style)
        if heading := _heading(styles.index(style) + 1, title, start):
            yield heading


def _lines(text: str) -> list[tuple[int, str]]:
    """Return (position, line without its line feed) of each line; none of a text too long for a document."""
    if len(text) > MAX_TEXT_CHARACTERS:
        return []
    return [(match.start(), match[0].removesuffix("\n")) for match in _LINE.finditer(text) if match[0]]


def _heading(level: int, line: str, start: int) -> Heading | None:
    content = line.strip()
    if not content or len(content) > _MAX_HEADING:
        return None
    first = start + line.index(content)
    return Heading(level, first, first + len(content))
