"""Documents of Word (Office Open XML, ECMA-376): paragraphs and tables, with headings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from quarry.engine.documents.files.file_text import FileText, printable
from quarry.engine.documents.files.zipped import Archive, parse_xml
from quarry.engine.documents.outline import Heading, Outline

__all__ = ["read_docx"]

_BODY, _STYLES, _PROPERTIES = "word/document.xml", "word/styles.xml", "docProps/core.xml"
_HEADING_NAME = re.compile(r"heading ([1-9])", re.IGNORECASE)
_PREFIXES = {  # of WordprocessingML, DrawingML and mathematics, transitional and strict
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "w:",
    "http://purl.oclc.org/ooxml/wordprocessingml/main": "w:",
    "http://schemas.openxmlformats.org/drawingml/2006/main": "a:",
    "http://purl.oclc.org/ooxml/drawingml/main": "a:",
    "http://schemas.openxmlformats.org/officeDocument/2006/math": "m:",
    "http://purl.oclc.org/ooxml/officeDocument/math": "m:",
}
_PARAGRAPHS = frozenset({"w:p", "a:p"})
_TEXTS = frozenset({"w:t", "a:t", "m:t"})
_BREAKS = {"w:tab": "\t", "w:br": "\n", "w:cr": "\n", "w:noBreakHyphen": "-", "a:br": "\n"}
_LEFT_OUT = frozenset(  # w:tabs are positions, w:pPrChange is the style before a tracked change
    {"Fallback", "w:instrText", "w:delText", "w:moveFrom", "w:tabs", "w:pPrChange"}
)
_MAX_HEADING = 500


def read_docx(content: bytes) -> FileText:
    """Make the document of a file of Word; deleted text, comments, headers and footnotes are left out.

    The text of shapes and text boxes follows the paragraph that they are in.

    Raises:
        UnreadableError: it is damaged, encrypted or no such file.
    """
    archive = Archive(content)
    levels = _heading_levels(archive.read(_STYLES)) if _STYLES in archive else {}
    title = _title(archive.read(_PROPERTIES)) if _PROPERTIES in archive else ""
    body = _Body(levels)
    parse_xml(archive.read(_BODY), body.start, body.end, body.text, _PREFIXES)
    return FileText("".join(body.parts).strip("\n"), title, Outline(headings=tuple(body.headings)))


@dataclass
class _Paragraph:
    piece: int  # which one of the outermost paragraph its text becomes
    parts: list[str] = field(default_factory=list)
    level: int = 0  # of a heading


class _Body:
    """Collects the paragraphs."""

    def __init__(self, levels: dict[str, int]) -> None:
        self.parts: list[str] = []
        self.headings: list[Heading] = []
        self._levels = levels
        self._length = 0
        self._paragraphs: list[_Paragraph] = []  # those that are open, the outermost first
        self._pieces: list[str] = []  # of the outermost one: its text, then those of the shapes in it
        self._left_out = 0  # depth of elements that are left out
        self._is_text = False
        self._cells = 0  # depth of table cells

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name in _LEFT_OUT or self._left_out:
            self._left_out += 1
        elif name in _PARAGRAPHS:
            self._paragraphs.append(_Paragraph(len(self._pieces)))
            self._pieces.append("")
        elif name == "w:tc":
            self._cells += 1
        elif self._paragraphs:
            self._start_in_paragraph(self._paragraphs[-1], name, attributes)
        self._is_text = name in _TEXTS

    def end(self, name: str) -> None:
        self._is_text = False
        if self._left_out:
            self._left_out -= 1
        elif name in _PARAGRAPHS:
            self._end_paragraph()
        elif name == "w:tc":
            self._cells -= 1
            self._append("\t")
        elif name == "w:tr":
            self._append("\n")

    def text(self, text: str) -> None:
        if self._is_text and not self._left_out and self._paragraphs:
            self._paragraphs[-1].parts.append(text)

    def _start_in_paragraph(self, paragraph: _Paragraph, name: str, attributes: dict[str, str]) -> None:
        if name == "w:pStyle":
            paragraph.level = self._levels.get(attributes.get("val", ""), 0)
        elif name == "w:outlineLvl" and attributes.get("val", "9") in "012345678":
            paragraph.level = int(attributes["val"]) + 1
        elif name in _BREAKS:
            paragraph.parts.append(_BREAKS[name])

    def _end_paragraph(self) -> None:
        paragraph = self._paragraphs.pop()
        text = printable("".join(paragraph.parts)).strip(" \n")
        is_heading = bool(text.strip()) and paragraph.level > 0 and len(text) <= _MAX_HEADING
        if is_heading and not self._cells and not self._paragraphs:
            self.headings.append(Heading(paragraph.level, self._length, self._length + len(text)))
        if self._cells:  # the paragraphs of a cell become one line
            text = " ".join(text.split())
        if text.strip():
            self._pieces[paragraph.piece] = text + (" " if self._cells else "\n")
        if not self._paragraphs:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                self._append(piece)

    def _append(self, text: str) -> None:
        if self._paragraphs:
            self._pieces.append(text)
            return
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
