"""Bodies of requests, read below a server that checks none of the headers."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("starlette", reason="serving needs the extra server")

from starlette.requests import Request

from quarry.server.http.bodies import read_body
from quarry.server.http.failures import RequestError


def read(length: str, body: bytes = b"{}", max_bytes: int = 10) -> bytes:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", b"application/json"), (b"content-length", length.encode("latin-1"))]
    return asyncio.run(read_body(Request({"type": "http", "headers": headers}, receive), max_bytes, 5))


@pytest.mark.parametrize("length", ["0", "2", "10"])
def test_a_body_is_read_to_its_end(length: str) -> None:
    assert read(length) == b"{}"


@pytest.mark.parametrize("length", ["abc", "-2", "1.5", "", "2, 2", "\u00b2", "0x2"], ids=repr)
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(length)
    assert (caught.value.status, caught.value.field) == (400, "content-length")


@pytest.mark.parametrize(("length", "body"), [("11", b"{}"), ("9" * 5000, b"{}"), ("2", b" " * 11)])
def test_a_body_that_is_too_long_is_refused(length: str, body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        read(length, body)
    assert caught.value.status == 413
