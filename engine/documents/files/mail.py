"""Mail: single messages (``.eml``) and mailboxes (``.mbox``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from email.message import EmailMessage, Message
from email.parser import BytesParser
from email.policy import EmailPolicy
from email.utils import parsedate_to_datetime
from itertools import chain, count, islice
from typing import NamedTuple

from quarry.engine.documents.files.file_text import FileText, UnreadableError, decoded, decoded_as, printable
from quarry.engine.documents.files.html_text import MAX_TAGS, text_of_html

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


class _BoundedHeaders(EmailPolicy):
    """Rules of parsing by which headers are cut off, and not too many of them are read.

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


def read_message(content: bytes) -> FileText:
    """Make the document of one message: its subject is the title, sender, recipients and date are metadata.

    The text is that of its parts in order; of alternatives the last plain one, or the last one if none is plain.
    Attachments are left out.

    Raises:
        UnreadableError: it has no header that a message has, is too large, or has too many parts.
    """
    _check_size(content)
    policy = _BoundedHeaders(counter=count())  # type: ignore[call-overload]  # types know no attributes of subclasses
    message = BytesParser(policy=policy).parsebytes(content)
    assert isinstance(message, EmailMessage)
    if not any(name in message for name in ("from", "to", "subject", "date", "message-id")):
        raise UnreadableError("is not a message: it has no header From, To, Subject, Date or Message-ID")
    text = printable("\n\n".join(part.text.strip("\n") for part in _Parts().texts(message)))
    metadata = {name: _header(message, name) for name in ("from", "to", "cc")}
    with suppress(TypeError, ValueError, IndexError):
        metadata["date"] = parsedate_to_datetime(_header(message, "date")).isoformat()
    known = {name: value for name, value in metadata.items() if value}
    return FileText(text, _header(message, "subject"), metadata=known)


def read_mailbox(content: bytes) -> Iterator[FileText]:
    """Make the documents of a mailbox (mboxrd, RFC 4155): one for each message, named by its number.

    Raises:
        UnreadableError: the file does not begin with a message, or has too many.
    """
    if content.strip() and not content.startswith(b"From "):
        raise UnreadableError("is not a mailbox: it does not begin with 'From '")
    found = list(islice(_SEPARATOR.finditer(content), _MAX_MESSAGES + 1))
    if len(found) > _MAX_MESSAGES:
        raise UnreadableError(f"has more than {_MAX_MESSAGES} messages: divide it into several files")
    ends = [*(each.start() for each in found[1:]), len(content)][: len(found)]
    for number, (separator, end) in enumerate(zip(found, ends, strict=True), 1):
        raw = _QUOTED.sub(rb"\1", content[separator.end() : end])
        message = read_message(raw)
        yield FileText(message.text, message.title, part=f"message {number}", metadata=message.metadata)


def _check_size(content: bytes) -> None:
    """Raise UnreadableError for a message that the parser would take too long for."""
    if len(content) > _MAX_BYTES:
        raise UnreadableError(f"is a message of more than {_MAX_BYTES} bytes")
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
    """Reads the parts of one message, and counts them and their tags."""

    def __init__(self) -> None:
        self._n_parts = 0
        self._tags_left = MAX_TAGS

    def texts(self, part: Message) -> list[_Text]:
        """Return the texts in a part that are not blank."""
        self._n_parts += 1
        if self._n_parts > _MAX_PARTS:
            raise UnreadableError(f"has more than {_MAX_PARTS} parts")
        if not part.is_multipart():
            text = self._own_text(part)
            return [text] if text and text.text.strip() else []
        found = []
        for each in part.get_payload():
            assert isinstance(each, Message)
            is_left_out = each.is_multipart() and each.get_content_disposition() == "attachment"
            texts = [] if is_left_out else self.texts(each)
            if texts:
                found.append(texts)
        if part.get_content_type() == "multipart/alternative":
            plain = [texts for texts in found if not any(text.is_page for text in texts)]
            found = (plain or found)[-1:]
        return list(chain.from_iterable(found))

    def _own_text(self, part: Message) -> _Text | None:
        kind = part.get_content_type()
        if kind not in {"text/plain", "text/html"} or part.get_content_disposition() == "attachment":
            return None
        content = part.get_payload(decode=True)
        text = _characters(content if isinstance(content, bytes) else b"", part.get_content_charset())
        if kind == "text/plain":
            return _Text(text, is_page=False)
        page = text_of_html(text, max_tags=self._tags_left)
        self._tags_left -= text.count("<")
        return _Text(page.text, is_page=True)


def _characters(content: bytes, charset: str | None) -> str:
    text = decoded_as(content, charset or "utf-8")
    return decoded(content.replace(b"\0", b"")) if text is None else text.replace("\r\n", "\n")


def _header(message: EmailMessage, name: str) -> str:
    """A header in one line; "" when it is missing or cannot be parsed."""
    try:
        value = str(message.get(name, ""))
    except Exception:  # the library's parser of headers raises many kinds of errors on broken ones
        return ""
    clean = value.encode("utf-8", "replace").decode()
    return " ".join(printable(clean).split())[:_MAX_ADDRESSES]
