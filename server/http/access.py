"""Who may do what: the keys, hosts and origins of a server."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from quarry.formats.errors import InvalidSetting
from quarry.formats.system_errors import access_failed
from quarry.server.http.failures import RequestError

__all__ = ["LOOPBACK_HOSTS", "Access", "Need", "check_key", "find_key"]

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""The names under which a server on this machine is reached from it."""

Need: TypeAlias = Literal["nothing", "read", "write"]
"""The permission that a client needs."""

ANY_HOST = "*"
_MIN_KEY_CHARACTERS = 16  # 95 bits if they are random letters and digits
_MAX_KEY_FILE_BYTES = 4096
_ASK = {"www-authenticate": 'Bearer realm="quarry"'}
_KEY = re.compile(r"[!-~]+")
_ORIGIN = re.compile(r"https?://[^/\s]+")


@dataclass(frozen=True, kw_only=True)
class Access:
    """The keys, hosts and origins that may use a server.

    Keys are sent in the header ``Authorization: Bearer KEY``.

    Attributes:
        read_key: key for searching and reading; None: no key is needed for these, unless `needs_key`.
        write_key: key for adding and deleting, and for everything else; None: nothing can be changed.
        needs_key: whether a key is needed for reading even if there is no `read_key`.
        hosts: names that the header Host may have, without the port; "*": any.
        origins: other origins whose pages may use the server (CORS), such as "https://example.org".
    """

    read_key: str | None = field(default=None, repr=False)
    write_key: str | None = field(default=None, repr=False)
    needs_key: bool = False
    hosts: tuple[str, ...] = LOOPBACK_HOSTS
    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, key in (("read_key", self.read_key), ("write_key", self.write_key)):
            _check_key(name, key)
        if self.needs_key and self.read_key is None and self.write_key is None:
            raise InvalidSetting(
                "a server that other machines can reach needs a key", expected="a read key or a write key"
            )
        object.__setattr__(self, "hosts", tuple(host.lower() for host in _checked_names("hosts", self.hosts)))
        object.__setattr__(self, "origins", tuple(_checked_names("origins", self.origins)))
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise InvalidSetting("not an origin", expected="such as https://example.org", actual=origin)

    @property
    def is_reading_free(self) -> bool:
        """Whether searching and reading need no key."""
        return self.read_key is None and not self.needs_key

    def allows_host(self, header: str) -> bool:
        """Return whether the value of a header Host names this server."""
        name = header.rpartition("]")[0] + "]" if header.startswith("[") else header.partition(":")[0]
        return ANY_HOST in self.hosts or name.lower().rstrip(".") in self.hosts


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
        if access.write_key is None:
            raise _read_only()
        message = "the key does not allow writing"
        raise RequestError(403, "Forbidden", message, field="authorization", expected="the write key")


def find_key(file: Path | None, environment: Mapping[str, str], variable: str) -> str | None:
    """Return a key: the content of a file, or else the value of a variable of the environment; None without both.

    A key is not an argument of a command, since other users of a machine see those.

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
            content = opened.read(_MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        raise access_failed(error, "read", file) from error
    if len(content) > _MAX_KEY_FILE_BYTES:
        raise InvalidSetting(
            "the file is too long for one with a key", path=file, expected=f"at most {_MAX_KEY_FILE_BYTES} bytes"
        )
    try:
        return content.decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise InvalidSetting("the key is not ASCII", path=file, expected="visible ASCII characters") from error


def _check_key(name: str, key: object) -> None:
    if key is None:
        return
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise InvalidSetting(f"{name} is not a key", expected="visible ASCII characters without spaces")
    if len(key) < _MIN_KEY_CHARACTERS:
        raise InvalidSetting(
            f"{name} is too short", expected=f"at least {_MIN_KEY_CHARACTERS} characters", actual=len(key)
        )


def _checked_names(name: str, given: object) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidSetting(f"{name} is not a list", expected="several names", actual=repr(given)[:60])
    names = list(given)
    if not all(isinstance(each, str) and each for each in names):
        raise InvalidSetting(f"{name} has an item that is not a name", expected="texts that are not empty")
    return names


def _is_key(given: str, key: str | None) -> bool:
    """Compare digests, which have the same length, in constant time."""
    if key is None:
        return False
    return hmac.compare_digest(_digest(given), _digest(key))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _unauthorized(message: str) -> RequestError:
    expected = "Bearer and a key of the server"
    return RequestError(401, "Unauthorized", message, field="authorization", expected=expected, headers=_ASK)


def _read_only() -> RequestError:
    return RequestError(403, "ReadOnly", "the server allows no changes: it has no write key")
