"""Keys: which requests may read and which may write."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from quarry.formats.errors import InvalidSetting
from quarry.formats.system_errors import access_failed
from quarry.server.http.access import Access
from quarry.server.http.failures import RequestError

__all__ = ["Need", "check_key", "find_key"]

Need: TypeAlias = Literal["nothing", "read", "write"]
"""The permission that a client needs."""

_MAX_FILE_BYTES = 4096
_ASK = {"www-authenticate": 'Bearer realm="quarry"'}


def check_key(access: Access, need: Need, authorization: str | None) -> None:
    """Check the key of a request; how long that takes does not depend on the key.

    Args:
        access: the keys of the server.
        need: what the request needs.
        authorization: value of its header Authorization, or None.

    Raises:
        RequestError: 401, there is no key, or it is neither of the server's; 403, the key or the server does not
            allow writing.
    """
    if need == "nothing":
        return
    if authorization is None:
        if need == "read" and access.is_reading_free:
            return
        if need == "write" and access.write_key is None:
            raise _read_only()
        raise _unauthorized("a key is needed")
    scheme, _, key = authorization.partition(" ")
    may_write = _is_key(key.strip(), access.write_key)
    may_read = _is_key(key.strip(), access.read_key) or may_write
    if scheme.lower() != "bearer" or not may_read:
        raise _unauthorized("the key is not valid")
    if need == "write" and not may_write:
        raise (
            _read_only()
            if access.write_key is None
            else RequestError(
                403,
                "the key does not allow writing",
                name="Forbidden",
                field="authorization",
                expected="the write key",
            )
        )


def find_key(file: Path | None, environment: Mapping[str, str], variable: str) -> str | None:
    """Return a key: the content of a file, or else the value of a variable of the environment; None without both.

    A key is no argument of a command, since other users of a machine see those.

    Args:
        file: file that has the key and nothing else, or None.
        environment: variables of the environment.
        variable: name of the variable.

    Raises:
        InvalidSetting: the file is not one with a key.
        AccessFailed: the file cannot be read.
    """
    if file is None:
        return environment.get(variable) or None
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise access_failed(error, "read", file) from error
    if len(content) > _MAX_FILE_BYTES:
        raise InvalidSetting(
            "the file is too long for one with a key", path=file, expected=f"at most {_MAX_FILE_BYTES} bytes"
        )
    try:
        return content.decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise InvalidSetting("the key is not ASCII", path=file, expected="visible ASCII characters") from error


def _is_key(given: str, key: str | None) -> bool:
    """Compare digests, which have the same length, in constant time."""
    if key is None:
        return False
    return hmac.compare_digest(_digest(given), _digest(key))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _unauthorized(message: str) -> RequestError:
    return RequestError(
        401,
        message,
        name="Unauthorized",
        field="authorization",
        expected="Bearer and a key of the server",
        headers=_ASK,
    )


def _read_only() -> RequestError:
    return RequestError(403, "the server allows no changes: it has no write key", name="ReadOnly")
