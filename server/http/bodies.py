"""Bodies of requests, read with limits of size and time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path

from starlette.requests import ClientDisconnect, Request

from quarry.formats.errors import InvalidDocument, QuarryError
from quarry.server.http.failures import RequestError

__all__ = ["NDJSON_TYPES", "read_body", "received_file"]

JSON_TYPES = ("application/json",)
NDJSON_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
_BUFFER_BYTES = 1 << 20  # written to the file at a time
_log = logging.getLogger(__name__)


async def read_body(request: Request, max_bytes: int, timeout_s: float) -> bytes:
    """Read a body of JSON.

    Args:
        request: the request.
        max_bytes: its largest size.
        timeout_s: seconds in which all of it must arrive.

    Raises:
        RequestError: 408, it arrives too slowly; 413, it is too long; 415, it is of another type; 400, the client
            has gone before its end.
    """
    _check_type(request, JSON_TYPES)
    _check_length(request, max_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for part in request.stream():
                body += part
                if len(body) > max_bytes:
                    raise _too_long(max_bytes)
    except TimeoutError:
        raise _too_slow(f"all of it within {timeout_s} seconds") from None
    except ClientDisconnect:
        raise _cut_off() from None
    return bytes(body)


@contextlib.asynccontextmanager
async def received_file(request: Request, max_bytes: int, timeout_s: float) -> AsyncIterator[Path]:
    """Write a body of JSON or JSON Lines to a temporary file, deleted at the end.

    So neither memory nor a lock is held while a client sends.

    Args:
        request: the request.
        max_bytes: the largest size of the body.
        timeout_s: seconds in which the next part of it must arrive.

    Raises:
        RequestError: as `read_body`; 507, the file cannot be written.
        InvalidDocument: that of the block, without the path of the file.
    """
    is_json = _check_type(request, (*NDJSON_TYPES, *JSON_TYPES)) in JSON_TYPES
    _check_length(request, max_bytes)
    with (
        _reporting_failures(),
        tempfile.TemporaryDirectory(prefix="quarry-", ignore_cleanup_errors=True) as folder,
    ):
        path = Path(folder) / ("body.json" if is_json else "body.jsonl")
        with path.open("wb") as file:
            n_bytes, buffer = 0, bytearray()
            async for part in _parts(request, timeout_s):
                n_bytes += len(part)
                if n_bytes > max_bytes:
                    raise _too_long(max_bytes)
                buffer += part
                if len(buffer) >= _BUFFER_BYTES:
                    await asyncio.to_thread(file.write, bytes(buffer))
                    buffer.clear()
            await asyncio.to_thread(file.write, buffer)
        try:
            yield path
        except InvalidDocument as error:  # documents are named by their file and line
            error.message = error.message.replace(f"{path}: ", "")
            raise


async def _parts(request: Request, timeout_s: float) -> AsyncIterator[bytes]:
    """Yield the parts of a body as they arrive."""
    parts = aiter(request.stream())
    while True:
        try:
            part = await asyncio.wait_for(anext(parts, None), timeout_s)
        except TimeoutError:
            raise _too_slow(f"its next part within {timeout_s} seconds") from None
        except ClientDisconnect:
            raise _cut_off() from None
        if part is None:
            return
        yield part


def _check_type(request: Request, allowed: Collection[str]) -> str:
    """Return the media type of a body, one of those that are allowed."""
    given = request.headers.get("content-type", "")
    kind, _, parameters = given.partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if kind.strip().lower() not in allowed or charset not in ("", "utf-8", "utf8"):
        raise _wrong_type("content-type", allowed, given)
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise _wrong_type("content-encoding", ["identity"], encoding)
    return kind.strip().lower()


def _wrong_type(header: str, allowed: Collection[str], given: str) -> RequestError:
    expected, shown = " or ".join(allowed), given[:60] or None
    message = f"{header} is not supported"
    return RequestError(415, "UnsupportedType", message, field=header, expected=expected, found=shown)


def _check_length(request: Request, max_bytes: int) -> None:
    given = request.headers.get("content-length", "0")
    if not (given.isascii() and given.isdecimal()):  # only some servers check it
        message, field = "content-length is not a number", "content-length"
        raise RequestError(
            400, "InvalidHeader", message, field=field, expected="a number of bytes", found=given[:30]
        )
    if len(given) > len(str(max_bytes)) or int(given) > max_bytes:
        raise _too_long(max_bytes, given[:30])


def _too_long(max_bytes: int, found: object = None) -> RequestError:
    expected = f"at most {max_bytes} bytes"
    return RequestError(413, "BodyTooLong", "the body is too long", field="body", expected=expected, found=found)


def _too_slow(expected: str) -> RequestError:
    return RequestError(408, "BodyTooSlow", "the body arrives too slowly", field="body", expected=expected)


def _cut_off() -> RequestError:
    return RequestError(400, "BodyCutOff", "the connection was closed before the end of the body", field="body")


@contextlib.contextmanager
def _reporting_failures() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, QuarryError):
            raise
        _log.exception("the documents received could not be written to a temporary file")
        raise RequestError(507, "NoSpace", "the server cannot store the documents received") from error
