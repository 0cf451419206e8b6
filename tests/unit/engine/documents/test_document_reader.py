"""Documents from iterables, files and folders; errors name the position of invalid lines."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from quarry.engine.documents.document import Document
from quarry.engine.documents.lines import MAX_LINE_BYTES, LineReader
from quarry.engine.documents.reader import read_documents
from quarry.engine.documents.tables.columns import Columns
from quarry.formats.errors import InvalidDocument, InvalidSetting

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst")


def compressed(content: bytes, ending: str) -> bytes:
    if ending.endswith(".gz"):
        return gzip.compress(content)
    return zstandard.ZstdCompressor().compress(content) if ending.endswith(".zst") else content


def write(folder: Path, content: bytes, ending: str = ".jsonl") -> Path:
    path = folder / f"documents{ending}"
    path.write_bytes(compressed(content, ending))
    return path


def lines(n_documents: int) -> bytes:
    return b"".join(b'{"id": "%d", "text": "text %d"}\n' % (i, i) for i in range(n_documents))


def ids(source: object) -> list[str]:
    return [document.id for document in read_documents(source)]  # type: ignore[arg-type]


def message_of(path: Path) -> str:
    with pytest.raises(InvalidDocument) as caught:
        list(read_documents(path))
    assert caught.value.path == path
    return str(caught.value)


class Place:
    """A path-like object that is not a `Path`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __fspath__(self) -> str:
        return str(self._path)


def test_any_kind_of_path_is_read(tmp_path: Path) -> None:
    assert ids(Place(write(tmp_path, lines(3)))) == ["0", "1", "2"]
    with pytest.raises(InvalidSetting, match="no such file"):
        read_documents(Place(tmp_path / "missing"))


# Iterables


def test_an_iterable_may_hold_every_kind_of_document() -> None:
    given = ["one", {"id": "b", "text": "two"}, Document("c", "three")]
    documents = list(read_documents(iter(given)))
    assert [document.text for document in documents] == ["one", "two", "three"]
    assert [document.id for document in documents[1:]] == ["b", "c"]


def test_a_bad_document_is_named_by_its_place() -> None:
    with pytest.raises(InvalidDocument, match="document 3"):
        list(read_documents(["a", "b", " "]))


def test_an_iterable_is_read_as_it_is_used() -> None:
    taken: list[int] = []

    def endless():
        while True:
            taken.append(1)
            yield "text"

    documents = iter(read_documents(endless()))
    next(documents)
    next(documents)
    assert len(taken) == 2


@pytest.mark.parametrize("source", [b"bytes", {"text": "a"}, Document("a", "b"), 5, None])
def test_values_that_are_not_sources_are_refused(source: object) -> None:
    with pytest.raises(InvalidSetting, match=type(source).__name__):
        read_documents(source)  # type: ignore[arg-type]


COLUMNS = {"id": ["a", "b"], "text": ["one", "two"]}
TABLES: dict[str, Callable[[], object]] = {
    "pandas": lambda: pytest.importorskip("pandas").DataFrame(COLUMNS),
    "polars": lambda: pytest.importorskip("polars").DataFrame(COLUMNS),
    "polars, lazy": lambda: pytest.importorskip("polars").LazyFrame(COLUMNS),
    "pyarrow": lambda: pytest.importorskip("pyarrow").table(COLUMNS),
    "pyarrow, a batch": lambda: pytest.importorskip("pyarrow").RecordBatch.from_pydict(COLUMNS),
    "pyarrow, batches": lambda: pytest.importorskip("pyarrow").table(COLUMNS).to_reader(),
    "columns": lambda: COLUMNS,
}


@pytest.mark.parametrize("kind", [kind for kind in TABLES if kind != "columns"])
def test_the_rows_of_a_table_are_documents(kind: str) -> None:
    assert [(doc.id, doc.text) for doc in read_documents(TABLES[kind]())] == [("a", "one"), ("b", "two")]


def test_columns_are_refused_and_their_rows_are_read() -> None:
    with pytest.raises(InvalidSetting, match=r"its rows as dicts: .*found dict") as caught:
        read_documents(COLUMNS)
    rows = eval(str(caught.value.expected).partition(": ")[2], {"docs": COLUMNS})  # copied as a user would
    assert [(doc.id, doc.text) for doc in read_documents(rows)] == [("a", "one"), ("b", "two")]


@pytest.mark.parametrize("kind", [kind for kind in TABLES if kind != "columns"])
def test_a_table_among_documents_is_refused(kind: str) -> None:
    with pytest.raises(InvalidDocument, match="document 2: not a document; expected its rows as dicts"):
        list(read_documents(["a", TABLES[kind]()]))  # type: ignore[list-item]


def test_columns_among_documents_are_refused() -> None:
    with pytest.raises(InvalidDocument, match=r"document 1: field 'id' is not a str; .* found list"):
        list(read_documents([COLUMNS]))


def test_other_tables_are_known_by_their_classes() -> None:
    class DataFrame(list[str]):
        """A table of an unknown library."""

    class Inherited(DataFrame):
        pass

    class Interchanged(list[str]):
        def __dataframe__(self) -> None:
            raise AssertionError

    for kind in (DataFrame, Inherited, Interchanged):
        with pytest.raises(InvalidSetting, match="its rows, each a dict"):
            read_documents(kind(["id", "text"]))


def test_one_column_of_a_table_holds_texts() -> None:
    for library in ("pandas", "polars"):
        table = pytest.importorskip(library).DataFrame(COLUMNS)
        assert [doc.text for doc in read_documents(table["text"])] == ["one", "two"]


def test_paths_in_the_place_of_texts_are_refused(tmp_path: Path, monkeypatch) -> None:
    write(tmp_path, lines(3))
    (tmp_path / "some notes.txt").touch()
    (tmp_path / "word").touch()
    monkeypatch.chdir(tmp_path)
    paths = [
        "documents.jsonl",
        "./documents.jsonl",
        str(tmp_path),
        "some notes.txt",
        Path("missing"),
        Place(tmp_path),
    ]
    for path in paths:
        with pytest.raises(
            InvalidDocument, match=r"document 2: the path of a file or folder.*expected the path alone"
        ):
            list(read_documents(["fine", path]))  # type: ignore[list-item]
    stream = read_documents(["fine", *paths], skip_invalid=True)  # type: ignore[list-item]
    assert ([doc.text for doc in stream], stream.n_skipped) == (["fine"], len(paths))
    texts = [
        "word",
        "missing.jsonl",
        "and/or",
        "a\nb.txt",
        "nul\0.txt",
        "ends with a full stop.",
        "..",
        "./",
        "x." * 3000,
    ]
    read = read_documents([*texts, {"text": "documents.jsonl"}])
    assert [doc.text for doc in read] == [*texts, "documents.jsonl"]


def test_an_open_file_of_documents_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, lines(3))
    with path.open() as file, pytest.raises(InvalidSetting, match="expected the path of the file"):
        read_documents(file)
    texts = tmp_path / "texts.txt"
    texts.write_text("one\ntwo\n")
    with texts.open() as file:
        assert [doc.text for doc in read_documents(file)] == ["one\n", "two\n"]


@pytest.mark.parametrize("text", ["one text", "long " * 5000, "nul \0"])
def test_a_text_instead_of_a_path_is_explained(text: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSetting, match=r"pass \[text\]") as caught:
        read_documents(text)
    assert len(str(caught.value)) < 300


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="no such file") as caught:
        read_documents(tmp_path / "none.jsonl")
    assert caught.value.path == tmp_path / "none.jsonl"


# Files and folders


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", [str, Path])
def test_files_of_every_kind_are_read(tmp_path: Path, ending: str, kind: type) -> None:
    stream = read_documents(kind(write(tmp_path, lines(1000), ending)))
    assert stream.fraction_read() == 0.0
    documents = list(stream)
    assert [document.id for document in documents] == [str(i) for i in range(1000)]
    assert documents[7].text == "text 7"
    assert (stream.n_read, stream.n_skipped, stream.fraction_read()) == (1000, 0, 1.0)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_beir_folder_is_read(tmp_path: Path, ending: str) -> None:
    content = b'{"_id": "d1", "title": "", "text": "one", "metadata": {}}\n'
    (tmp_path / f"corpus{ending}").write_bytes(compressed(content, ending))
    (tmp_path / "queries.jsonl").write_bytes(b"{}")
    assert ids(tmp_path) == ["d1"]


@pytest.mark.parametrize("name", ["Corpus.JSONL", "CORPUS.JSONL.GZ", "corpus.jsonl.Zst"])
def test_endings_may_be_in_capitals(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(compressed(lines(3), path.suffix.lower()))
    assert ids(path) == ids(tmp_path) == ["0", "1", "2"]


def test_a_folder_without_one_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="without a file that is read"):
        read_documents(tmp_path)
    for ending in ENDINGS:
        (tmp_path / f"corpus{ending}").write_bytes(b"")
    with pytest.raises(InvalidSetting, match=r"corpus.jsonl, corpus.jsonl.gz"):
        read_documents(tmp_path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "documents.xyz"
    path.write_bytes(b"")
    with pytest.raises(InvalidSetting, match=r"\.jsonl\.zst"):
        read_documents(path)


def test_a_whole_collection_is_read(data_folder: Callable[[str], Path]) -> None:
    documents = list(read_documents(data_folder("cranfield")))
    assert len(documents) == len({document.id for document in documents}) == 1398


@pytest.mark.parametrize("ending", ENDINGS)
def test_several_compressed_parts_are_one_file(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path, lines(10), ending)
    path.write_bytes(path.read_bytes() * 3)
    assert ids(path) == [str(i) for i in range(10)] * 3


def test_byte_order_mark_blank_lines_and_line_ends_are_skipped(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"id": "a", "text": "x"}\r\n\r\n  \n{"id": "b", "text": "y"}'
    assert ids(write(tmp_path, content)) == ["a", "b"]
    assert ids(write(tmp_path, b"")) == []


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r\r\n"])
def test_lines_after_many_empty_ones_keep_their_numbers(tmp_path: Path, ending: str, line_end: bytes) -> None:
    """Line numbers are right after runs of empty lines that are shorter or longer than the read buffers."""
    content, numbers = b"", []
    for n_empty in (0, 1, 20, 40_000, 300_000):
        content += line_end * n_empty + b"\rno JSON" + line_end
        numbers.append(content.count(b"\n"))
    path = write(tmp_path, content + line_end * 100, ending)
    stream = read_documents(path, skip_invalid=True)
    assert list(stream) == []
    assert [message.split(" is not JSON")[0] for message in stream.first_errors] == [
        f"{path}: line {number}" for number in numbers
    ]


BAD_LINES = {
    b'{"id": "a", "id": "b", "text": "x"}': "has the key 'id' twice in one object",
    b"not json": "not JSON",
    b'{"text": "a"': "not JSON",
    b'{"text": "a"} {}': "not JSON",
    b"[" * 100_000: "not JSON",
    b'{"text": "a", "metadata": {"n": ' + b"9" * 10_000 + b"}}": "not JSON",
    b'{"text": "\xff"}': "not UTF-8 at byte 10",
    b'["text"]': "not a JSON object",
    b"null": "not a JSON object",
    b'{"text": "a", "url": "u"}': "'url'",
    b'{"text": "\\ud800"}': "lone surrogate",
    b'{"text": "a", "metadata": {"x": NaN}}': "metadata.x",
    b'{"_id": 3, "text": "a"}': "'_id'",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=BAD_LINES.values())
def test_a_bad_line_is_named(tmp_path: Path, line: bytes) -> None:
    message = message_of(write(tmp_path, lines(1) + b"\n" + line + b"\n" + lines(1)))
    assert "line 3" in message
    assert BAD_LINES[line] in message


def test_bad_lines_are_skipped_and_counted_on_demand(tmp_path: Path) -> None:
    path = write(tmp_path, b"".join(line + b"\n" for line in BAD_LINES) + lines(2))
    stream = read_documents(path, skip_invalid=True)
    assert [document.id for document in stream] == ["0", "1"]
    assert (stream.n_read, stream.n_skipped) == (2, len(BAD_LINES))
    assert len(stream.first_errors) == 10
    assert "line 1" in stream.first_errors[0]
    assert str(path) in stream.first_errors[0]


def test_bad_documents_of_an_iterable_are_skipped_too() -> None:
    stream = read_documents(["a", "", 5, "b"], skip_invalid=True)  # type: ignore[list-item]
    assert [document.text for document in stream] == ["a", "b"]
    assert stream.n_skipped == 2


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst"])
@pytest.mark.parametrize("skip_invalid", [False, True])
def test_a_truncated_file_is_reported(tmp_path: Path, ending: str, skip_invalid: bool) -> None:
    path = write(tmp_path, lines(10_000), ending)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(InvalidDocument, match=r"damaged after line \d+") as caught:
        list(read_documents(path, skip_invalid))
    assert caught.value.path == path


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst"])
def test_a_file_that_is_not_compressed_is_reported(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"documents{ending}"
    path.write_bytes(lines(3))
    assert "damaged after line 0" in message_of(path)


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst"])
def test_garbage_after_a_compressed_part_is_reported(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path, lines(3), ending)
    path.write_bytes(path.read_bytes() + b"garbage after the end")
    assert "damaged" in message_of(path)


def test_a_line_of_the_longest_length_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, b"a" * 100 + b"\r\n" + b"b" * 101 + b"\n" + b"c")
    assert list(LineReader(path, max_line_bytes=100)) == [(1, b"a" * 100), (2, None), (3, b"c")]


def test_an_endless_line_costs_bounded_memory(tmp_path: Path) -> None:
    path = write(tmp_path, lines(1) + b" " * (4 * MAX_LINE_BYTES) + b"\n" + lines(1), ".jsonl.zst")
    tracemalloc.start()
    try:
        stream = read_documents(path, skip_invalid=True)
        assert [document.id for document in stream] == ["0", "0"]
        assert "line 2 is too long" in stream.first_errors[0]
        assert tracemalloc.get_traced_memory()[1] < 2.7 * MAX_LINE_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_line_that_is_too_long_is_refused_before_its_end_is_read(tmp_path: Path, ending: str) -> None:
    noise = np.random.default_rng(0).bytes(2 << 20).replace(b"\n", b" ")  # more than one buffer of compressed data
    reader = LineReader(write(tmp_path, b"a\n" + noise, ending), max_line_bytes=1000)
    found = iter(reader)
    assert next(found)[0] == 1
    assert next(found) == (2, None)
    assert reader.fraction_read() < 0.4
    reader.close()


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_line_that_does_not_end_is_not_read_to_find_the_next_one(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path, b" " * 9000 + b"\n" + lines(1), ending)
    found = iter(LineReader(path, max_line_bytes=1000, max_skipped_bytes=8000))
    assert next(found) == (1, None)
    with pytest.raises(InvalidDocument, match=r"line 1 does not end.* within 8000 bytes") as caught:
        next(found)
    assert caught.value.path == path


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst"])
def test_damage_within_a_skipped_line_is_reported(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path, np.random.default_rng(0).bytes(5000).replace(b"\n", b" "), ending)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidDocument, match="damaged after line 1"):
        list(LineReader(path, max_line_bytes=1000))


# Progress


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_fraction_read_grows_to_one(tmp_path: Path, ending: str) -> None:
    stream = read_documents(write(tmp_path, lines(10_000), ending))
    fractions = [stream.fraction_read() for _ in stream]
    assert all(fraction is not None and 0 < fraction <= 1 for fraction in fractions)
    assert fractions == sorted(fractions)  # type: ignore[type-var]
    assert len(set(fractions)) > 5 or ending != ".jsonl"
    assert stream.n_expected() == 10_000


def test_the_size_of_a_list_is_known_and_of_a_generator_not() -> None:
    stream = read_documents(["a", "b", "c", "d"])
    next(iter(stream))
    assert (stream.fraction_read(), stream.n_expected()) == (0.25, 4)
    stream = read_documents(text for text in ["a", "b"])
    next(iter(stream))
    assert (stream.fraction_read(), stream.n_expected()) == (None, None)


def test_a_file_is_closed_when_reading_stops(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps({"text": "a"}).encode() + b"\n" + b"bad")
    documents = iter(read_documents(path))
    next(documents)
    del documents  # an open file raises a ResourceWarning, which fails the test


def test_integers_as_ids_of_objects_are_taken_as_the_message_says(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": 7, "text": "x"}\n{"id": 8, "text": "y", "metadata": {"n": 1}}\n')
    with pytest.raises(
        InvalidDocument, match="when the field is named: id='id', on the command line --id id; found int"
    ):
        list(read_documents(path))
    found = read_documents(path, columns=Columns.of("id", None, None))
    assert [(each.id, each.text, dict(each.metadata)) for each in found] == [("7", "x", {}), ("8", "y", {"n": 1})]
