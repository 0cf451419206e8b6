"""The text of HTML pages, with their headings."""

from __future__ import annotations

import re
from typing import Final

from quarry.engine.documents.outline import Heading, Outline
from quarry.readers.files.characters import decoded_page
from quarry.readers.files.file_text import FileText, UnreadableError, printable
from quarry.readers.files.html_tokens import html_tokens

__all__ = ["MAX_TAGS", "read_html", "text_of_html"]

MAX_TAGS: Final = 2_000_000
"""The most tags of a document."""

_DECLARATION = re.compile(r"\ufeff?\s*<\?xml\s")
_ROOT = re.compile(r"<!--(?:.*?-->|.*)|(<html\s[^>]*)", re.I | re.S)  # or a comment before it
_XHTML = "http://www.w3.org/1999/xhtml"
_HIDDEN = frozenset({"script", "style", "template", "svg", "math", "object", "iframe", "noscript", "noembed"})
_BLOCKS = {  # elements by the number of line breaks between their text and what surrounds them
    2: "article aside blockquote dl figure footer header h1 h2 h3 h4 h5 h6 main nav ol p pre section table ul",
    1: "address body br dd details dialog div dt fieldset figcaption form head hr html li option select summary "
    "tbody td tfoot th thead title tr",
}
_LINE_BREAKS = {name: number for number, names in _BLOCKS.items() for name in names.split()}
_CELLS = frozenset({"td", "th"})
_SPACE = re.compile(r"[ \t\r\n\f\xa0]+")
_HEADING = re.compile("h[1-6]")
_MAX_HEADING = 500


def read_html(content: bytes, max_tags: int = MAX_TAGS) -> FileText:
    """Make the document of a page; its encoding is what it says itself, else as for every text.

    Raises:
        UnreadableError: it is a binary file, or has too many tags.
    """
    return text_of_html(decoded_page(content), max_tags=max_tags)


def text_of_html(page: str, offset: int = 0, max_tags: int = MAX_TAGS, is_xml: bool = False) -> FileText:
    """Make the document of a page.

    Args:
        page: HTML or XHTML.
        offset: added to the positions of headings.
        max_tags: the most tags that it may have.
        is_xml: it is XHTML even if it does not say so.

    Raises:
        UnreadableError: it has more.
    """
    if page.count("<") > max_tags:
        raise UnreadableError(f"has more than {max_tags} tags")
    collected = _Collected()
    hidden = ""  # the element whose content is left out; an element of its kind within it ends it early
    for kind, value in html_tokens(page, is_xml or _says_xml(page)):
        if hidden:
            hidden = "" if kind == "end" and value == hidden else hidden
        elif kind == "text":
            collected.add_text(value)
        elif kind == "end":
            collected.end(value)
        else:
            collected.start(value)
            if kind == "empty":
                collected.end(value)
            elif value in _HIDDEN:
                hidden = value
    return collected.result(offset)


def _says_xml(page: str) -> bool:
    """Whether a page has a declaration of XML, or the namespace of XHTML."""
    root = next((found[1] for found in _ROOT.finditer(page) if found[1]), "")
    return _DECLARATION.match(page) is not None or _XHTML in root


class _Collected:
    """Text in blocks, with white space as a browser shows it."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._breaks = 0  # line breaks due before the next text
        self._space = ""  # between words
        self._pre = False
        self._in_title = False
        self._title: list[str] = []
        self._heading: tuple[int, int] | None = None  # level, position
        self._headings: list[Heading] = []

    def add_text(self, text: str) -> None:
        """Add text of the current block."""
        if self._in_title:
            self._title.append(text)
            return
        if self._pre:
            self._append(text.replace("\r\n", "\n"))
            return
        words = _SPACE.sub(" ", text)
        if words.startswith(" ") and not self._space:
            self._space = " "
        if core := words.strip(" "):
            self._append(core)
            self._space = " " if words.endswith(" ") else ""

    def start(self, name: str) -> None:
        """Begin an element."""
        if name in _LINE_BREAKS:
            self._end_block(name)
        if _HEADING.fullmatch(name):
            self._heading = (int(name[1]), -1)
        self._pre = self._pre or name == "pre"
        self._in_title = name == "title"

    def end(self, name: str) -> None:
        """End an element."""
        self._in_title = False
        if name in _LINE_BREAKS:
            self._end_block(name)
        if name == "pre":
            self._pre = False

    def result(self, offset: int) -> FileText:
        """Return what was collected."""
        self._end_heading()
        title = " ".join(printable("".join(self._title)).split())
        headings = tuple(Heading(level, start + offset, end + offset) for level, start, end in self._headings)
        return FileText("".join(self._parts), title, Outline(headings=headings))

    def _append(self, text: str) -> None:
        text = printable(text)
        if not text:
            return
        if self._parts:
            between = "\n" * self._breaks or self._space
            self._parts.append(between)
            self._length += len(between)
        if self._heading and self._heading[1] < 0:
            self._heading = (self._heading[0], self._length)
        self._breaks, self._space = 0, ""
        self._parts.append(text)
        self._length += len(text)

    def _end_block(self, name: str) -> None:
        self._end_heading()
        if name in _CELLS:
            self._space = "\t"
        else:
            self._breaks = max(self._breaks, _LINE_BREAKS[name])
            self._space = ""

    def _end_heading(self) -> None:
        if self._heading and 0 <= self._heading[1] < self._length <= self._heading[1] + _MAX_HEADING:
            self._headings.append(Heading(self._heading[0], self._heading[1], self._length))
        self._heading = None
