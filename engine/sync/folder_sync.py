"""Makes the documents of an index those of the files of a folder."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from quarry.engine.documents.document import Document
from quarry.engine.documents.files.file_documents import documents_of_file, read_content
from quarry.engine.documents.folders.folder_files import FolderFile, Unlisted, folder_files
from quarry.engine.documents.place import shown
from quarry.engine.indexer.batches.document_encoder import OnInvalid
from quarry.engine.sync.stored_files import StoredFile, stored_files
from quarry.formats.errors import AccessFailed, InvalidDocument, InvalidSetting, QuarryError
from quarry.formats.snapshot import Snapshot
from quarry.formats.system_errors import access_failed, mode_at

__all__ = ["FolderSync", "SyncReport", "SyncedWriter"]

_SEVERAL = "mailbox"  # the kind of files that have several documents


@dataclass(frozen=True, kw_only=True)
class SyncReport:
    """What `Engine.sync` did, or would do; files are named by their paths in the folder, with slashes, ascending.

    Attributes:
        added: files that the index did not have.
        changed: files whose content is another one now.
        removed: files that are gone, or left out now, and whose documents were deleted.
        failed: files and folders that could not be read, and why; what the index has of them stays. Also files
            whose id is that of a document that was not read from a file.
        empty: files without text.
        n_unchanged: files whose content is the same.
        generation: that the index has now; None for a dry run.
    """

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    failed: dict[str, str]
    empty: tuple[str, ...]
    n_unchanged: int
    generation: int | None


class SyncedWriter(Protocol):
    """What changes an index, with or without shards; see `quarry.engine.indexer.index_writer.IndexWriter`."""

    def has_changes(self) -> bool: ...  # noqa: D102
    def add(self, documents: Iterable[Document], on_invalid: OnInvalid) -> int: ...  # noqa: D102
    def delete(self, doc_ids: Iterable[str]) -> int: ...  # noqa: D102
    def commit(self) -> tuple[int, int]: ...  # noqa: D102
    def rollback(self) -> None: ...  # noqa: D102


@dataclass(slots=True)
class _Found:
    """What was found so far; see `SyncReport`."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    n_unchanged: int = 0

    def report(self, generation: int | None) -> SyncReport:
        return SyncReport(
            added=tuple(sorted(self.added)),
            changed=tuple(sorted(self.changed)),
            removed=tuple(sorted(self.removed)),
            failed=dict(sorted(self.failed.items())),
            empty=tuple(sorted(self.empty)),
            n_unchanged=self.n_unchanged,
            generation=generation,
        )


class FolderSync:
    """Compares a folder with an index, once, and changes the index.

    A file of the size and time of modification that the index knows is unchanged; any other is read, and a hash of
    its content decides. All changes are one commit: a process that is killed before leaves the index as it
    was, and the next run begins again.

    The shards of an index are committed one after another, so a process that is killed may leave the changes of
    some of them only. The next run finds what is missing: it looks for each message of a mailbox, because they may
    be in several shards.

    Args:
        folder: of the files.
        index: the folder of the index; if it lies inside the folder of the files, it is left out.
        snapshots: of the shards of the index, or of an index without shards; empty: there is none yet.
        remove_all: whether to go on if none of the files of the index is in the folder.

    Raises:
        InvalidSetting: there is no such folder, or it is that of the index.
    """

    def __init__(self, folder: Path, index: Path, snapshots: Sequence[Snapshot], remove_all: bool) -> None:
        if not stat.S_ISDIR(mode_at(folder)):
            raise InvalidSetting("there is no such folder to read files from", path=folder)
        self._folder = folder.absolute()
        self._left_out = _place_in(folder, index)
        self._snapshots = snapshots
        self._stored = stored_files(snapshots)
        self._from_files = {doc_id for file in self._stored.values() for doc_id in file.ids}
        self._remove_all = remove_all
        self._found = _Found()
        self._gone: list[str] = []  # ids of documents that nothing replaces
        self._names: dict[str, str] = {}  # of files, by the origins of their documents
        self._kept: set[str] = set()  # ids that documents of this run have

    def report(self) -> SyncReport:
        """Read the files and say what would change.

        Raises:
            InvalidSetting: none of the files of the index is in the folder.
        """
        for _ in self._documents():
            pass
        return self._found.report(None)

    def carry_out(self, writer: SyncedWriter) -> SyncReport:
        """Change the index, in one commit; if that fails, nothing is left to commit.

        Raises:
            InvalidSetting: something is not committed yet, or none of the files of the index is in the folder.
            CommitFailed: the system failed.
        """
        if writer.has_changes():
            raise InvalidSetting(
                "there are additions or deletions that are not committed; commit or roll back first"
            )
        try:
            writer.add(self._documents(), self._refuse)
            writer.delete(self._gone)
            generation, _ = writer.commit()
        except BaseException:
            with contextlib.suppress(QuarryError):  # a closed writer has nothing to roll back
                writer.rollback()
            raise
        return self._found.report(generation)

    def _documents(self) -> Iterator[Document]:
        """Yield the documents of files that are new or changed; find what else there is to do."""
        files = list(folder_files(self._folder, self._left_out))
        there = {file.name for file in files if isinstance(file, FolderFile)}
        unlisted = [file for file in files if isinstance(file, Unlisted)]
        self._found.failed |= {file.name or ".": str(file.error) for file in unlisted}
        missing = [
            path
            for path in self._stored
            if path not in there and not any(_is_in(path, each.name) for each in unlisted)
        ]
        if self._stored and len(missing) == len(self._stored) and not self._remove_all:
            raise InvalidSetting(
                f"none of the {len(missing)} files that the index has is in the folder; if it is the right folder,"
                " pass remove_all=True (on the command line --remove-all) to delete their documents",
                path=self._folder,
            )
        for path in missing:
            self._found.removed.append(path)
            self._gone += self._stored[path].ids
        for file in files:
            if isinstance(file, FolderFile):
                yield from self._documents_of(file)
        self._gone = [doc_id for doc_id in self._gone if doc_id not in self._kept]

    def _documents_of(self, file: FolderFile) -> Iterator[Document]:
        known = self._stored.get(file.name)
        is_divided = file.kind == _SEVERAL and len(self._snapshots) > 1
        try:
            if known is not None and not is_divided and known.is_certainly(*_size_and_time(file.path)):
                self._found.n_unchanged += 1
                return
            content = read_content(file.path)
            is_same = known is not None and known.has_content(content.hash)
            if is_same and not is_divided:
                self._found.n_unchanged += 1
                return
            documents = documents_of_file(content, file.kind, file.name, file.path)
            if known is not None and is_same and {document.id for document in documents} == set(known.ids):
                self._found.n_unchanged += 1
                return
            self._check_ids(documents, file.path)
        except (InvalidDocument, AccessFailed) as error:
            self._found.failed[file.name] = str(error)
            return
        ids = {document.id for document in documents}
        self._kept |= ids
        self._gone += [doc_id for doc_id in (known.ids if known else []) if doc_id not in ids]
        self._note(file.name, known, bool(documents))
        self._names |= dict.fromkeys((document.origin for document in documents), file.name)
        yield from documents

    def _check_ids(self, documents: list[Document], path: Path) -> None:
        """Raise InvalidDocument if a document that was not read from a file has the id of one of these."""
        for document in documents:
            if document.id not in self._from_files and any(each.find(document.id) for each in self._snapshots):
                raise InvalidDocument(
                    f"the index has a document with the id {shown(document.id)} that was not read from a file;"
                    " it stays",
                    path=path,
                    expected="another name of the file, or that document deleted or under another id",
                )

    def _note(self, name: str, known: StoredFile | None, has_text: bool) -> None:
        if not has_text:
            self._found.empty.append(name)
        if known is not None and not has_text:
            self._found.removed.append(name)
        elif has_text:
            (self._found.added if known is None else self._found.changed).append(name)

    def _refuse(self, error: InvalidDocument) -> None:
        """Note a document that cannot be encoded; the one that it was to replace stays."""
        name = next(name for origin, name in self._names.items() if error.message.startswith(f"{origin}: "))
        for names in (self._found.added, self._found.changed):
            with contextlib.suppress(ValueError):
                names.remove(name)
        self._found.failed[name] = str(error)


def _place_in(folder: Path, index: Path) -> str:
    """Return the path of the index relative to the folder of the files, with slashes; "" if it is not inside.

    Raises:
        InvalidSetting: both are the same folder.
    """
    files, stored = folder.resolve(), index.resolve()
    if files == stored or (stored.exists() and files.samefile(stored)):
        raise InvalidSetting(
            "this is the folder of the index", path=folder, expected="a folder of documents other than the index"
        )
    return stored.relative_to(files).as_posix() if stored.is_relative_to(files) else ""


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = os.lstat(path)
    except OSError as error:
        raise access_failed(error, "looked up", path) from error
    return status.st_size, status.st_mtime_ns


def _is_in(path: str, name: str) -> bool:
    """Whether a file is the one of this name, or in the folder of this name (ending in a slash, or empty)."""
    return path == name or (path.startswith(name) and (not name or name.endswith("/")))
