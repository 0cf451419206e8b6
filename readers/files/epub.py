"""Books in EPUB 2 and 3: their chapters in reading order, with headings."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from quarry.engine.documents.document import MAX_TEXT_CHARACTERS
from quarry.engine.documents.outline import Heading, Outline
from quarry.readers.files.characters import decoded_page
from quarry.readers.files.file_text import FileText, UnreadableError, printable
from quarry.readers.files.html_text import MAX_TAGS, text_of_html
from quarry.readers.files.zipped import Archive, parse_xml

__all__ = ["read_epub"]

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_BETWEEN = "\n\n"
_PAGES = ("application/xhtml+xml", "text/html")


def read_epub(content: bytes, max_tags: int = MAX_TAGS, max_characters: int = MAX_TEXT_CHARACTERS) -> FileText:
    """Make the document of a book, of at most so many tags and characters in all chapters together.

    Raises:
        UnreadableError: it is damaged, protected or no such file.
    """
    archive = Archive(content)
    package = _package_path(archive)
    title, chapters = _read_package(archive.read(package))
    parts: list[str] = []
    headings: list[Heading] = []
    position, tags_left = 0, max_tags
    for chapter in chapters:
        name = archive.member(posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(chapter))))
        try:
            page = decoded_page(archive.read(name), is_xml=True)
        except UnreadableError as error:
            hint = "; the book is encrypted" if _ENCRYPTION in archive else ""
            raise UnreadableError(f"has a chapter {name[:200]!r} that cannot be read: {error}{hint}") from error
        tags_left -= page.count("<")
        if tags_left < 0:
            raise UnreadableError(f"has more than {max_tags} tags up to chapter {name[:200]!r}")
        read = text_of_html(page, position, is_xml=True)
        parts.append(read.text)
        headings += read.outline.headings
        position += len(read.text) + len(_BETWEEN)
        if position > max_characters:
            raise UnreadableError(f"has more than {max_characters} characters up to chapter {name[:200]!r}")
    return FileText(_BETWEEN.join(parts), title, Outline(headings=tuple(headings)))


def _package_path(archive: Archive) -> str:
    paths: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if name == "rootfile" and "full-path" in attributes:
            paths.append(attributes["full-path"])

    parse_xml(archive.read(_CONTAINER), start)
    if not paths:
        raise UnreadableError("is not a book: its container names no package")
    return archive.member(paths[0])


def _read_package(content: bytes) -> tuple[str, list[str]]:
    """The title of the book, and the paths of its chapters in reading order."""
    paths: dict[str, str] = {}
    order: list[str] = []
    titles: list[list[str]] = []
    inside = False

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal inside
        inside = name == "title"
        if inside:
            titles.append([])
        elif name == "item" and attributes.get("media-type") in _PAGES:
            paths[attributes.get("id", "")] = attributes.get("href", "")
        elif name == "itemref":
            order.append(attributes.get("idref", ""))

    def end(_: str) -> None:
        nonlocal inside
        inside = False

    def text(piece: str) -> None:
        if inside:
            titles[-1].append(piece)

    parse_xml(content, start, end, text)
    title = " ".join(printable("".join(titles[0])).split()) if titles else ""
    return title, list(dict.fromkeys(paths[each] for each in order if each in paths))
