"""Tags and texts of HTML, in one pass whose time is linear in the length of the page, however broken it is.

The standard library's parser takes quadratic time for unclosed comments, and parsers that build the tree of the
HTML standard do for deeply nested elements (200,000 open ``<div>`` take minutes). A text needs no tree.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

__all__ = ["Token", "html_tokens"]

_TAG = re.compile(r"</?([a-zA-Z][^\s/>]*)")
_IN_TAG = re.compile(r"=\s*[\"']|>")
_NAME_CHARACTERS = 64
_RAW = frozenset({"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"})
_WITH_ENTITIES = frozenset({"textarea", "title"})


class Token(NamedTuple):
    """A piece of a page.

    Attributes:
        kind: a start tag, an end tag or text.
        value: the name of the element in lower case, or the text with its entities replaced.
    """

    kind: Literal["start", "end", "text"]
    value: str


def html_tokens(page: str) -> Iterator[Token]:
    """Yield tags and texts in order; comments, declarations, attributes and unfinished tags are left out."""
    position, size = 0, len(page)
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
        position = _after_tag(page, tag.end())
        is_end = page[opening + 1] == "/"
        yield Token("end" if is_end else "start", name)
        if name in _RAW and not is_end:
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


def _after(page: str, mark: str, start: int) -> int:
    found = page.find(mark, start)
    return len(page) if found < 0 else found + len(mark)


def _after_tag(page: str, position: int) -> int:
    """The position after the end of a tag, which a quoted value of an attribute may hide."""
    while found := _IN_TAG.search(page, position):
        if found[0] == ">":
            return found.end()
        position = _after(page, found[0][-1], found.end())
    return len(page)


def _end_of_raw(page: str, name: str, position: int) -> int:
    """The position of the end tag of an element that has no elements in it."""
    found = re.compile(f"</{name}(?=[\\s/>])", re.IGNORECASE).search(page, position)
    return found.start() if found else len(page)
