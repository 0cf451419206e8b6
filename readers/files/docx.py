"""Documents of Word (Office Open XML, ECMA-376): paragraphs and tables, with headings."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from quarry.engine.documents.outline import Heading, Outline
from quarry.readers.files.file_text import FileText, UnreadableError, printable
from quarry.readers.files.zipped import Archive, parse_xml

__all__ = ["read_docx"]

_USUAL_PARTS = {  # by the last word of the type of their relationship, for files without relationships
    "officeDocument": "word/document.xml",
    "styles": "word/styles.xml",
    "core-properties": "docProps/core.xml",
    "footnotes": "word/footnotes.xml",
    "endnotes": "word/endnotes.xml",
}
_NOTES = {"w:footnote": "footnotes", "w:endnote": "endnotes"}
_REFERENCES = {f"{name}Reference": kind for name, kind in _NOTES.items()}
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
    """Make the document of a file of Word; deleted text, comments, headers and footers of pages are left out.

    The text of shapes, text boxes, footnotes and endnotes follows the paragraph that they are in.

    Raises:
        UnreadableError: it is damaged, encrypted or no such file.
    """
    archive = Archive(content)
    of_package = _related_parts(archive, "")
    main = of_package["officeDocument"]
    related = _related_parts(archive, main)
    levels = _heading_levels(archive.read(related["styles"])) if related["styles"] in archive else {}
    properties = of_package["core-properties"]
    title = _title(archive.read(properties)) if properties in archive else ""
    notes: dict[tuple[str, str], str] = {}
    for kind in _NOTES.values():
        if related[kind] in archive:
            notes |= _read_notes(archive.read(related[kind]))
    body = _Body(levels, notes)
    parse_xml(archive.read(main), body.start, body.end, body.text, _PREFIXES)
    if not body.is_document:
        raise UnreadableError(f"is not a document of Word: its main part {main[:200]!r} has no body")
    return FileText("".join(body.parts).strip("\n"), title, Outline(headings=tuple(body.headings)))


def _related_parts(archive: Archive, part: str) -> Mapping[str, str]:
    """Return names of members by the last word of the type of their relationship to a part; "" is the package."""
    folder, name = posixpath.split(part)
    names: dict[str, str] = {}

    def start(element: str, attributes: dict[str, str]) -> None:
        if element == "Relationship" and attributes.get("TargetMode") != "External":
            target = attributes.get("Target", "").partition("#")[0].replace("\\", "/")
            member = archive.member(posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/"))
            if member in archive:
                names.setdefault(attributes.get("Type", "").rpartition("/")[2], member)

    relationships = archive.member(posixpath.join(folder, "_rels", f"{name}.rels"))
    if relationships in archive:
        parse_xml(archive.read(relationships), start)
    return {**_USUAL_PARTS, **names}


def _read_notes(content: bytes) -> dict[tuple[str, str], str]:
    """Return the texts of footnotes or endnotes by their kind and id."""
    notes: dict[tuple[str, str], str] = {}
    body = _Body({}, {})
    note_id = ""

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal note_id
        if name in _NOTES:
            note_id = attributes.get("id", "")
        body.start(name, attributes)

    def end(name: str) -> None:
        body.end(name)
        if name in _NOTES:
            notes[_NOTES[name], note_id] = "".join(body.parts).strip()
            body.parts.clear()

    parse_xml(content, start, end, body.text, _PREFIXES)
    return notes


@dataclass
class _Paragraph:
    piece: int  # which one of the outermost paragraph its text becomes
    parts: list[str] = field(default_factory=list)
    level: int = 0  # of a heading


class _Body:
    """Collects the paragraphs.

    Args:
        levels: the levels of headings, by the ids of their styles.
        notes: texts of notes, by kind and id; each is used once, where it is first referred to.

    Attributes:
        is_document: whether there is a body.
    """

    def __init__(self, levels: dict[str, int], notes: dict[tuple[str, str], str]) -> None:
        self.is_document = False
        self.parts: list[str] = []
        self.headings: list[Heading] = []
        self._levels = levels
        self._notes = notes
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
        self.is_document |= name == "w:body"
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
        elif name in _REFERENCES and (note := self._notes.pop((_REFERENCES[name], attributes.get("id", "")), "")):
            self._pieces.append(" ".join(note.split()) + " " if self._cells else f"{note}\n")
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
        elif name == "name" and (heading := _HEADING_NAME.fullmatch(attributes.get("val", ""))):
            levels[style] = int(heading[1])
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
