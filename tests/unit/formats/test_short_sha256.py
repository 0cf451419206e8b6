"""SHA-256 of a few bytes is SHA-256, wherever it comes from."""

from __future__ import annotations

import hashlib
import sys

import pytest

from formats.short_sha256 import short_sha256


@pytest.mark.parametrize("n_bytes", [0, 1, 55, 56, 64, 1000])
def test_the_digest_is_that_of_hashlib(n_bytes: int) -> None:
    content = bytes(range(250)) * 4
    assert short_sha256(content[:n_bytes]) == hashlib.sha256(content[:n_bytes]).hexdigest()


def test_where_python_has_none_of_its_own_it_is_that_of_hashlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_sha2", "_sha256"):
        monkeypatch.setitem(sys.modules, name, None)
    assert short_sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
