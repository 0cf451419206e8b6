"""The text of HTML pages, with their headings; by own code, as parsers of libraries take quadratic time.

One pass takes linear time. The standard library's parser takes quadratic time for unclosed comments, and parsers
that build the tree of the HTML standard do for deeply nested elements (200,000 open ``<div>`` take minutes). A
text needs no tree.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from quarry.engine.documents.outline import Heading, Outline
from quarry.readers.files.characters import decoded_page
from quarry.readers.files.file_text import FileText, UnreadableError, printable

__all__ = ["MAX_TAGS", "read_html", "text_of_html"]

_TAG = re.compile(r"</?([a-zA-Z][^\s/>]*)")
_IN_TAG = re.compile(r"=\s*(?:([\"'])|[^\s\"'>][^\s>]*)|(/?>)")  # a slash may be the end of a value without quotes
_NAME_CHARACTERS = 64
_RAW = frozenset({"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"})
_WITH_ENTITIES = frozenset({"textarea", "title"})
_FOREIGN = frozenset({"svg", "math"})
_OPENED = {"start": 1, "end": -1, "empty": 0}  # elements
_ENDS_FOREIGN = re.compile(
    "b|big|blockquote|body|br|center|code|dd|div|dl|dt|em|embed|h[1-6r]|head|i|img|li|listing|menu|meta|nobr|ol|p|pre|"
    "ruby|s|small|span|strong|strike|sub|sup|table|tt|ul?|var"
)


class Token(NamedTuple):
    """A piece of a page.

    Attributes:
        kind: a start tag, an end tag, an element that is only a tag with a slash at its end, or text.
        value: the name of the element in lower case, or the text with its entities replaced.
    """

    kind: Literal["start", "end", "empty", "text"]
    value: str


def html_tokens(page: str, is_xml: bool = False) -> Iterator[Token]:
    """Yield tags and texts in order; comments, declarations, attributes and unfinished tags are left out.

    Args:
        page: HTML or XHTML.
        is_xml: a slash before the end of a tag ends any element. In HTML it does so in SVG and MathML only (HTML
            standard, 13.1.2.1).
    """
    position, size = 0, len(page)
    n_foreign = 0  # elements of SVG and MathML that are open
    while position < size:
        opening = page.find("<", position)
        if opening < 0:
            opening = size
        if opening > position:
            yield Token("text", html.unescape(page[position:opening]))
        if opening == size:
            return
        tag = _TAG.match(page, opening)
        if tag is None:
            position = _after_other(page, opening)
            if position == opening + 1:
                yield Token("text", "<")
            continue
        name = tag[1][:_NAME_CHARACTERS].lower()
        position, has_slash = _after_tag(page, tag.end())
        is_foreign = n_foreign > 0 or name in _FOREIGN
        kind: Literal["start", "end", "empty"] = "empty" if has_slash and (is_xml or is_foreign) else "start"
        kind = "end" if page[opening + 1] == "/" else kind
        yield Token(kind, name)
        n_foreign = _foreign_after(n_foreign, kind, name)
        if name in _RAW and kind == "start":
            end = _end_of_raw(page, name, position)
            content = page[position:end]
            if content:
                yield Token("text", html.unescape(content) if name in _WITH_ENTITIES else content)
            position = end


def _after_other(page: str, opening: int) -> int:
    """The position after a comment, declaration or instruction; after the "<" itself when it is none of them."""
    if page.startswith("<!--", opening):
        return _after(page, "-->", opening + 2)  # <!--> is a whole comment
    if page.startswith("<![CDATA[", opening):
        return opening + len("<![CDATA[")  # its text is text
    if page.startswith(("<!", "<?", "</"), opening):
        return _after(page, ">", opening)
    return opening + 1


def _foreign_after(n_foreign: int, kind: str, name: str) -> int:
    """Return how many elements of SVG and MathML are open after a tag; one of HTML ends all (13.2.6.5)."""
    if name in _FOREIGN:
        return max(n_foreign + _OPENED[kind], 0)
    return 0 if n_foreign and _ENDS_FOREIGN.fullmatch(name) else n_foreign


def _after(page: str, mark: str, start: int) -> int:
    place = page.find(mark, start)
    return len(page) if place < 0 else place + len(mark)


def _after_tag(page: str, position: int) -> tuple[int, bool]:
    """The position after the end of a tag, which values of attributes may hide, and whether a slash ends it."""
    while match := _IN_TAG.search(page, position):
        quote, end = match.groups()
        if end:
            return match.end(), end == "/>"
        position = _after(page, quote, match.end()) if quote else match.end()
    return len(page), False


def _end_of_raw(page: str, name: str, position: int) -> int:
    """The position of the end tag of an element that has no elements in it."""
    match = re.compile(f"</{name}(?=[\\s/>])", re.IGNORECASE).search(page, position)
    return match.start() if match else len(page)


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
    root = next((match[1] for match in _ROOT.finditer(page) if match[1]), "")
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
