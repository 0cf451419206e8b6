"""``.gitignore`` files: which files and folders are left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from quarry.engine.arguments import iterator_of
from quarry.formats.errors import InvalidSetting
from quarry.formats.system_errors import access_failed
from quarry.readers.folders.glob_pattern import GlobPattern

__all__ = ["IgnoreRules"]

_NAME = ".gitignore"
_MAX_BYTES = 4 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A line of a file.

    Attributes:
        pattern: the pattern of a path relative to the folder of the file, or of a name.
        is_of_path: whether it is matched with a path, and not with a name at any depth.
        is_of_folder: whether only folders match.
        is_exception: whether what matches is not left out.
        depth: number of folders above that of the file.
    """

    pattern: GlobPattern
    is_of_path: bool
    is_of_folder: bool
    is_exception: bool
    depth: int


class IgnoreRules:
    """The rules that hold in one folder: those of its own file, and before them those of the folders above.

    Args:
        names: the path of the folder, relative to the one that the outermost file is in, in UTF-8.
        rules: in the order of reading; the last one that matches counts.
    """

    def __init__(self, names: tuple[bytes, ...] = (), rules: tuple[_Rule, ...] = ()) -> None:
        self._names = names
        self._rules = rules

    @classmethod
    def above(cls, folder: Path) -> Self:
        """Return the rules that hold for a folder in a git work tree: those of the folders above it.

        Args:
            folder: in no work tree, or at its top, no rules hold. Links in its path are resolved first, so that
                the spelling of the path makes no difference.

        Raises:
            AccessFailed: the system does not let a file be read.
        """
        folder = folder.resolve()
        if (folder / ".git").exists():
            return cls()
        top = next((each for each in folder.parents if (each / ".git").exists()), None)
        if top is None:
            return cls()
        rules = cls()
        place = top
        for name in folder.relative_to(top).parts:
            rules = rules.with_file_of(place).below(name)
            place /= name
        return rules

    @classmethod
    def of_patterns(cls, patterns: str | Iterable[str]) -> Self:
        """Return the rules of one line, or several, like those of a file in the folder that is read.

        Raises:
            InvalidSetting: a line is not a pattern.
        """
        rules = []
        for line in (patterns,) if isinstance(patterns, str) else iterator_of(patterns) or (patterns,):
            rule = _rule(line.encode("utf-8", "surrogateescape"), 0) if isinstance(line, str) else None
            if rule is None:
                expected = "a pattern as in .gitignore, such as *.log or drafts/"
                raise InvalidSetting("not a pattern of files", expected=expected, actual=repr(line)[:60])
            rules.append(rule)
        return cls((), tuple(rules))

    def below(self, name: str) -> Self:
        """Return the rules that hold in a folder of this one, without those of its own file."""
        return type(self)((*self._names, _encode_name(name)), self._rules)

    def with_file_of(self, folder: Path) -> Self:
        """Return these rules and after them those of the file in this folder, if there is one.

        Raises:
            AccessFailed: the system does not let the file be read.
        """
        path = folder / _NAME
        try:
            if path.is_symlink() or not path.is_file():  # git reads no links here
                return self
            with path.open("rb") as file:
                content = file.read(_MAX_BYTES)
        except OSError as error:
            raise access_failed(error, "read", path) from error
        lines = content.removeprefix(_BYTE_ORDER_MARK).split(b"\n")
        rules = (_rule(line, len(self._names)) for line in lines)
        return type(self)(self._names, (*self._rules, *filter(None, rules)))

    def matches_path(self, path: str) -> bool:
        """Whether a file at this path below the folder of the rules matches, or a folder above it."""
        *folders, name = path.split("/")
        rules = self
        for folder in folders:
            if rules.is_ignored(folder, True):
                return True
            rules = rules.below(folder)
        return bool(name) and rules.is_ignored(name, False)

    def is_ignored(self, name: str, is_folder: bool) -> bool:
        """Whether a file or folder of this folder is left out."""
        encoded = _encode_name(name)
        path = (*self._names, encoded)
        for rule in reversed(self._rules):
            if rule.is_of_folder and not is_folder:
                continue
            if rule.pattern.matches(b"/".join(path[rule.depth :]) if rule.is_of_path else encoded):
                return not rule.is_exception
        return False


def _rule(line: bytes, depth: int) -> _Rule | None:
    """The rule of a line; None for a blank one and a comment."""
    text = _without_spaces_at_end(line.removesuffix(b"\r"))
    if not text or text.startswith(b"#"):
        return None
    is_exception = text.startswith(b"!")
    text = text.removeprefix(b"!") if is_exception else text
    is_of_folder = text.endswith(b"/")
    text = text[:-1] if is_of_folder else text
    is_of_path = b"/" in text
    text = text.removeprefix(b"/")
    if not text:
        return None
    return _Rule(GlobPattern(text), is_of_path, is_of_folder, is_exception, depth)


def _without_spaces_at_end(line: bytes) -> bytes:
    """The line without spaces at its end, but for one after a backslash."""
    end = len(line)
    while end and line[end - 1 : end] == b" ":
        n_backslashes = len(line[: end - 1]) - len(line[: end - 1].rstrip(b"\\"))
        if n_backslashes % 2:
            break
        end -= 1
    return line[:end]


def _encode_name(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
