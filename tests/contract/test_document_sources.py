"""The contract of document sources: iterables of all kinds, plain and compressed files, BEIR folders."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from quarry.engine.documents.document import Document, document_from
from quarry.engine.documents.reader import DocumentSource, DocumentStream, read_documents
from quarry.formats.errors import InvalidDocument

DOCUMENTS = (
    {"id": "plain", "text": "some text"},
    {"id": "é", "title": "a title", "text": ""},
    {"id": "3", "text": "文 and \U0001f600\nin two lines", "metadata": {"n": 1, "deep": {"x": [None]}}},
    {"id": " ", "text": "\ufeffa byte order mark inside", "title": "t"},
)  # fmt: skip
INVALID = (
    {"id": "x", "text": " "},
    {"id": "x"},
    {"id": "x", "text": "a", "unknown": 1},
    {"id": 1, "text": "a"},
    17,
)
Item = object


class Source(NamedTuple):
    """A kind of source.

    Attributes:
        make: creates a source of some documents below a folder.
        place: format of a document's position in errors, counted from 1.
    """

    make: Callable[[Path, Sequence[Item]], DocumentSource]
    place: str = "document {}"


class Lazy(Iterable[object]):
    """An iterable that is neither a sequence nor an iterator."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items

    def __iter__(self) -> Iterable[object]:  # type: ignore[override]
        return iter(self._items)


def encode(items: Sequence[Item]) -> bytes:
    return b"".join(json.dumps(item, ensure_ascii=False).encode() + b"\n" for item in items)


def in_file(name: str, compress: Callable[[bytes], bytes], folder: Path, items: Sequence[Item]) -> Path:
    path = folder / name
    path.write_bytes(compress(encode(items)))
    return path


def as_on_windows(content: bytes) -> bytes:
    return b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")


def in_folder(folder: Path, items: Sequence[Item]) -> Path:
    (folder / "queries.jsonl").write_bytes(b"not read")
    in_file("corpus.jsonl", bytes, folder, items)
    return folder


def in_frames(content: bytes) -> bytes:
    """Compress each line into a separate frame, as programs do that append to a file."""
    return b"".join(map(zstandard.ZstdCompressor().compress, content.splitlines(keepends=True)))


SOURCES = {
    "list": Source(lambda _, items: list(items)),
    "tuple": Source(lambda _, items: tuple(items)),
    "generator": Source(lambda _, items: (item for item in items)),
    "iterable": Source(lambda _, items: Lazy(items)),
    "values of a dict": Source(lambda _, items: dict(enumerate(items)).values()),
    "str path": Source(lambda folder, items: str(in_file("docs.jsonl", bytes, folder, items)), "line {}"),
    "jsonl": Source(partial(in_file, "docs.jsonl", bytes), "line {}"),
    "windows": Source(partial(in_file, "DOCS.JSONL", as_on_windows), "line {}"),
    "gzip": Source(partial(in_file, "docs.jsonl.gz", gzip.compress), "line {}"),
    "zstandard": Source(partial(in_file, "docs.jsonl.zst", zstandard.ZstdCompressor().compress), "line {}"),
    "zstandard frames": Source(partial(in_file, "docs.jsonl.zst", in_frames), "line {}"),
    "beir folder": Source(in_folder, "line {}"),
}  # fmt: skip


@pytest.fixture(params=SOURCES.values(), ids=SOURCES)
def source(request: pytest.FixtureRequest) -> Source:
    chosen: Source = request.param
    return chosen


def fields(document: Document) -> dict[str, object]:
    return {
        "id": document.id,
        "title": document.title,
        "text": document.text,
        "metadata": dict(document.metadata),
    }


def drain(stream: DocumentStream) -> list[Document]:
    try:
        return list(stream)
    finally:
        stream.close()


def test_documents_are_read_in_order_with_every_field(source: Source, tmp_path: Path) -> None:
    stream = read_documents(source.make(tmp_path, DOCUMENTS))
    assert [fields(document) for document in drain(stream)] == [
        {"title": "", "metadata": {}} | document for document in DOCUMENTS
    ]
    assert (stream.n_read, stream.n_skipped, stream.first_errors) == (len(DOCUMENTS), 0, [])


def test_a_document_records_its_origin(source: Source, tmp_path: Path) -> None:
    documents = drain(read_documents(source.make(tmp_path, DOCUMENTS)))
    for number, document in enumerate(documents, 1):
        assert f"{source.place.format(number)} (id {document.id!r})" in document.origin


def test_a_source_without_documents(source: Source, tmp_path: Path) -> None:
    stream = read_documents(source.make(tmp_path, ()))
    assert drain(stream) == []
    assert stream.n_expected() is None


def test_documents_are_read_when_they_are_needed(source: Source, tmp_path: Path) -> None:
    stream = read_documents(source.make(tmp_path, (*DOCUMENTS, *INVALID)))
    documents = iter(stream)
    assert stream.n_read == 0
    for n_read, document in enumerate(DOCUMENTS, 1):
        assert next(documents).id == document["id"]
        assert stream.n_read == n_read
    stream.close()


@pytest.mark.parametrize("invalid", INVALID)
def test_an_invalid_document_is_named_by_its_place(source: Source, tmp_path: Path, invalid: object) -> None:
    stream = read_documents(source.make(tmp_path, (*DOCUMENTS[:2], invalid, *DOCUMENTS[2:])))
    with pytest.raises(InvalidDocument) as caught:
        drain(stream)
    assert source.place.format(3) in str(caught.value)
    assert stream.n_read == 2
    given = caught.value.path
    assert (given is None) == (source.place == "document {}")


def test_invalid_documents_are_skipped_counted_and_reported(source: Source, tmp_path: Path) -> None:
    items = (*DOCUMENTS[:1], *INVALID, *DOCUMENTS[1:], *INVALID, *INVALID)
    stream = read_documents(source.make(tmp_path, items), skip_invalid=True)
    assert [document.id for document in drain(stream)] == [document["id"] for document in DOCUMENTS]
    assert (stream.n_read, stream.n_skipped) == (len(DOCUMENTS), 3 * len(INVALID))
    assert len(stream.first_errors) == 10
    assert [source.place.format(number) in error for number, error in enumerate(stream.first_errors[:5], 2)] == [
        True
    ] * 5


def test_an_error_found_later_counts_as_a_skipped_document(source: Source, tmp_path: Path) -> None:
    error = InvalidDocument("too long for the encoder")
    strict = read_documents(source.make(tmp_path, DOCUMENTS))
    with pytest.raises(InvalidDocument, match="too long for the encoder"):
        strict.skip(error)
    stream = read_documents(source.make(tmp_path, DOCUMENTS), skip_invalid=True)
    stream.skip(error)
    assert (stream.n_skipped, stream.first_errors) == (1, [str(error)])
    strict.close()
    stream.close()


def test_progress_ends_at_the_number_of_documents(source: Source, tmp_path: Path) -> None:
    stream = read_documents(source.make(tmp_path, DOCUMENTS * 50))
    fractions = [stream.fraction_read() for _ in stream]
    if fractions[0] is None:  # the size of a generator is unknown
        assert set(fractions) == {None}
        assert stream.n_expected() is None
    else:
        assert fractions == sorted(fractions)  # type: ignore[type-var]
        assert fractions[-1] == 1.0
        assert stream.n_expected() == 50 * len(DOCUMENTS)
    stream.close()


def test_reading_may_stop_early(source: Source, tmp_path: Path) -> None:
    stream = read_documents(source.make(tmp_path, DOCUMENTS))
    documents = iter(stream)
    next(documents)
    stream.close()
    stream.close()
    del documents  # an open file would raise a ResourceWarning, which fails the test


def test_items_of_an_iterable_may_be_texts_mappings_and_documents() -> None:
    made = document_from({"id": "made", "text": "c"}, "here")
    documents = drain(read_documents(["a", {"text": "b"}, made]))
    assert [document.text for document in documents] == ["a", "b", "c"]
    assert len({document.id for document in documents}) == 3
