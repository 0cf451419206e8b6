"""Mail: messages (``.eml``) and mailboxes (``.mbox``), parsed by the standard library within bounds of our own.

Without them it takes quadratic time for long headers, and memory without end for many parts.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, a2b_qp
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import suppress
from email.message import Message
from email.parser import BytesParser
from email.policy import Compat32
from email.utils import parsedate_to_datetime
from itertools import chain, count, islice
from typing import NamedTuple

from quarry.readers.files.characters import decoded, decoded_as, decoded_page, is_utf8
from quarry.readers.files.file_text import FileText, UnreadableError, printable
from quarry.readers.files.html_text import MAX_TAGS, text_of_html

__all__ = ["read_mailbox", "read_message"]

_SEPARATOR = re.compile(rb"(?:\A|\r?\n\r?\n)From [^\r\n]*\r?\n")
_BLANK_LINE = re.compile(rb"\n\r?\n")
_QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)
_MAX_BYTES = 64 << 20  # of a message; providers accept less
_MAX_MESSAGES = 100_000
_MAX_PARTS = 1000
_MAX_MULTIPARTS = 100
_MAX_STEPS = 10_000_000
_MAX_LINES = 20_000  # that may be between parts
_MAX_HEADERS = 20_000
_MAX_HEADER = 4000  # characters; the library takes quadratic time for long ones
_MAX_ADDRESSES = 2000  # characters
_MAX_NAMES = 4000  # characters of the names of attachments, so that they fit into the metadata
_WORD = re.compile(r"=\?([^?\s]+)\?([bq])\?(.*?)(?:\?=|\Z)", re.IGNORECASE | re.DOTALL)  # perhaps cut off
_NO_BASE64 = re.compile(rb"[^A-Za-z0-9+/=]+")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks


class _BoundedHeaders(Compat32):
    """Rules of parsing by which headers are kept as they are, but cut off, and not too many of them are read.

    Attributes:
        counter: counts the headers of one message.
    """

    counter: count[int] = count()

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        """Return name and value of a header."""
        if next(self.counter) >= _MAX_HEADERS:
            raise UnreadableError(f"has more than {_MAX_HEADERS} headers")
        name, value = super().header_source_parse(sourcelines)
        return name, value[:_MAX_HEADER]

    def header_fetch_parse(self, name: str, value: str) -> str:
        """Return a header as it was read, with a surrogate for each byte that is not ASCII."""
        return value


def read_message(content: bytes, max_bytes: int = _MAX_BYTES, max_tags: int = MAX_TAGS) -> FileText:
    """Make the document of one message: its subject is the title, sender, recipients and date are metadata.

    The text is that of its parts in order; of alternatives the last plain one, or the last one if none is plain.
    The subjects of messages in it are text too. Attachments are left out, and named in the metadata; their names
    are the text of a message with nothing else.

    Raises:
        UnreadableError: it has no header that a message has, is larger than `max_bytes`, or has too many parts, or
            more than `max_tags` tags.
    """
    message = _parsed(_without_mark(content), max_bytes)
    if not any(name in message for name in ("from", "to", "subject", "date", "message-id")):
        raise UnreadableError("is not a message: it has no header From, To, Subject, Date or Message-ID")
    parts = _Parts(max_tags)
    text = printable("\n\n".join(part.text.strip("\n") for part in parts.texts(message)))
    label = _charset(message)
    title = _header(message, "subject", label)
    metadata: dict[str, object] = {name: _header(message, name, label) for name in ("from", "to", "cc")}
    with suppress(TypeError, ValueError, IndexError):
        metadata["date"] = parsedate_to_datetime(_header(message, "date")).isoformat()
    metadata["attachments"] = parts.attachments
    known = {name: value for name, value in metadata.items() if value}
    return FileText(text if text.strip() or title else "\n".join(parts.attachments), title, metadata=known)


def read_mailbox(content: bytes, max_messages: int = _MAX_MESSAGES) -> Iterator[FileText]:
    """Make the documents of a mailbox (mboxrd, RFC 4155): one for each message, named by its number.

    Raises:
        UnreadableError: the file does not begin with a message, or has more than `max_messages`.
    """
    content = _without_mark(content)
    if content.strip() and not content.startswith(b"From "):
        raise UnreadableError("is not a mailbox: it does not begin with 'From '")
    separators = list(islice(_SEPARATOR.finditer(content), max_messages + 1))
    if len(separators) > max_messages:
        raise UnreadableError(f"has more than {max_messages} messages: divide it into several files")
    ends = [*(each.start() for each in separators[1:]), len(content)][: len(separators)]
    for number, (separator, end) in enumerate(zip(separators, ends, strict=True), 1):
        raw = _QUOTED.sub(rb"\1", content[separator.end() : end])
        message = read_message(raw)
        yield FileText(message.text, message.title, part=f"message {number}", metadata=message.metadata)


def _without_mark(content: bytes) -> bytes:
    """Return the bytes without a byte order mark, and empty lines, before the first header."""
    if content.startswith(_UTF16):
        content = decoded(content).encode()
    return content.removeprefix(BOM_UTF8).lstrip(b"\r\n")


def _parsed(content: bytes, max_bytes: int = _MAX_BYTES) -> Message:
    _check_size(content, max_bytes)
    policy = _BoundedHeaders(counter=count())  # type: ignore[call-arg]  # types know no attributes of subclasses
    return BytesParser(policy=policy).parsebytes(content)


def _check_size(content: bytes, max_bytes: int) -> None:
    """Raise UnreadableError for a message that the parser would take too long for."""
    if len(content) > max_bytes:
        raise UnreadableError(f"is a message of more than {max_bytes} bytes")
    lower = content.lower()
    n_levels = lower.count(b"multipart/")
    if n_levels > _MAX_MULTIPARTS or n_levels * content.count(b"\n") > _MAX_STEPS:  # each level looks at each line
        raise UnreadableError(f"has too many multipart contents: {n_levels}")
    is_divided = b"multipart/" in lower and content.count(b"\n--") > _MAX_LINES
    # Of a delivery status each paragraph is a message of its own.
    if is_divided or (b"delivery-status" in lower and len(_BLANK_LINE.findall(content)) > _MAX_LINES):
        raise UnreadableError(f"has more than {_MAX_LINES} lines between parts")


class _Text(NamedTuple):
    text: str
    is_page: bool


class _Parts:
    """Reads the parts of one message, and counts them and their tags.

    Attributes:
        attachments: the names of those that were left out, or their types if they have none.
    """

    def __init__(self, max_tags: int) -> None:
        self.attachments: list[str] = []
        self._n_parts = 0
        self._max_tags = self._tags_left = max_tags
        self._names_left = _MAX_NAMES

    def texts(self, part: Message) -> list[_Text]:
        """Return the texts in a part that are not blank."""
        self._n_parts += 1
        if self._n_parts > _MAX_PARTS:
            raise UnreadableError(f"has more than {_MAX_PARTS} parts")
        if not part.is_multipart():
            text = self._own_text(part)
            return [text] if text and text.text.strip() else []
        alternatives = []
        for each in _inside(part):
            is_left_out = each.is_multipart() and each.get_content_disposition() == "attachment"
            texts = self._name(each) if is_left_out else self.texts(each)
            label = each.get_content_charset() or "utf-8"
            if part.get_content_type() == "message/rfc822" and (subject := _header(each, "subject", label)):
                texts = [_Text(subject, is_page=False), *texts]
            if texts:
                alternatives.append(texts)
        if part.get_content_type() == "multipart/alternative":
            plain = [texts for texts in alternatives if not any(text.is_page for text in texts)]
            alternatives = (plain or alternatives)[-1:]
        return list(chain.from_iterable(alternatives))

    def _own_text(self, part: Message) -> _Text | None:
        kind = part.get_content_type()
        if part.get_content_maintype() == "multipart":  # without a part: its boundary is missing, or another one
            kind = "text/plain"
        if kind not in {"text/plain", "text/html"} or part.get_content_disposition() == "attachment":
            self._name(part)
            return None
        text = _characters(_content(part), part.get_content_charset(), kind == "text/html")
        if kind == "text/plain":
            return _Text(text, is_page=False)
        self._tags_left -= text.count("<")
        if self._tags_left < 0:
            raise UnreadableError(f"has more than {self._max_tags} tags")
        return _Text(text_of_html(text).text, is_page=True)

    def _name(self, part: Message) -> list[_Text]:
        """Note that a part is left out; return that it has no texts."""
        name = _file_name(part)[: self._names_left]
        self._names_left -= len(name)
        self.attachments += [name] if name else []
        return []


def _inside(part: Message) -> list[Message]:
    """The parts of a multipart, or the message in a part, which may be encoded though the standard forbids it."""
    payload = part.get_payload()
    assert isinstance(payload, list)
    parts = [each for each in payload if isinstance(each, Message)]
    if (
        part.get_content_type() == "message/rfc822"
        and _transfer_encoding(part) == "base64"
        and not parts[0].keys()
    ):
        parts[0]["Content-Transfer-Encoding"] = "base64"
        return [_parsed(_content(parts[0]))]
    return parts


def _transfer_encoding(part: Message) -> str:
    return str(part.get("content-transfer-encoding", "")).strip().lower()


def _content(part: Message) -> bytes:
    """The bytes of a part."""
    is_base64 = _transfer_encoding(part) == "base64"
    if is_base64:  # the library returns the letters themselves if some are missing
        part.replace_header("content-transfer-encoding", "binary")
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    return _from_base64(content) if is_base64 else content


def _from_base64(letters: bytes) -> bytes:
    """Decode up to the first padding; a byte that is not whole is left out."""
    digits = _NO_BASE64.sub(b"", letters).partition(b"=")[0]
    whole = digits[: len(digits) - (len(digits) % 4 == 1)]
    return a2b_base64(whole + b"=" * (-len(whole) % 4))


def _file_name(part: Message) -> str:
    """The name of an attachment (RFC 2231, or encoded words, which are common); its type if it has none."""
    name = None
    for parameter, header in (("filename", "content-disposition"), ("name", "content-type")):
        with suppress(Exception):  # the library's parser of parameters raises many kinds of errors on broken ones
            name = name or part.get_param(parameter, header=header)
    if isinstance(name, tuple):
        text = decoded_as(name[2].encode("latin-1", "replace"), name[0] or "utf-8")
    else:
        text = _readable(name or "")
    return _in_one_line(text) or part.get_content_type()


def _characters(content: bytes, charset: str | None, is_page: bool) -> str:
    """The text of a part; a page without a label, or with the usual one of ASCII, is labelled by itself."""
    text = None
    if is_page and charset in (None, "us-ascii"):
        with suppress(UnreadableError):  # it has zeros
            text = decoded_page(content)
    return (decoded_as(content, charset or "utf-8") if text is None else text).replace("\0", "")


def _charset(message: Message) -> str:
    """The encoding of the first part that names one; "utf-8" if none does."""
    return next(filter(None, (part.get_content_charset() for part in message.walk())), "utf-8")


def _header(message: Message, name: str, label: str = "utf-8") -> str:
    """A header in one line, its bytes in UTF-8 or the encoding of this label; "" when it is missing."""
    return _in_one_line(_readable(message.get(name, ""), label))[:_MAX_ADDRESSES]


def _in_one_line(text: str) -> str:
    return " ".join(printable(text).split())


def _readable(header: str, label_of_bytes: str = "utf-8") -> str:
    """Decode a header: bytes that are not ASCII, and encoded words (RFC 2047).

    Words that follow each other in one encoding are decoded together, since letters may be divided between them.
    """
    raw = header.encode("utf-8", "surrogateescape")
    text = decoded_as(raw, "utf-8" if is_utf8(raw) else label_of_bytes)
    pieces: list[tuple[str, bytes]] = []
    end = 0
    is_after_word = False
    for word in _WORD.finditer(text):
        label, encoding, letters = word.groups()
        label = label.partition("*")[0].lower()  # without a language
        between = text[end : word.start()]
        encoded = letters.encode()
        content = _from_base64(encoded) if encoding in "bB" else a2b_qp(encoded, header=True)
        if is_after_word and not between.strip():
            between = ""
            if pieces[-1][0] == label:
                content = pieces.pop()[1] + content
        pieces += [("utf-8", between.encode()), (label, content)] if between else [(label, content)]
        end, is_after_word = word.end(), True
    pieces.append(("utf-8", text[end:].encode()))
    return "".join(decoded_as(content, label) for label, content in pieces)
