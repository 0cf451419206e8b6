"""Documents from wherever they are: an iterable, a table, a file, or a folder."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from quarry.engine.documents.document import Document
from quarry.engine.documents.entries import Entries, LeftOutEntry
from quarry.engine.documents.given import GivenDocuments
from quarry.engine.documents.mistaken_sources import path_of_file, rows_of_columns, rows_of_table
from quarry.engine.documents.tables.arrow import ArrowRows, exports_arrow
from quarry.engine.documents.tables.columns import Columns
from quarry.engine.documents.tables.frames import FrameRows, is_frame, is_series
from quarry.engine.documents.tables.json_documents import JsonLinesDocuments
from quarry.engine.documents.tables.table_files import TABLE_ENDINGS, open_table
from quarry.formats.errors import AccessFailed, InvalidDocument, InvalidSetting
from quarry.formats.system_errors import checked_path, mode_at, system_errors

__all__ = ["DocumentSource", "DocumentStream", "Readers", "is_folder_of_files", "read_documents"]

DocumentSource = Iterable[str | Mapping[str, object] | Document] | str | os.PathLike[str] | Any
"""What ``read_documents`` reads; tables of other libraries have no type in common."""

Readers: TypeAlias = Mapping[str, Callable[[bytes], Any]] | None
"""Functions that read files, by the endings of the files; see `quarry.readers.FileReader`."""

_log = logging.getLogger(__name__)

_CORPUS_NAMES = ("corpus.jsonl", "corpus.jsonl.gz", "corpus.jsonl.zst")
_DOCUMENTS = "an iterable of str or mappings, a table, or the path of a file or folder; one document is [document]"
_N_ERRORS_KEPT = 10


class DocumentStream:
    """Documents one after another, read once, in order; counts what it reads and what it skips.

    Attributes:
        n_read: documents given out so far.
        n_skipped: invalid documents left out so far.
        first_errors: the messages of the first ten of them.
    """

    def __init__(self, raws: Entries, skip_invalid: bool) -> None:
        self.n_read = 0
        self.n_skipped = 0
        self.first_errors: list[str] = []
        self._raws = raws
        self._skip_invalid = skip_invalid

    def __iter__(self) -> Iterator[Document]:
        """Yield the documents.

        Raises:
            InvalidDocument: a document or line is not valid and invalid ones are not skipped, or a
                compressed file is damaged, or a line of it does not end (which nothing skips).
            AccessFailed: the system does not let the file be read.
        """
        for entry in self._raws:
            if isinstance(entry, LeftOutEntry):
                self._count(entry.error)
                continue
            try:
                document = entry.document()
            except InvalidDocument as error:
                self.skip(error)
            else:
                self.n_read += 1
                yield document

    def close(self) -> None:
        """Close the file that is read, if there is one; to be called when reading ends early."""
        self._raws.close()

    def fraction_read(self) -> float | None:
        """How much of the source has been read, 0 to 1; None if its size is not known."""
        return self._raws.fraction_read()

    def n_expected(self) -> int | None:
        """Documents in the whole source: an estimate while a file is read, None if nothing is known."""
        fraction = self.fraction_read()
        n_seen = self.n_read + self.n_skipped
        return max(n_seen, round(n_seen / fraction)) if fraction and n_seen else None

    def skip(self, error: InvalidDocument) -> None:
        """Count a document as left out, or raise `error` if invalid ones are not skipped."""
        if not self._skip_invalid:
            raise error
        self._count(error)

    def _count(self, error: InvalidDocument) -> None:
        _log.info("left out: %s", error)
        self.n_skipped += 1
        if len(self.first_errors) < _N_ERRORS_KEPT:
            self.first_errors.append(str(error))


def read_documents(
    source: DocumentSource,
    skip_invalid: bool = False,
    columns: Columns | None = None,
    readers: Readers = None,
) -> DocumentStream:
    """Open a source of documents.

    Args:
        source: an iterable of str, of mappings or of Documents; a table (a DataFrame of pandas or polars, or an
            object that exports Arrow data); or a path. A path is that of JSON Lines (``.jsonl``, ``.ndjson``),
            JSON
            (``.json``, an array or lines), CSV or TSV, each perhaps compressed (``.gz``, ``.zst``); of Parquet
            or an
            Arrow file; of a file that is a document (see `quarry.readers.files.kinds`); of a folder
            in BEIR
            format, which has one JSON Lines file named ``corpus``; or of any other folder, whose files, and the
            rows of the tables in it, are documents. Endings may be in capitals.
        skip_invalid: leave invalid documents out and count them, instead of raising.
        columns: which columns of a table are the fields; given, mappings and objects of JSON are rows too.
        readers: the readers of files with other endings, or instead of Quarry's own.

    Raises:
        ExtensionFailed: a reader that another package has registered cannot be used.
        InvalidSetting: the source is none of these, or lacks a column; the message says what to pass in its place.
        AccessFailed: the system does not let its folder be read.
    """
    columns = columns or Columns()
    if isinstance(source, str | os.PathLike):
        return DocumentStream(_of_path(_existing(source), columns, readers), skip_invalid)
    if readers is not None:
        raise InvalidSetting("readers are given, and docs is not a path of a file or folder", setting="readers")
    if is_frame(source):
        return DocumentStream(FrameRows(source, columns), skip_invalid)
    if exports_arrow(source) and not is_series(source):
        return DocumentStream(ArrowRows(source, columns), skip_invalid)
    instead = rows_of_table(source) or rows_of_columns(source) or path_of_file(source, TABLE_ENDINGS)
    if instead or isinstance(source, bytes | Mapping | Document) or not isinstance(source, Iterable):
        raise InvalidSetting("docs cannot be read", expected=instead or _DOCUMENTS, actual=type(source).__name__)
    return DocumentStream(GivenDocuments(source, columns), skip_invalid)


def _of_path(path: Path, columns: Columns, readers: Readers) -> Entries:
    # The door to `quarry.readers`, on top of the engine: other sources do without its mail, archives and XML.
    from quarry.readers.folders.sources import open_file, open_folder

    if _is_folder(path):
        corpus = _corpus_of(path)
        if corpus is None:
            return open_folder(path.absolute(), columns, readers)
        return JsonLinesDocuments(corpus, columns)
    if (table := open_table(path, columns)) is not None:
        return table
    if (file := open_file(path, columns, readers)) is not None:
        return file
    raise InvalidSetting(
        "a file of a kind that is not read",
        path=path,
        expected=f"one of {', '.join(TABLE_ENDINGS)}, or a text, page, notebook, message, PDF, DOCX or EPUB file,"
        " or one of an ending that readers= or an installed package has",
    )


def is_folder_of_files(source: object) -> bool:
    """Return whether a source is the path of a folder whose files are documents."""
    if isinstance(source, str | os.PathLike):
        with suppress(TypeError):  # an object that is no path is refused when it is read
            return os.path.isdir(source) and _corpus_of(Path(source)) is None  # noqa: PTH112  # no error if too long
    return False


def _existing(source: str | os.PathLike[str]) -> Path:
    """The path of a file or folder that exists."""
    try:
        path = checked_path(source, "docs")
    except InvalidSetting as error:
        if isinstance(source, str):  # a text, which may have any characters
            raise _no_such_file(source) from error
        raise
    try:
        mode = mode_at(path)
    except AccessFailed as error:
        if error.errno != errno.ENAMETOOLONG:  # as a text often is
            raise
        raise _no_such_file(source) from error
    if not mode:
        raise _no_such_file(source)
    return path


def _is_folder(path: Path) -> bool:
    return stat.S_ISDIR(mode_at(path))


def _no_such_file(source: str | os.PathLike[str]) -> InvalidSetting:
    if not isinstance(source, str):
        return InvalidSetting("no such file or folder", path=os.fspath(source))
    shown = repr(source if len(source) <= 60 else source[:60] + "...")
    return InvalidSetting(
        f"docs is a str but no such file or folder is there: {shown}; to index one text pass [text]"
    )


def _corpus_of(folder: Path) -> Path | None:
    """The corpus file of a folder in BEIR format; None for any other folder."""
    with system_errors("listed", folder):
        names = [name for name in os.listdir(folder) if name.lower() in _CORPUS_NAMES]  # noqa: PTH208
    corpora = sorted(folder / name for name in names if stat.S_ISREG(mode_at(folder / name)))
    if len(corpora) > 1:
        raise InvalidSetting(
            "a folder with more than one corpus file",
            path=folder,
            expected=f"one of {', '.join(_CORPUS_NAMES)}",
            actual=", ".join(file.name for file in corpora),
        )
    return corpora[0] if corpora else None
