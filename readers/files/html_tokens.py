"""Tags and texts of HTML, by own code because parsers of libraries take quadratic time for broken pages.

Here one pass takes linear time. The standard library's parser takes quadratic time for unclosed comments, and
parsers that build the tree of the HTML standard do for deeply nested elements (200,000 open ``<div>`` take
minutes). A text needs no tree.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

__all__ = ["Token", "html_tokens"]

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
    found = page.find(mark, start)
    return len(page) if found < 0 else found + len(mark)


def _after_tag(page: str, position: int) -> tuple[int, bool]:
    """The position after the end of a tag, which values of attributes may hide, and whether a slash ends it."""
    while found := _IN_TAG.search(page, position):
        quote, end = found.groups()
        if end:
            return found.end(), end == "/>"
        position = _after(page, quote, found.end()) if quote else found.end()
    return len(page), False


def _end_of_raw(page: str, name: str, position: int) -> int:
    """The position of the end tag of an element that has no elements in it."""
    found = re.compile(f"</{name}(?=[\\s/>])", re.IGNORECASE).search(page, position)
    return found.start() if found else len(page)
