"""Documents of Word (Office Open XML, ECMA-376): paragraphs and tables, with headings."""

from __future__ import annotations

import re

from quarry.engine.documents.files.file_text import FileText, printable
from quarry.engine.documents.files.zipped import Archive, parse_xml
from quarry.engine.documents.outline import Heading, Outline

__all__ = ["read_docx"]

_BODY, _STYLES, _PROPERTIES = "word/document.xml", "word/styles.xml", "docProps/core.xml"
_HEADING_NAME = re.compile(r"heading ([1-9])", re.IGNORECASE)
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_LEFT_OUT = frozenset({"Fallback", "instrText", "delText", "txbxContent"})
_MAX_HEADING = 500


def read_docx(content: bytes) -> FileText:
    """Make the document of a file of Word; deleted text, comments, headers and footnotes are left out.

    Raises:
        UnreadableError: it is damaged, encrypted or no such file.
    """
    archive = Archive(content)
    levels = _heading_levels(archive.read(_STYLES)) if _STYLES in archive else {}
    title = _title(archive.read(_PROPERTIES)) if _PROPERTIES in archive else ""
    body = _Body(levels)
    parse_xml(archive.read(_BODY), body.start, body.end, body.text)
    return FileText("".join(body.parts).strip("\n"), title, Outline(headings=tuple(body.headings)))


class _Body:
    """Collects the paragraphs."""

    def __init__(self, levels: dict[str, int]) -> None:
        self.parts: list[str] = []
        self.headings: list[Heading] = []
        self._levels = levels
        self._length = 0
        self._paragraph: list[str] = []
        self._level = 0
        self._left_out = 0  # depth of elements that are left out
        self._is_text = False
        self._cells = 0  # depth of table cells

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name in _LEFT_OUT or self._left_out:
            self._left_out += 1
        elif name == "p":
            self._paragraph, self._level = [], 0
        elif name == "pStyle":
            self._level = self._levels.get(attributes.get("val", ""), 0)
        elif name == "outlineLvl" and attributes.get("val", "9") in "012345678":
            self._level = int(attributes["val"]) + 1
        elif name in _BREAKS:
            self._paragraph.append(_BREAKS[name])
        elif name == "tc":
            self._cells += 1
        self._is_text = name == "t"

    def end(self, name: str) -> None:
        self._is_text = False
        if self._left_out:
            self._left_out -= 1
        elif name == "p":
            self._end_paragraph()
        elif name == "tc":
            self._cells -= 1
            self._append("\t")
        elif name == "tr":
            self._append("\n")

    def text(self, text: str) -> None:
        if self._is_text and not self._left_out:
            self._paragraph.append(text)

    def _end_paragraph(self) -> None:
        text = printable("".join(self._paragraph)).strip(" \n")
        self._paragraph = []
        if self._cells:  # the paragraphs of a cell become one line
            self._append(" ".join(text.split()) + " " if text.strip() else "")
            return
        if text.strip() and self._level and len(text) <= _MAX_HEADING:
            self.headings.append(Heading(self._level, self._length, self._length + len(text)))
        self._append(text + "\n" if text.strip() else "")

    def _append(self, text: str) -> None:
        if not self.parts and not text.strip():  # the text begins with its first word
            return
        self.parts.append(text)
        self._length += len(text)


def _heading_levels(styles: bytes) -> dict[str, int]:
    """Levels by id of the style: styles of headings have English names in every language, ids that differ."""
    levels: dict[str, int] = {}
    style = ""

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal style
        if name == "style":
            style = attributes.get("styleId", "")
        elif name == "name" and (found := _HEADING_NAME.fullmatch(attributes.get("val", ""))):
            levels[style] = int(found[1])
        elif name == "name" and attributes.get("val", "").lower() == "title":
            levels[style] = 1

    parse_xml(styles, start)
    return levels


def _title(properties: bytes) -> str:
    parts: list[str] = []
    inside = False

    def start(name: str, _: dict[str, str]) -> None:
        nonlocal inside
        inside = name == "title"

    def end(_: str) -> None:
        nonlocal inside
        inside = False

    parse_xml(properties, start, end, lambda text: parts.append(text) if inside else None)
    return " ".join(printable("".join(parts)).split())
