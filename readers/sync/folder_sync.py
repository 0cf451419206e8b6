"""Makes the documents of an index those of the files of a folder."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np

from quarry.engine.documents.document import Document
from quarry.engine.documents.metadata import freeze_metadata
from quarry.engine.documents.place import Place, shown
from quarry.engine.documents.tables.columns import Columns
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.index.partition import read_document
from quarry.engine.indexer.batches.encode import passage_extents
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.progress import Report, no_report
from quarry.engine.representation.base import drop_empty_windows
from quarry.engine.scoring.metric import Metric
from quarry.engine.sync import SyncReport
from quarry.formats.errors import AccessFailed, InvalidDocument, InvalidSetting, QuarryError
from quarry.formats.snapshot import Snapshot
from quarry.formats.system_errors import access_failed, mode_at
from quarry.readers.files.file_documents import (
    FileContent,
    composed,
    documents_of_file,
    read_content,
    resolved_name,
)
from quarry.readers.files.kinds import FileKinds, FileReader
from quarry.readers.folders.folder_files import TABLE, FolderFile, Unlisted, folder_files
from quarry.readers.folders.ignore_rules import IgnoreRules
from quarry.readers.folders.table_rows import NotDocumentsError, documents_of_table
from quarry.readers.folders.without_links import check_without_links
from quarry.readers.sync.stored_files import StoredFile, stored_files

__all__ = ["FolderSync"]


@dataclass(slots=True)
class _Found:
    """The files found so far; see `SyncReport`.

    Attributes:
        gone: ids of documents that were deleted or replaced, unless an owner has them.
        adopted: ids of documents that do not say yet that they are of this folder.
        origins: files, by the origins of their documents.
        owners: files, by the ids of their documents, those that the index has included.
    """

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    by_words: set[str] = field(default_factory=set)
    n_unchanged: int = 0
    gone: list[str] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    origins: dict[str, FolderFile] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)

    def copy(self) -> _Found:
        """Return a copy that does not change with this object."""
        return replace(self, **{each.name: copy(getattr(self, each.name)) for each in fields(self)})

    def report(self, generation: int | None) -> SyncReport:
        return SyncReport(
            added=tuple(sorted(self.added)),
            changed=tuple(sorted(self.changed)),
            removed=tuple(sorted(self.removed)),
            failed=dict(sorted(self.failed.items())),
            empty=tuple(sorted(self.empty)),
            left_out=dict(sorted(self.left_out.items())),
            moved=dict(sorted(self.moved.items())),
            by_words=tuple(sorted(self.by_words.intersection((*self.added, *self.changed)))),
            n_unchanged=self.n_unchanged,
            generation=generation,
        )


class FolderSync:
    """Compares a folder with an index, once, and changes the index.

    A file of the size and time of modification that the index knows is unchanged; any other is read, and a hash of
    its content decides. All changes are one commit, unless they take long: then there are further ones, each of
    whole files. A process that is killed loses what it did since the last one, and the next run does the rest.

    A document belongs to the folder that its file was read from, which its metadata names, and only those of this
    folder are deleted. Documents of an index that does not say so, because an older version has written it, belong
    to any folder. A file takes the place of one of another folder with the same path, if that one does not exist
    any more, as when its folder was moved.

    The index gets all documents of a file or none: if one of them is not valid, what the index has of the file
    stays. If the encoder refuses one after others of its file were collected, all that was collected since the
    last commit is discarded, and the other files are read again.

    The shards of an index are committed one after another, so a process that is killed may leave the changes of
    some of them only. The next run finds what is missing: it looks for each message of a mailbox, because they may
    be in several shards.

    Args:
        folder: the folder of the files.
        index: the folder of the index; if it lies inside the folder of the files, it is left out.
        snapshots: the snapshots of the shards of the index, or of an index without shards; empty: there is none
            yet.
        columns: the columns of the tables in the folder.
        remove_all: whether to go on if none of the files of the index is in the folder.
        encoder: the encoder of the index; None: it is not known whether a text has tokens.
        readers: see `FileKinds`.
        patterns: `include` and `exclude` of `Engine.sync`.
        vectors_up_to: bytes, see `Engine.sync`; None: no limit.

    Raises:
        InvalidSetting: there is no such folder, it is that of the index, a pattern is not one, or there is a limit
            and the index has the metric "l2".
    """

    def __init__(  # noqa: PLR0913, PLR0917  # the arguments of `Engine.sync`
        self,
        folder: Path,
        index: Path,
        snapshots: Sequence[Snapshot],
        columns: Columns,
        remove_all: bool,
        encoder: Encoder | None,
        readers: Mapping[str, FileReader] | None = None,
        patterns: tuple[str | Sequence[str], str | Sequence[str]] = ((), ()),
        vectors_up_to: int | None = None,
    ) -> None:
        self._kinds = FileKinds(readers)
        if not stat.S_ISDIR(mode_at(folder)):
            raise InvalidSetting("there is no such folder to read files from", path=folder)
        self._folder = folder.absolute()
        self._left_out = _place_in(folder, index)
        include, self._exclude = patterns
        self._included = IgnoreRules.of_patterns(include) if include else None
        self._snapshots = snapshots
        self._vectors_up_to = vectors_up_to
        if vectors_up_to is not None and snapshots and Metric.of(snapshots[0].manifest).name == "l2":
            message = "documents cannot be found by words alone, as vectors of zeros are near to much"
            raise InvalidSetting(
                message, expected="the metric cosine or ip", actual="l2", setting="vectors_up_to", path=index
            )
        self._name = resolved_name(folder)
        stored = stored_files(snapshots)
        self._by_hash = {file.hash: file for file in stored if not file.is_torn}
        self._stored = _by_path(file for file in stored if file.folder in ("", self._name))
        self._elsewhere: dict[str, list[StoredFile]] = defaultdict(list)  # files of other folders, by their paths
        for each in stored:
            if each.folder not in ("", self._name):
                self._elsewhere[each.path].append(each)
        self._from_files = {doc_id for file in self._stored.values() for doc_id in file.ids}
        self._columns = columns
        self._remove_all = remove_all
        self._encoder = encoder
        self._found = _Found()
        self._found.owners = {doc_id: file.path for file in self._stored.values() for doc_id in file.ids}
        self._refused: dict[str, str] = {}  # files with a document that the encoder refused, and why
        self._progress: Report = no_report
        self._has_torn = False  # whether others of its documents may have been collected

    def report(self) -> SyncReport:
        """Read the files and say what would change.

        Raises:
            InvalidSetting: none of the files of the index is in the folder.
        """
        for file in self._files():
            for _ in self._documents_of(file):
                pass
        return self._found.report(None)

    def carry_out(self, writer: IndexWriter, commit_s: float, report: Report) -> SyncReport:
        """Change the index, in one commit unless it takes long; if that fails, nothing is left to commit.

        Args:
            writer: the writer of the index.
            commit_s: seconds after which what was done so far is committed, if there is more to do.
            report: called with the number of documents that were read, and that with the files which are left.

        Raises:
            InvalidSetting: something is not committed yet, or none of the files of the index is in the folder.
            CommitFailed: the system failed.
        """
        if writer.has_changes():
            raise InvalidSetting(
                "there are additions or deletions that are not committed; commit or roll back first"
            )
        self._progress = report
        try:
            waiting = self._add(writer, self._files(), commit_s)
            while waiting:
                writer.commit()
                waiting = self._add(writer, waiting, commit_s)
            for doc_id in self._found.adopted:
                with contextlib.suppress(InvalidDocument):  # metadata that has no space for the name of a folder
                    writer.update(writer.check_updates([doc_id], self._adoption(doc_id), is_skipping=True))
            writer.delete(doc_id for doc_id in self._found.gone if doc_id not in self._found.owners)
            generation, _ = writer.commit()
        except BaseException:
            with contextlib.suppress(QuarryError):  # a closed writer has nothing to roll back
                writer.rollback()
            raise
        return self._found.report(generation)

    def _files(self) -> list[FolderFile]:
        """Return the files of the folder; find those that are gone."""
        others: list[str] = []
        found = folder_files(self._folder, self._kinds, self._left_out, self._exclude, others)
        rules = self._included
        files = [
            file for file in found if rules is None or isinstance(file, Unlisted) or rules.matches_path(file.name)
        ]
        named = (name for name in others if rules is None or rules.matches_path(name))
        self._found.left_out |= dict.fromkeys(named, "files of this kind are not read")
        there = {file.name for file in files if isinstance(file, FolderFile)}
        self._follow_forms(there)
        unlisted = [file for file in files if isinstance(file, Unlisted)]
        self._found.failed |= {file.name or ".": str(file.error) for file in unlisted}
        missing = [
            path
            for path in self._stored
            if path not in there and not any(_is_in(path, each.name) for each in unlisted)
        ]
        # the vectors of the first documents decide how an index stores all of them
        present = sorted((file for file in files if isinstance(file, FolderFile)), key=self._is_large)
        is_empty = self._stored and len(missing) == len(self._stored) and not self._remove_all
        if is_empty and not any(map(self._is_moved, present)):
            raise InvalidSetting(
                f"none of the {len(missing)} files that the index has is in the folder, or passes the patterns;"
                " if it is the right folder, pass remove_all=True (on the command line --remove-all) to delete"
                " their documents",
                path=self._folder,
            )
        for path in missing:
            self._found.removed.append(path)
            self._release(self._stored[path], ())
        return present

    def _is_large(self, file: FolderFile) -> bool:
        """Whether the documents of a file are found by words alone."""
        if self._vectors_up_to is None:
            return False
        with contextlib.suppress(AccessFailed):  # reported when it is read
            return _size_and_time(file.path)[0] > self._vectors_up_to
        return False

    def _follow_forms(self, there: set[str]) -> None:
        """Let files that the index has follow to names which only write characters in another form."""
        forms = {composed(name): name for name in there - self._stored.keys()}
        for path in self._stored.keys() - there:
            name = forms.get(composed(path))
            if name is not None:
                known = self._stored.pop(path)
                self._stored[name] = replace(known, path=name, folder="")  # so its documents get the new path
                self._found.owners |= dict.fromkeys(known.ids, name)

    def _is_moved(self, file: FolderFile) -> bool:
        """Whether the index has the content of a file under another name: then the folder is not another one."""
        try:
            content = self._content(file)
        except (InvalidDocument, AccessFailed):  # reported when the file is read for its documents
            return False
        return any(each.has_content(content.hash) for each in self._stored.values())

    def _content(self, file: FolderFile) -> FileContent:
        content = read_content(file.path)
        check_without_links(self._folder, file.name, content)
        return content

    def _add(self, writer: IndexWriter, files: Iterable[FolderFile], commit_s: float) -> deque[FolderFile]:
        """Add the documents of files until it is time for a commit; return the files that are left."""
        before = self._found.copy()
        waiting = deque(files)
        first = list(waiting)
        writer.add(self._documents(waiting, commit_s), self._refuse)
        while self._has_torn:
            writer.rollback()
            self._has_torn, self._found, waiting = False, before.copy(), deque(first)
            writer.add(self._documents(waiting, commit_s), self._refuse)
        return waiting

    def _documents(self, waiting: deque[FolderFile], commit_s: float) -> Iterator[Document]:
        """Yield the documents of files that are new or changed, until it is time for a commit.

        Args:
            waiting: files, from which those that were read are removed.
            commit_s: seconds until then.
        """
        end = time.monotonic() + commit_s
        while waiting:
            yield from self._documents_of(waiting.popleft())
            n_read = len(self._found.origins)
            self._progress(n_read, n_read + len(waiting))
            if time.monotonic() >= end:
                return

    def _documents_of(self, file: FolderFile) -> Iterator[Document]:
        known = self._known(file.name)
        if file.name in self._refused:
            self._found.failed[file.name] = self._refused[file.name]
            return
        is_divided = file.kind.has_several and len(self._snapshots) > 1
        is_same, is_large = False, self._is_large(file)
        kept = None if known is None or known.has_vectors == is_large else known
        try:
            if kept is not None and not is_divided and kept.is_certainly(*_size_and_time(file.path)):
                self._keep(kept)
                return
            content = self._content(file)
            is_same = known is not None and known.has_content(content.hash)
            if kept is not None and is_same and not is_divided:
                self._keep(kept)
                return
            documents = self._read(file, content)
            if kept is not None and is_same and {document.id for document in documents} == set(kept.ids):
                self._keep(kept)
                return
            self._check_ids(documents, file)
            if is_large:
                documents = [self._without_vectors(document) for document in documents]
                self._found.by_words.add(file.name)
            else:
                documents = self._with_stored_vectors(documents, file.name, content.hash)
            self._check_texts(documents)
        except (NotDocumentsError, InvalidDocument, AccessFailed) as error:
            if known is not None and is_same and file.kind is TABLE:  # read by other columns than before
                self._keep(known)
            elif known is None and isinstance(error, NotDocumentsError):
                self._found.left_out[file.name] = str(error)
            else:
                self._found.failed[file.name] = str(error)
            return
        ids = {document.id for document in documents}
        if known is not None:
            self._release(known, ids)
        self._found.owners |= dict.fromkeys(ids, file.name)
        self._note(file.name, known, bool(documents))
        self._found.origins |= dict.fromkeys((document.origin for document in documents), file)
        yield from documents

    def _read(self, file: FolderFile, content: FileContent) -> list[Document]:
        if file.kind is TABLE:
            return documents_of_table(file, content, self._columns, self._name)
        return documents_of_file(content, file.kind, file.name, file.path, self._name)

    def _with_stored_vectors(self, documents: list[Document], name: str, hash_: str) -> list[Document]:
        """Return documents with the vectors that the index has of the same content in a file of another name."""
        twin = self._by_hash.get(hash_)
        if twin is None or not twin.has_vectors:
            return documents
        metric, found = Metric.of(self._snapshots[0].manifest), []
        for document in documents:
            twin_id = composed(twin.path) + document.id.removeprefix(composed(name))
            place = next(filter(None, (each.find(twin_id) for each in self._snapshots)), None)
            if place is None or twin_id not in twin.ids:
                return documents
            stored = read_document(twin_id, *place, metric, with_vectors=True)
            if stored.full_text != document.full_text:  # read by another reader, or other columns
                return documents
            fields = (document.id, document.text, document.title, document.metadata, document.origin)
            found.append(Document(*fields, vectors=stored.vectors, spans=stored.spans))
        if found:
            self._found.moved[name] = twin.path
        return found

    def _without_vectors(self, document: Document) -> Document:
        """Return a document that is found by words alone: each passage has a vector of zeros, near to no query."""
        settings = self._snapshots[0].manifest.settings if self._snapshots else None
        extents = passage_extents(document, None if settings is None else settings.passages)
        zeros = np.zeros((len(extents), 1 if settings is None else settings.dim), np.float32)
        source = document.metadata["file"]
        assert isinstance(source, Mapping)
        metadata = {**document.metadata, "file": {**source, "indexed": "words"}}
        return Document(
            document.id,
            document.text,
            document.title,
            freeze_metadata(metadata, Place(document.origin, None)),
            document.origin,
            vectors=zeros,
            spans=tuple(extents),
            stored_as="words",
        )

    def _known(self, name: str) -> StoredFile | None:
        """Return what the index has of a file, also if it was in another folder before; None if it is new."""
        if name not in self._stored and name in self._elsewhere:
            moved = [file for file in self._elsewhere.pop(name) if not _may_exist(Path(file.folder, name))]
            self._stored |= _by_path(moved)
            self._from_files.update(doc_id for file in moved for doc_id in file.ids)
            for doc_id in (doc_id for file in moved for doc_id in file.ids):
                self._found.owners.setdefault(doc_id, name)
        return self._stored.get(name)

    def _keep(self, known: StoredFile) -> None:
        """Note that a file is unchanged."""
        self._found.n_unchanged += 1
        if known.folder != self._name:
            self._found.adopted += known.ids

    def _release(self, known: StoredFile, ids: Collection[str]) -> None:
        """Note that the documents of a file are gone, except for those with some ids."""
        gone = [doc_id for doc_id in known.ids if doc_id not in ids]
        self._found.gone += gone
        for doc_id in gone:
            if self._found.owners.get(doc_id) == known.path:
                del self._found.owners[doc_id]

    def _adoption(self, doc_id: str) -> dict[str, object]:
        """Return the change of metadata by which a document of the index becomes one of this folder."""
        places = (snapshot.find(doc_id) for snapshot in self._snapshots)
        segment, ordinal = next(place for place in places if place is not None)
        stored = segment.reader.documents[ordinal].metadata["file"]
        assert isinstance(stored, Mapping)
        return {"file": {**stored, "folder": self._name, "path": self._found.owners[doc_id]}}

    def _check_ids(self, documents: list[Document], file: FolderFile) -> None:
        """Check that no other document has the id of one of these.

        Raises:
            InvalidDocument: one of the same file has it, one of another file of this folder, or one that was not
                read from this folder.
        """
        seen: set[str] = set()
        for document in documents:
            doc_id, other = document.id, ""
            if doc_id in seen:
                other = "a document before it in the file has"
            elif (owner := self._found.owners.get(doc_id, file.name)) != file.name:
                other = f"a document of the file {shown(owner)} has"
            if other:
                raise InvalidDocument(
                    f"{document.origin}: its id in the index is {shown(doc_id)}, which {other} too",
                    expected="another id, or another name of the file",
                )
            seen.add(doc_id)
            if doc_id not in self._from_files and any(each.find(doc_id) for each in self._snapshots):
                raise InvalidDocument(
                    f"the index has a document with the id {shown(doc_id)} that was not read from a file of"
                    " this folder; it stays",
                    path=file.path,
                    expected="another name of the file, or that document deleted or under another id",
                )

    def _check_texts(self, documents: list[Document]) -> None:
        """Check that texts without letters and digits have tokens; others are left to `_refuse`.

        Raises:
            InvalidDocument: the encoder finds no token in a text.
        """
        for document in documents if self._encoder is not None else ():
            text = document.full_text
            if document.vectors is None and not any(map(str.isalnum, text)):
                assert self._encoder is not None
                try:
                    next(drop_empty_windows(self._encoder.windows(text)))
                except InvalidDocument as error:
                    raise InvalidDocument(f"{document.origin}: {error.message}") from error

    def _note(self, name: str, known: StoredFile | None, has_text: bool) -> None:
        if not has_text:
            self._found.empty.append(name)
        if known is not None and not has_text:
            self._found.removed.append(name)
        elif has_text:
            (self._found.added if known is None else self._found.changed).append(name)

    def _refuse(self, error: InvalidDocument) -> None:
        """Note the file of a document that cannot be encoded; what the index has of it stays."""
        origins = self._found.origins
        file = next(file for origin, file in origins.items() if error.message.startswith(f"{origin}: "))
        for names in (self._found.added, self._found.changed):
            with contextlib.suppress(ValueError):
                names.remove(file.name)
        self._found.failed[file.name] = self._refused[file.name] = str(error)
        self._found.moved.pop(file.name, None)
        self._has_torn |= file.kind.has_several


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


def _by_path(files: Iterable[StoredFile]) -> dict[str, StoredFile]:
    """Return files by their paths; what was read in several folders is not the state of one file."""
    files_by_path: dict[str, StoredFile] = {}
    for file in files:
        other = files_by_path.get(file.path)
        files_by_path[file.path] = file if other is None else replace(file, ids=file.ids + other.ids, is_torn=True)
    return files_by_path


def _may_exist(path: Path) -> bool:
    try:
        return mode_at(path) != 0
    except QuarryError:
        return True


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = os.lstat(path)
    except OSError as error:
        raise access_failed(error, "looked up", path) from error
    return status.st_size, status.st_mtime_ns


def _is_in(path: str, name: str) -> bool:
    """Whether a file is the one of this name, or in the folder of this name (ending in a slash, or empty)."""
    return path == name or (path.startswith(name) and (not name or name.endswith("/")))
