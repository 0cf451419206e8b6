"""Members of zip archives and events of XML, with bounds of our own: both may be made to grow without end.

zipfile and expat read them. Libraries for Word files and books build trees of whole parts on top, without a bound.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from urllib.parse import unquote
from xml.parsers import expat

from quarry.readers.files.characters import decoded_page
from quarry.readers.files.file_text import UnreadableError

__all__ = ["Archive", "parse_xml"]

_MAX_MEMBERS = 20_000
_MAX_MEMBER_BYTES = 64 << 20
_MAX_TOTAL_BYTES = 256 << 20
_MAX_DEPTH = 1000
_MAX_MARKS = 5_000_000  # tags and attributes of a document of XML
_METHODS = frozenset(
    {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
)  # those of these formats; others can take any memory
_MEMBER_MARK = b"PK\x01\x02"
_ENCRYPTED = 0x1


class Archive:
    """A zip archive in memory.

    Args:
        content: the archive.
        max_members: that it may have.
        max_member_bytes: the largest size of one member, inflated.
        max_total_bytes: the largest size of all members that are read, inflated.

    Raises:
        UnreadableError: it is not a zip archive, or has too many members.
    """

    def __init__(
        self,
        content: bytes,
        max_members: int = _MAX_MEMBERS,
        max_member_bytes: int = _MAX_MEMBER_BYTES,
        max_total_bytes: int = _MAX_TOTAL_BYTES,
    ) -> None:
        n_members = content.count(_MEMBER_MARK)  # at least: reading millions of them takes gigabytes
        if n_members > max_members:
            raise UnreadableError(f"has {n_members} members, and at most {max_members} are read")
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(content))
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
            raise UnreadableError(f"is not a zip archive: {error}") from error
        self._names = set(self._archive.namelist())
        self._of_form = {_form(name): name for name in reversed(self._archive.namelist())}
        self._max_member_bytes = max_member_bytes
        self._left = max_total_bytes

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def member(self, name: str) -> str:
        """Return the name of the member that a name means.

        Capitals make no difference in OPC, names may be escaped as in URLs, and some programs write backslashes.
        """
        return name if name in self._names else self._of_form.get(_form(name), name)

    def read(self, name: str) -> bytes:
        """Return the bytes of a member.

        Raises:
            UnreadableError: it is missing, damaged, encrypted or too large.
        """
        if name not in self._names:
            raise UnreadableError(f"has no member {name[:200]!r}")
        limit = min(self._max_member_bytes, self._left)
        try:
            info = self._archive.getinfo(name)
            if info.flag_bits & _ENCRYPTED:
                raise UnreadableError("is encrypted")
            if info.compress_type not in _METHODS:
                raise UnreadableError(f"has a member {name[:200]!r} of a compression that these files do not have")
            with self._archive.open(name) as member:
                content = member.read(limit + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError) as error:
            raise UnreadableError(f"has a damaged member {name[:200]!r}: {error}") from error
        if len(content) > limit:
            raise UnreadableError(f"has a member {name[:200]!r} of more than {limit} bytes")
        self._left -= len(content)
        return content


def _form(name: str) -> str:
    return unquote(name).replace("\\", "/").lower()


def parse_xml(
    content: bytes,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None] = lambda _: None,
    text: Callable[[str], None] = lambda _: None,
    prefixes: Mapping[str, str] = {},
    max_marks: int = _MAX_MARKS,
) -> None:
    """Parse XML and call a function for each event; names are local ones, without namespace.

    Args:
        content: the document.
        start: called with the name and attributes of an element that begins.
        end: called with the name of an element that ends.
        text: called with pieces of text.
        prefixes: by namespace, what is put before the names of its elements.
        max_marks: the most tags and attributes.

    Raises:
        UnreadableError: it is not well-formed, declares entities or attributes, is nested too deep, or has too
            many tags.
    """
    content = decoded_page(content, is_xml=True).encode()  # the parser knows few encodings
    if content.count(b"<") + content.count(b"=") > max_marks:
        raise UnreadableError(f"has XML of more than {max_marks} tags and attributes")
    parser = expat.ParserCreate("utf-8", namespace_separator=" ")
    depth = 0

    def prefixed(name: str) -> str:
        return prefixes.get(name.rpartition(" ")[0], "") + _local(name)

    def on_start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MAX_DEPTH:
            raise UnreadableError(f"has XML that is nested deeper than {_MAX_DEPTH} levels")
        start(prefixed(name), {_local(key): value for key, value in attributes.items()})

    def on_end(name: str) -> None:
        nonlocal depth
        depth -= 1
        end(prefixed(name))

    def on_declaration(*_: object) -> None:
        raise UnreadableError("has XML that declares entities or attributes")

    parser.StartElementHandler = on_start
    parser.EndElementHandler = on_end
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = parser.AttlistDeclHandler = on_declaration
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise UnreadableError(f"has XML that is not well-formed: {error}") from error


def _local(name: str) -> str:
    return name.rpartition(" ")[2]
