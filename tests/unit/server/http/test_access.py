"""Keys and hosts, and the permissions they give."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="serving needs the extra server")

from quarry.formats.errors import AccessFailed, InvalidSetting
from quarry.server.http.access import Access, check_key, find_key
from quarry.server.http.failures import RequestError
from quarry.server.limits import Limits

READ, WRITE = "the-key-for-reading", "the-key-for-writing"
FREE, READ_ONLY, OPEN, BOTH = (
    Access(),
    Access(read_key=READ),
    Access(write_key=WRITE),
    Access(read_key=READ, write_key=WRITE),
)
PUBLIC = Access(write_key=WRITE, needs_key=True)


def status(access: Access, need: str, authorization: str | None) -> int:
    try:
        check_key(access, need, authorization)  # type: ignore[arg-type]
    except RequestError as error:
        return error.status
    return 200


@pytest.mark.parametrize(
    ("access", "need", "key", "expected"),
    [
        (FREE, "nothing", None, 200),
        (FREE, "read", None, 200),
        (FREE, "write", None, 403),
        (FREE, "write", READ, 401),
        (READ_ONLY, "nothing", None, 200),
        (READ_ONLY, "read", None, 401),
        (READ_ONLY, "read", WRITE, 401),
        (READ_ONLY, "read", READ, 200),
        (READ_ONLY, "write", READ, 403),
        (OPEN, "read", None, 200),
        (OPEN, "write", None, 401),
        (OPEN, "write", READ, 401),
        (OPEN, "write", WRITE, 200),
        (BOTH, "read", WRITE, 200),
        (BOTH, "write", READ, 403),
        (BOTH, "write", WRITE, 200),
        (PUBLIC, "read", None, 401),
        (PUBLIC, "read", WRITE, 200),
    ],
)
def test_a_key_allows_what_it_is_for(access: Access, need: str, key: str | None, expected: int) -> None:
    assert status(access, need, None if key is None else f"Bearer {key}") == expected


@pytest.mark.parametrize(
    "given",
    ["", READ, f"Basic {READ}", "Bearer", "Bearer ", f"Bearer {READ}x", f"Bearer {READ[:-1]}", "Bearer \udcff"],
)
def test_a_header_that_is_no_key_allows_nothing(given: str) -> None:
    assert status(READ_ONLY, "read", given) == 401


@pytest.mark.parametrize("given", [f"Bearer {READ}", f"bearer {READ}", f"Bearer   {READ} "])
def test_the_header_may_be_written_in_several_ways(given: str) -> None:
    assert status(READ_ONLY, "read", given) == 200


@pytest.mark.parametrize(
    "given",
    [
        {"read_key": "short"},
        {"write_key": "has spaces in the middle"},
        {"read_key": "é" * 20},
        {"write_key": 1234567890123456},
        {"needs_key": True},
        {"hosts": "localhost"},
        {"hosts": ("",)},
        {"origins": ("example.org",)},
        {"origins": ("https://example.org/path",)},
    ],
)
def test_what_protects_nothing_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting):
        Access(**given)  # type: ignore[arg-type]


def test_keys_are_not_shown() -> None:
    assert READ not in repr(BOTH)
    assert WRITE not in repr(BOTH)


@pytest.mark.parametrize(
    ("header", "is_allowed"),
    [
        ("localhost", True),
        ("LOCALHOST:8000", True),
        ("localhost.:8000", True),
        ("127.0.0.1:80", True),
        ("[::1]:8000", True),
        ("[::1]", True),
        ("", False),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:8000", False),
        ("evil.example:127.0.0.1", False),
        ("[::2]:8000", False),
        ("[::1", False),
        ("::1", False),
    ],
)
def test_only_own_names_are_answered_for(header: str, is_allowed: bool) -> None:
    assert FREE.allows_host(header) is is_allowed


def test_other_names_can_be_allowed() -> None:
    assert Access(hosts=("Search.Example",)).allows_host("search.example:443")
    assert not Access(hosts=("search.example",)).allows_host("localhost")
    assert Access(hosts=("*",)).allows_host("anything")


def test_a_key_is_found_in_a_file_or_else_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{READ}\n")
    assert find_key(file, {"KEY": WRITE}, "KEY") == READ
    assert find_key(None, {"KEY": WRITE}, "KEY") == WRITE
    assert find_key(None, {"KEY": ""}, "KEY") is None
    assert find_key(None, {}, "KEY") is None


def test_a_file_without_a_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AccessFailed, match="missing"):
        find_key(tmp_path / "missing", {}, "KEY")
    file = tmp_path / "key"
    for content in (b"x" * 5000, "schlüssel".encode()):
        file.write_bytes(content)
        with pytest.raises(InvalidSetting):
            find_key(file, {}, "KEY")


@pytest.mark.parametrize(
    "given",
    [
        {"max_k": 0},
        {"timeout_s": 0},
        {"threads": 0},
        {"max_waiting": 1.5},
        {"timeout_s": float("nan")},
        {"max_k": True},
    ],
)
def test_limits_are_positive_numbers(given: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting):
        Limits(**given)  # type: ignore[arg-type]
