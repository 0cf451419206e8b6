"""Documents from wherever they are: an iterable, a JSON-lines file or a BEIR folder."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sized
from pathlib import Path

from quarry.engine.arguments import iterator_of
from quarry.engine.documents.document import Document, document_from
from quarry.engine.documents.lines import MAX_LINE_BYTES, LineReader
from quarry.engine.documents.mistaken_sources import is_path, path_of_file, rows_of_columns, rows_of_table
from quarry.engine.documents.place import shown
from quarry.formats.errors import AccessFailed, InvalidDocument, InvalidSetting
from quarry.formats.system_errors import checked_path, mode_at, system_errors

__all__ = ["DocumentSource", "DocumentStream", "read_documents"]

DocumentSource = Iterable[str | Mapping[str, object] | Document] | str | os.PathLike[str]
"""What ``read_documents`` reads."""

_FILE_NAMES = ("corpus.jsonl", "corpus.jsonl.gz", "corpus.jsonl.zst")
_ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_DOCUMENTS = "an iterable of str or mappings, or the path of a file or folder; one document is [document]"
_N_ERRORS_KEPT = 10
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class DocumentStream:
    """Documents one after another, read once, in order; counts what it reads and what it skips.

    Attributes:
        n_read: documents given out so far.
        n_skipped: invalid documents left out so far.
        first_errors: the messages of the first ten of them.
    """

    def __init__(self, raws: _Raws, skip_invalid: bool) -> None:
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
        """How much of the source has been read, 0 to 1; None where its size is not known."""
        return self._raws.fraction_read()

    def n_expected(self) -> int | None:
        """Documents in the whole source: an estimate while a file is read, None where nothing is known."""
        fraction = self.fraction_read()
        n_seen = self.n_read + self.n_skipped
        return max(n_seen, round(n_seen / fraction)) if fraction and n_seen else None

    def skip(self, error: InvalidDocument) -> None:
        """Count a document as left out, or raise `error` where invalid ones are not skipped."""
        if not self._skip_invalid:
            raise error
        self.n_skipped += 1
        if len(self.first_errors) < _N_ERRORS_KEPT:
            self.first_errors.append(str(error))


def read_documents(source: DocumentSource, skip_invalid: bool = False) -> DocumentStream:
    """Open a source of documents.

    Args:
        source: an iterable of str, of mappings or of Documents; or the path of a ``.jsonl``,
            ``.jsonl.gz`` or ``.jsonl.zst`` file with one JSON object a line, or of a folder with one
            such file named ``corpus`` (BEIR), in capitals or not. Blank lines are passed over; a UTF-8 byte
            order mark may be there.
        skip_invalid: leave invalid documents out and count them, instead of raising.

    Raises:
        InvalidSetting: the source is none of these; for a table, a mapping of columns and an open file the message
            says what to pass in its place.
        AccessFailed: the system does not let its folder be read.
    """
    if isinstance(source, str | os.PathLike):
        return DocumentStream(_FileDocuments(_corpus_file(source)), skip_invalid)
    instead = rows_of_table(source) or rows_of_columns(source) or path_of_file(source, _ENDINGS)
    if instead or isinstance(source, bytes | Mapping | Document) or not isinstance(source, Iterable):
        raise InvalidSetting("docs cannot be read", expected=instead or _DOCUMENTS, actual=type(source).__name__)
    return DocumentStream(_GivenDocuments(source), skip_invalid)


class _Given:
    """One item of an iterable."""

    def __init__(self, raw: object, number: int) -> None:
        self._raw = raw
        self._number = number

    def document(self) -> Document:
        where = f"document {self._number}"
        if isinstance(self._raw, str | os.PathLike) and is_path(self._raw):
            raise InvalidDocument(
                f"{where}: the path of a file or folder in the place of a document",
                expected="the path alone, to index the documents in it, or {'text': ...}, to index its words",
                actual=shown(os.fspath(self._raw)),
            )
        return document_from(self._raw, where)


class _Line:
    """One line of a file; its content is None where it is too long."""

    def __init__(self, content: bytes | None, number: int, path: Path) -> None:
        self._content = content
        self._where = f"line {number}"
        self._path = path

    def document(self) -> Document:
        raw = self._parsed()
        if not isinstance(raw, dict):
            raise self._error("is not a JSON object", expected="an object", actual=type(raw).__name__)
        return document_from(raw, self._where, self._path)

    def _parsed(self) -> object:
        if self._content is None:
            raise self._error("is too long", expected=f"at most {MAX_LINE_BYTES} bytes")
        try:
            return json.loads(self._content.decode())
        except UnicodeDecodeError as error:
            raise self._error(f"is not UTF-8 at byte {error.start}", expected="UTF-8") from error
        except (ValueError, RecursionError) as error:
            raise self._error(f"is not JSON: {error}") from error

    def _error(self, problem: str, *, expected: object = None, actual: object = None) -> InvalidDocument:
        return InvalidDocument(f"{self._where} {problem}", path=self._path, expected=expected, actual=actual)


class _GivenDocuments:
    """The items of an iterable, numbered from 1."""

    def __init__(self, items: Iterable[object]) -> None:
        self._items = items
        self._n_given = 0

    def __iter__(self) -> Iterator[_Given]:
        items = iterator_of(self._items)
        if items is None:
            kind = type(self._items).__name__
            raise InvalidSetting("docs cannot be read", expected=_DOCUMENTS, actual=kind)
        for item in items:
            self._n_given += 1
            yield _Given(item, self._n_given)

    def close(self) -> None:
        """Do nothing: the items are the caller's."""

    def fraction_read(self) -> float | None:
        if not isinstance(self._items, Sized):
            return None
        return min(1.0, self._n_given / (len(self._items) or 1))


class _FileDocuments:
    """The lines of a file that are not blank."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = LineReader(path)

    def __iter__(self) -> Iterator[_Line]:
        for number, line in self._lines:
            content = line
            if number == 1 and content is not None:
                content = content.removeprefix(_BYTE_ORDER_MARK)
            if content is None or content.strip():
                yield _Line(content, number, self._path)

    def close(self) -> None:
        self._lines.close()

    def fraction_read(self) -> float | None:
        return self._lines.fraction_read()


_Raws = _GivenDocuments | _FileDocuments


def _corpus_file(source: str | os.PathLike[str]) -> Path:
    path = _path_of(source)
    if _is_folder(path, source):
        return _file_of_folder(path)
    if not path.name.lower().endswith(_ENDINGS):
        raise InvalidSetting(
            "docs is a file of a kind that is not read", path=path, expected=f"one of {', '.join(_ENDINGS)}"
        )
    return path


def _path_of(source: str | os.PathLike[str]) -> Path:
    try:
        return checked_path(source, "docs")
    except InvalidSetting as error:
        if isinstance(source, str):  # a text, which may have any characters
            raise _no_such_file(source) from error
        raise


def _is_folder(path: Path, source: str | os.PathLike[str]) -> bool:
    try:
        mode = mode_at(path)
    except AccessFailed as error:
        if error.errno != errno.ENAMETOOLONG:  # as a text often is
            raise
        raise _no_such_file(source) from error
    if not mode:
        raise _no_such_file(source)
    return stat.S_ISDIR(mode)


def _no_such_file(source: str | os.PathLike[str]) -> InvalidSetting:
    if not isinstance(source, str):
        return InvalidSetting("no such file or folder", path=os.fspath(source))
    shown = repr(source if len(source) <= 60 else source[:60] + "...")
    return InvalidSetting(
        f"docs is a str but no such file or folder is there: {shown}; to index one text pass [text]"
    )


def _file_of_folder(folder: Path) -> Path:
    with system_errors("listed", folder):
        names = [name for name in os.listdir(folder) if name.lower() in _FILE_NAMES]  # noqa: PTH208
    found = sorted(folder / name for name in names if stat.S_ISREG(mode_at(folder / name)))
    if len(found) != 1:
        raise InvalidSetting(
            "docs is a folder, but not with one corpus file",
            path=folder,
            expected=f"one of {', '.join(_FILE_NAMES)}",
            actual=", ".join(file.name for file in found) or "none of them",
        )
    return found[0]
