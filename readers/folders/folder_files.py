"""The files of a folder that are documents, in an order that depends on their names alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from quarry.engine.arguments import lone_surrogate
from quarry.engine.documents.tables.table_files import is_plain_table
from quarry.formats.errors import AccessFailed, InvalidDocument, QuarryError
from quarry.formats.system_errors import access_failed
from quarry.readers.files.kinds import FileKind, FileKinds
from quarry.readers.folders.ignore_rules import IgnoreRules
from quarry.readers.folders.without_links import opened_folder

__all__ = ["TABLE", "FolderFile", "Unlisted", "folder_files"]

TABLE: Final = FileKind("table")
"""The kind of a file that is a table."""

_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file of a kind that is read.

    Attributes:
        name: its path relative to the folder, with slashes.
        kind: the kind of the file; `TABLE` for one whose rows may be documents.
        path: the path of the file.
    """

    name: str
    kind: FileKind
    path: Path


class Unlisted(NamedTuple):
    """A folder whose files are not known, or a file whose name cannot be an id.

    Attributes:
        name: its path relative to the folder that is listed, with slashes; "" for that folder itself.
        error: why.
    """

    name: str
    error: QuarryError


def folder_files(
    folder: Path,
    kinds: FileKinds,
    left_out: str = "",
    exclude: str | Iterable[str] = (),
    others: list[str] | None = None,
) -> Iterator[FolderFile | Unlisted]:
    """Yield the files of a folder and of the folders in it.

    Left out are files of other kinds, what a ``.gitignore`` file excludes, names that begin with a dot, and
    symbolic links. Files come in the order of their names, those of a folder at the place of its name.

    Args:
        folder: an absolute path.
        kinds: the kinds of the files that are read.
        left_out: the path of a folder in it that is left out, relative to it and with slashes; "" for none.
        exclude: further lines, as of a ``.gitignore`` file in the folder; those of files in the folders below it
            come first.
        others: a list to which the names of files of other kinds are added.

    Raises:
        InvalidSetting: a line of `exclude` is not a pattern.
    """
    excluded = IgnoreRules.of_patterns(exclude)
    try:
        rules = IgnoreRules.above(folder)
    except AccessFailed as error:
        yield Unlisted("", error)
        return
    yield from _files_of(folder, kinds, rules, left_out, excluded, [] if others is None else others)


def _files_of(
    top: Path, kinds: FileKinds, above: IgnoreRules, left_out: str, excluded: IgnoreRules, others: list[str]
) -> Iterator[FolderFile | Unlisted]:
    waiting: list[tuple[Path, str, IgnoreRules]] = [(top, "", above)]
    while waiting:
        path, name, rules = waiting.pop()
        if kind := _kind_of(path.name, kinds) if name and not name.endswith("/") else None:
            yield FolderFile(name, kind, path)
            continue
        try:
            if name.count("/") > _MAX_DEPTH:
                raise InvalidDocument("is nested too deep", path=path, expected=f"at most {_MAX_DEPTH} folders")
            rules = rules.with_file_of(path)
            entries = _listed(top, name)
        except QuarryError as error:
            yield Unlisted(name, error)
            continue
        below: list[tuple[Path, str, IgnoreRules]] = []
        for entry, is_folder in entries:
            if is_folder is None or entry.startswith(".") or rules.is_ignored(entry, is_folder):
                continue
            here = f"{name}{entry}"
            if not is_folder and _kind_of(entry, kinds) is None:
                others += [] if excluded.matches_path(here) else [here]
                continue
            if lone_surrogate(entry) is not None:
                yield Unlisted(name + ascii(entry)[1:-1], _bad_name(path / entry))
                continue
            if (is_folder and here == left_out) or excluded.matches_path(here + "/" * is_folder):
                continue
            below.append(
                (path / entry, f"{here}/", rules.below(entry)) if is_folder else (path / entry, here, rules)
            )
        waiting += reversed(below)


def _kind_of(name: str, kinds: FileKinds) -> FileKind | None:
    return TABLE if is_plain_table(name) else kinds.of_name(name)


def _listed(top: Path, name: str) -> list[tuple[str, bool | None]]:
    """The names in a folder, ascending, with whether each is a folder; None for what is not a file either."""
    try:
        # A link that is made after this check shows names alone: each file is checked again when it is read.
        with opened_folder(top, name), os.scandir(top / name) as entries:
            return sorted((entry.name, _is_folder(entry)) for entry in entries)
    except OSError as error:
        raise access_failed(error, "listed", top / name) from error


def _is_folder(entry: os.DirEntry[str]) -> bool | None:
    if entry.is_dir(follow_symlinks=False):
        return True
    return False if entry.is_file(follow_symlinks=False) else None


def _bad_name(path: Path) -> InvalidDocument:
    return InvalidDocument("its name is not UTF-8, so it cannot be an id", path=ascii(str(path))[1:-1])
