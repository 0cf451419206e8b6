"""Mail: single messages (``.eml``) and mailboxes (``.mbox``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from email.utils import parsedate_to_datetime

from quarry.engine.documents.files.file_text import FileText, UnreadableError, decoded, printable
from quarry.engine.documents.files.html_text import read_html

__all__ = ["read_mailbox", "read_message"]

_SEPARATOR = re.compile(rb"(?:\A|\r?\n\r?\n)From [^\r\n]*\r?\n")
_QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)
_MAX_PARTS = 1000
_MAX_MULTIPARTS = 100
_MAX_ADDRESSES = 2000  # characters


def read_message(content: bytes) -> FileText:
    """Make the document of one message: its subject is the title, sender, recipients and date are metadata.

    The text is the plain one, or that of the HTML part if there is no plain one; attachments are left out.

    Raises:
        UnreadableError: it has no header that a message has, or too many parts.
    """
    if content.lower().count(b"multipart/") > _MAX_MULTIPARTS:  # the parser takes quadratic time for nested ones
        raise UnreadableError(f"has more than {_MAX_MULTIPARTS} multipart contents")
    message = BytesParser(policy=policy.default).parsebytes(content)
    assert isinstance(message, EmailMessage)
    if not any(name in message for name in ("from", "to", "subject", "date", "message-id")):
        raise UnreadableError("is not a message: it has no header From, To, Subject, Date or Message-ID")
    text = _text_of(message)
    metadata = {name: _header(message, name) for name in ("from", "to", "cc")}
    with suppress(TypeError, ValueError, IndexError):
        metadata["date"] = parsedate_to_datetime(_header(message, "date")).isoformat()
    known = {name: value for name, value in metadata.items() if value}
    return FileText(text, _header(message, "subject"), metadata=known)


def read_mailbox(content: bytes) -> Iterator[FileText]:
    """Make the documents of a mailbox (mboxrd, RFC 4155): one for each message, named by its number.

    Raises:
        UnreadableError: the file does not begin with a message.
    """
    if content.strip() and not content.startswith(b"From "):
        raise UnreadableError("is not a mailbox: it does not begin with 'From '")
    found = list(_SEPARATOR.finditer(content))
    ends = [*(each.start() for each in found[1:]), len(content)][: len(found)]
    for number, (separator, end) in enumerate(zip(found, ends, strict=True), 1):
        raw = _QUOTED.sub(rb"\1", content[separator.end() : end])
        message = read_message(raw)
        yield FileText(message.text, message.title, part=f"message {number}", metadata=message.metadata)


def _text_of(message: EmailMessage) -> str:
    plain: list[str] = []
    pages: list[str] = []
    for number, part in enumerate(message.walk()):
        if number >= _MAX_PARTS:
            raise UnreadableError(f"has more than {_MAX_PARTS} parts")
        if part.is_multipart() or part.get_content_disposition() == "attachment":
            continue
        kind = part.get_content_type()
        if kind in {"text/plain", "text/html"}:
            content = part.get_payload(decode=True)
            content = content if isinstance(content, bytes) else b""
            charset = part.get_content_charset()
            if kind == "text/plain":
                plain.append(_characters(content, charset))
            else:
                pages.append(read_html(_characters(content, charset).encode("utf-8", "replace")).text)
    texts = plain if any(text.strip() for text in plain) else pages
    return printable("\n\n".join(text.strip("\n") for text in texts))


def _characters(content: bytes, charset: str | None) -> str:
    try:
        return content.decode(charset or "utf-8").replace("\r\n", "\n")
    except (LookupError, UnicodeError):
        return decoded(content.replace(b"\0", b""))


def _header(message: EmailMessage, name: str) -> str:
    """A header in one line; "" when it is missing or cannot be parsed."""
    try:
        value = str(message.get(name, ""))
    except Exception:  # the library's parser of headers raises many kinds of errors on broken ones
        return ""
    clean = value.encode("utf-8", "replace").decode()
    return " ".join(printable(clean).split())[:_MAX_ADDRESSES]
