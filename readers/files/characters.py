"""How bytes become characters: webencodings knows the labels, and own code keeps a wrong byte from costing others.

Codecs of Python lack characters that decoders of the WHATWG Encoding Standard have; `_extended` adds them.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

import webencodings

from quarry.readers.files.file_text import UnreadableError

__all__ = ["codec_of", "decoded", "decoded_as", "decoded_page", "decoded_source", "is_utf8"]

_MARKS = (  # the longer ones first: one of UTF-32 begins with one of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_UTF16_DECLARATIONS = {b"<\0?\0x\0": "utf-16-le", b"\0<\0?\0x": "utf-16-be"}
_BINARY_BYTES = 8 << 10  # of the beginning, searched for zeros
_REFUSED = frozenset(  # the first two take quadratic time, and no text of a file is written in any
    {"idna", "punycode", "utf-7", "unicode_escape", "unicode-escape", "raw_unicode_escape", "raw-unicode-escape"}
)
_NO_CODECS = frozenset({"replacement", "x-user-defined"})  # of the standard; some have one in Python
_SUPERSETS = {"gbk": "gb18030", "iso-2022-jp": "iso2022_jp_ext"}  # which the standard's decoders are
_CODE_PAGE = re.compile(r"(?:x-)?(?:windows|win|ibm|cp|ms|ccsid|dos)?[-_ ]?0*(\d{3,5})")
_NO_LETTER = re.compile(r"[\W_]")
_OTHER_LABELS = {  # without punctuation; of the standard, then of Windows and old programs
    **{_NO_LETTER.sub("", label): label for label in webencodings.LABELS},
    "big5eten": "big5",
    "cngb": "gbk",
    "cp10000": "macintosh",
    "cp10007": "x-mac-cyrillic",
    "cp20866": "koi8-r",
    "cp21866": "koi8-u",
    "cp50220": "iso-2022-jp",
    "cp51932": "euc-jp",
    "cp51949": "euc-kr",
    "cp54936": "gb18030",
    "eucjpwin": "euc-jp",
    "macce": "mac-latin2",
    "macicelandic": "mac-iceland",
    "sjiswin": "shift_jis",
}
_LINE_BREAK = re.compile("\r\n?")
_NOT_ASCII = bytes(range(128, 256))
_WINDOWS_1252 = {0xDC00 + byte: bytes([byte]).decode("cp1252", "replace") for byte in _NOT_ASCII}
_MOST_ARE_BAD = (
    10  # bad bytes for each letter of UTF-8: then that letter is chance, as "ß" before a quotation mark
)
_MAX_EXTENDED = 10_000  # characters that Python's codec lacks: each takes a call
_CUT = frozenset(
    {"incomplete multibyte sequence", "truncated data", "unexpected end of data"}
)  # reasons of errors
_LABEL = rb"""\s*=\s*["']?\s*([\w.:+-]{1,40})"""
_XML_LABEL = re.compile(rb"\s*<\?xml[^>]{0,200}?\sencoding" + _LABEL)
_META_LABEL = re.compile(rb"<meta[^>]{0,200}charset" + _LABEL, re.IGNORECASE)
_SOURCE_LABEL = re.compile(  # of Python (PEP 263), of editors, and of CSS
    rb"""(?:[^\n]*\n)?[^\n]{0,200}?coding[:=][ \t]*([\w.-]{1,40})|@charset "([\w.:+-]{1,40})";"""
)
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_LABEL_BYTES = 64 << 10  # of the beginning; the standard says 1024, but browsers read again for a later one


def decoded(content: bytes) -> str:
    """Decode the bytes of a text file; every line ends with a line feed.

    UTF-8, or what a byte order mark says. Bytes that are not valid UTF-8 are read as Windows-1252, others too if
    nearly all are not valid; a letter that the end of the file cuts is left out.

    Raises:
        UnreadableError: the file has zero bytes, as only binary files have.
    """
    if (marked := _decoded_by_mark(content)) is not None:
        return marked
    if b"\0" in content[:_BINARY_BYTES]:
        raise UnreadableError("is a binary file, and was expected to hold text")
    return _with_line_feeds(_decoded_utf8(content))


def decoded_as(content: bytes, label: str) -> str:
    """Decode bytes whose encoding is named; a byte order mark counts more.

    Under a label that is not known, and under that of ASCII, bytes are read as in `decoded`, zeros included. Those
    that are not valid in their encoding are read as UTF-8 if all of them are, and else replaced by U+FFFD.
    """
    if (marked := _decoded_by_mark(content)) is not None:
        return marked
    codec = codec_of(label) or "utf-8"
    return _with_line_feeds(_decoded_utf8(content) if codec == "utf-8" else _decoded_by(content, codec))


def decoded_page(content: bytes, is_xml: bool = False) -> str:
    """Decode a page of HTML, or XML, by what it declares; without a declaration as in `decoded`.

    Args:
        content: the page.
        is_xml: an element ``meta`` counts only if the bytes are not UTF-8.

    Raises:
        UnreadableError: it is a binary file.
    """
    if encoding := _UTF16_DECLARATIONS.get(content[:6]):
        return _with_line_feeds(_without_cut_letter(content, encoding))
    head = content[:_LABEL_BYTES]
    declaration = _XML_LABEL.match(head)
    if declaration is None and not (is_xml and is_utf8(content)):
        declaration = _META_LABEL.search(_COMMENT.sub(b"", head))
    label = declaration[1].decode("ascii", "replace") if declaration else ""
    codec = codec_of(label)
    if codec is None or not _reads_ascii(codec):  # such as UTF-16: its declaration could not have been read
        return decoded(content)
    return decoded_as(content, label)


def decoded_source(content: bytes) -> str:
    """Decode source code: if it is not UTF-8, by what its first two lines declare, and else as in `decoded`.

    Raises:
        UnreadableError: it is a binary file.
    """
    text = decoded(content)
    declaration = None if is_utf8(content) else _SOURCE_LABEL.match(content[:_LABEL_BYTES])
    if declaration is None:
        return text
    return decoded_as(content, (declaration[1] or declaration[2]).decode("ascii", "replace"))


def codec_of(label: str) -> str | None:
    """Return the name of Python's codec for a label of an encoding; None if it is not known.

    Labels are those of the WHATWG Encoding Standard, and others of Python and Windows; each means the superset
    that the standard says: gb2312 is GB18030, iso-8859-1 is Windows-1252. ASCII is UTF-8.
    """
    python_codec = None
    for name in _names(label.encode("ascii", "ignore").decode().strip(" \t\r\n\f\"'\0").lower()):
        own = _python_codec(name)
        if own == "ascii":
            return "utf-8"
        encoding = webencodings.lookup(name) or webencodings.lookup((own or "").replace("_", "-"))
        if encoding is not None and encoding.name not in _NO_CODECS:
            return _SUPERSETS.get(encoding.name) or str(encoding.codec_info.name)
        python_codec = python_codec or own
    return python_codec


def _names(label: str) -> Iterator[str]:
    yield label
    letters = _NO_LETTER.sub("", label)
    if letters not in _OTHER_LABELS:  # registered aliases begin with "cs", unregistered names with "x"
        letters = letters.removeprefix("cs").removeprefix("x")
    for name in (label, letters):
        if page := _CODE_PAGE.fullmatch(name):
            yield f"cp{page[1]}"
            yield _OTHER_LABELS.get(f"cp{page[1]}", "")
    yield _OTHER_LABELS.get(letters, letters)


def _python_codec(name: str) -> str | None:
    try:
        codec = codecs.lookup(name).name
        b"a".decode(codec, "ignore")  # fails for what makes no text
    except (LookupError, ValueError):
        return None
    return None if codec in _REFUSED or codec == "undefined" else codec


def _reads_ascii(codec: str) -> bool:
    return b"charset".decode(codec, "replace") == "charset"


def is_utf8(content: bytes) -> bool:
    """Return whether bytes are valid UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decoded_by_mark(content: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            rest = content[len(mark) :]
            text = _decoded_utf8(rest) if encoding == "utf-8" else _without_cut_letter(rest, encoding)
            return _with_line_feeds(text)
    return None


def _decoded_utf8(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        valid = content.decode("utf-8", "ignore")
    n_letters = len(valid) - len(content.translate(None, _NOT_ASCII))
    n_bad = len(content) - len(valid.encode())
    if n_bad > _MOST_ARE_BAD * n_letters:
        return content.decode("cp1252", "replace")
    if n_bad == len(content) - codecs.utf_8_decode(content, "ignore")[1]:  # only the beginning of a last letter
        return valid
    return content.decode("utf-8", "surrogateescape").translate(_WINDOWS_1252)


def _decoded_by(content: bytes, codec: str) -> str:
    try:
        return content.decode(codec)
    except UnicodeDecodeError:
        if is_utf8(content) and not content.isascii():
            return content.decode()
    return _without_cut_letter(content, codec)


def _without_cut_letter(content: bytes, codec: str) -> str:
    text = content.decode(codec, "replace")
    return text if text.count("\ufffd") > _MAX_EXTENDED else content.decode(codec, "quarry_extended")


def _extended(error: UnicodeError) -> tuple[str, int]:
    """Return a character that a codec of Python lacks and the standard's decoder has; U+FFFD if there is none.

    Nothing is returned for a letter that the end of the file cuts.
    """
    assert isinstance(error, UnicodeDecodeError)
    pair = error.object[error.start : error.start + 2]
    if error.encoding == "gb18030" and pair[:1] == b"\x80":
        return "€", error.start + 1
    if error.encoding == "big5hkscs" and pair == b"\xa3\xe1":
        return "€", error.start + 2
    if error.encoding in {"euc_jp", "iso2022_jp_ext"} and len(pair) == 2:
        row, cell = (byte & 0x7F for byte in pair)
        if 0x21 <= row <= 0x7E and 0x21 <= cell <= 0x7E:  # rows of NEC and IBM, as Shift JIS has them
            lead = (row + 1) // 2 + (0x70 if row <= 0x5E else 0xB0)
            trail = cell + (0x7E if row % 2 == 0 else 0x1F if cell < 0x60 else 0x20)
            text = bytes([lead, trail]).decode("cp932", "ignore")
            if len(text) == 1:
                return text, error.start + 2
    return "" if error.reason in _CUT else "\ufffd", error.end


codecs.register_error("quarry_extended", _extended)


def _with_line_feeds(text: str) -> str:
    return _LINE_BREAK.sub("\n", text) if "\r" in text else text
