"""Access to a server: keys, hosts and origins."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from quarry.formats.errors import InvalidSetting

__all__ = ["LOOPBACK_HOSTS", "Access"]

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""The names under which a server on this machine is reached from it."""

ANY_HOST = "*"
_MIN_KEY_CHARACTERS = 16
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
