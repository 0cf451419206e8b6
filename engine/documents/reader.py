"""Documents from wherever they are: an iterable, a JSON-lines file or a BEIR folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sized
from pathlib import Path

from quarry.engine.documents.document import Document, document_from
from quarry.engine.documents.lines import MAX_LINE_BYTES, LineReader
from quarry.formats.errors import InvalidDocument, InvalidSetting

__all__ = ["DocumentSource", "DocumentStream", "read_documents"]

DocumentSource = Iterable[str | Mapping[str, object] | Document] | str | os.PathLike[str]
"""What ``read_documents`` reads."""

_FILE_NAMES = ("corpus.jsonl", "corpus.jsonl.gz", "corpus.jsonl.zst")
_ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst")
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
                compressed file is damaged (which nothing skips).
            OSError: the file cannot be read.
        """
        for entry in self._raws:
            try:
                document = entry.document()
            except InvalidDocument as error:
                self.skip(error)
            else:
                self.n_read += 1
                yield document

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
        InvalidSetting: the source is none of these.
    """
    if isinstance(source, str | os.PathLike):
        return DocumentStream(_FileDocuments(_corpus_file(source)), skip_invalid)
    if isinstance(source, bytes | Mapping | Document) or not isinstance(source, Iterable):
        expected = "an iterable of str or mappings, or the path of a file or folder; one document is [document]"
        raise InvalidSetting("docs cannot be read", expected=expected, actual=type(source).__name__)
    return DocumentStream(_GivenDocuments(source), skip_invalid)


class _Given:
    """One item of an iterable."""

    def __init__(self, raw: object, number: int) -> None:
        self._raw = raw
        self._number = number

    def document(self) -> Document:
        return document_from(self._raw, f"document {self._number}")


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
        for item in self._items:
            self._n_given += 1
            yield _Given(item, self._n_given)

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

    def fraction_read(self) -> float | None:
        return self._lines.fraction_read()


_Raws = _GivenDocuments | _FileDocuments


def _corpus_file(source: str | os.PathLike[str]) -> Path:
    path = Path(source)
    if _is_folder(path, source):
        return _file_of_folder(path)
    if not path.name.lower().endswith(_ENDINGS):
        raise InvalidSetting(
            "docs is a file of a kind that is not read", path=path, expected=f"one of {', '.join(_ENDINGS)}"
        )
    return path


def _is_folder(path: Path, source: str | os.PathLike[str]) -> bool:
    try:
        if path.exists():
            return path.is_dir()
    except OSError as error:  # a text is often too long for a file name
        raise _no_such_file(source) from error
    raise _no_such_file(source)


def _no_such_file(source: str | os.PathLike[str]) -> InvalidSetting:
    if not isinstance(source, str):
        return InvalidSetting("no such file or folder", path=os.fspath(source))
    shown = repr(source if len(source) <= 60 else source[:60] + "...")
    return InvalidSetting(
        f"docs is a str but no such file or folder is there: {shown}; to index one text pass [text]"
    )


def _file_of_folder(folder: Path) -> Path:
    found = sorted(file for file in folder.iterdir() if file.name.lower() in _FILE_NAMES and file.is_file())
    if len(found) != 1:
        raise InvalidSetting(
            "docs is a folder, but not with one corpus file",
            path=folder,
            expected=f"one of {', '.join(_FILE_NAMES)}",
            actual=", ".join(file.name for file in found) or "none of them",
        )
    return found[0]
