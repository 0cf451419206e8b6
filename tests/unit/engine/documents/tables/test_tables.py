"""Rows of tables as documents: columns, conversion of values, and errors."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from quarry import engine
from quarry.engine.documents.document import Document
from quarry.engine.documents.lines import MAX_LINE_BYTES
from quarry.engine.documents.reader import read_documents
from quarry.engine.documents.tables.columns import Columns
from quarry.engine.documents.tables.parquet_pages import PageLimits, bounded_batch_rows
from quarry.engine.documents.tables.values import MISSING, id_from, plain_value, text_from
from quarry.formats.errors import InvalidDocument, InvalidSetting


def read(source: object, **columns: object) -> list[Document]:
    settings = Columns.of(columns.get("id"), columns.get("text"), columns.get("title"))
    return list(read_documents(source, columns=settings))


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


# Values

MOMENT = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
VALUES = [
    (None, MISSING),
    (float("nan"), MISSING),
    (np.float32("nan"), MISSING),
    (np.datetime64("NaT"), MISSING),
    (Decimal("NaN"), MISSING),
    (True, True),
    (np.bool_(False), False),
    (np.int8(-3), -3),
    (np.float64(0.5), 0.5),
    (np.longdouble(2), 2.0),
    (np.str_("a"), "a"),
    (np.datetime64("2024-05-06"), "2024-05-06"),
    (np.datetime64("2024-05"), "2024-05-01"),
    (np.datetime64("2024-05-06T07", "h"), "2024-05-06T07:00:00"),
    (np.datetime64("2024-05-06T12", "ns"), "2024-05-06T12:00:00"),
    (np.datetime64("2024-05-06T12:00:00.1", "ns"), "2024-05-06T12:00:00.100000"),
    (np.datetime64("1969-12-31T23:59:59.999999999", "ns"), "1969-12-31T23:59:59.999999999"),
    (np.datetime64("1970-01-01T00:00:00.000000000001", "ps"), "1970-01-01T00:00:00.000000000001"),
    (np.datetime64("1970-01-01T00:00:00.000000001", "ps"), "1970-01-01T00:00:00.000000001"),
    (np.array(np.datetime64("2024-05-06T12", "ns")), "2024-05-06T12:00:00"),
    (np.ma.masked, MISSING),
    (np.timedelta64("NaT"), MISSING),
    (np.timedelta64("NaT", "Y"), MISSING),
    (np.timedelta64(1_500, "ms"), 1.5),
    (np.timedelta64(1, "ns"), 1e-9),
    (np.timedelta64(10**15, "s"), 1e15),
    (np.timedelta64(90, "m"), 5400.0),
    (MOMENT, "2024-05-06T07:08:09+00:00"),
    (date(2024, 5, 6), "2024-05-06"),
    (time(7, 8), "07:08:00"),
    (timedelta(minutes=1, milliseconds=500), 60.5),
    (Decimal("3.00"), 3),
    (Decimal("2.5"), 2.5),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    ((1, None, "a"), [1, None, "a"]),
    ({"a": np.int64(1), "b": None}, {"a": 1}),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=[repr(value)[:40] for value, _ in VALUES])
def test_values_become_plain_ones(value: object, expected: object) -> None:
    plain = plain_value(value)
    assert plain == expected
    assert type(plain) is type(expected)


def test_values_of_unknown_kinds_stay_and_are_refused() -> None:
    for value in (
        b"bytes",
        1j,
        np.timedelta64(1, "Y"),
        np.datetime64("20200-01-01"),
        np.datetime64("20200-01-01T12", "s"),
        {1, 2},
    ):
        assert plain_value(value) is value
        with pytest.raises(InvalidDocument, match=r"metadata\.x.*cannot be stored"):
            read([{"body": "a", "x": value}], text="body")
    with pytest.raises(InvalidDocument, match="found inf"):
        read([{"body": "a", "x": Decimal("1e999")}], text="body")


def test_nesting_without_end_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidDocument, match=r"metadata\.x.*nested too deep"):
        read([{"body": "a", "x": loop}], text="body")


def test_ids_and_texts_of_numbers() -> None:
    assert [id_from(value) for value in (7, np.int64(8), 9.0, "x", Decimal(3))] == ["7", "8", "9", "x", "3"]
    assert [id_from(value) for value in (0.5, True)] == [0.5, True]
    assert id_from(float("nan")) is MISSING
    assert [text_from(value) for value in (2024, 0.5, None, date(2024, 1, 2))] == ["2024", "0.5", "", "2024-01-02"]
    assert text_from(True) is True


# Columns


def test_columns_are_mapped() -> None:
    row = {"key": 5, "head": "H", "body": "B", "more": None, "end": "E", "year": np.int32(2020), "gone": None}
    (document,) = read([row], id="key", text=["body", "more", "end"], title="head")
    assert (document.id, document.title, document.text) == ("5", "H", "B\nE")
    assert document.metadata == {"year": 2020}


def test_a_column_of_metadata_is_added_to_the_others() -> None:
    (document,) = read([{"body": "a", "metadata": {"x": 1}, "y": 2}], text="body")
    assert document.metadata == {"x": 1, "y": 2}
    (document,) = read([{"body": "a", "metadata": "text"}], text="body")
    assert document.metadata == {"metadata": "text"}
    with pytest.raises(InvalidDocument, match="'metadata' and the row both have 'x'"):
        read([{"body": "a", "metadata": {"x": 1}, "x": 2}], text="body")


@pytest.mark.parametrize(
    ("row", "columns", "message"),
    [
        (
            {"a": "x", "b": "y"},
            {"title": "a"},
            r"no column 'text'; expected text='NAME'.*found the columns 'a', 'b'",
        ),
        ({"a": "x"}, {"text": "b"}, "no column 'b'"),
        ({"a": "x", "k": None}, {"text": "a", "id": "k"}, "'k' is missing, and it is the id"),
        ({"a": "x"}, {"text": "a", "id": "k"}, "'k' is missing, and it is the id"),
        ({"a": "x", "k": 1.5}, {"text": "a", "id": "k"}, "'k' is not a str or an int.*found float"),
        ({"a": ["x"]}, {"text": "a"}, "'a' is not a text.*found list"),
        ({"a": None}, {"text": "a"}, "is blank"),
    ],
)
def test_errors_of_rows_say_how_to_map(row: object, columns: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidDocument, match=f"document 1: .*{message}"):
        read([row], **columns)


@pytest.mark.parametrize("columns", [{"id": 3}, {"text": 3}, {"text": ["a", None]}, {"title": b"a"}, {"text": []}])
def test_names_of_columns_are_checked(columns: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(columns))):
        Columns.of(columns.get("id"), columns.get("text"), columns.get("title"))
    with pytest.raises(InvalidSetting, match="named twice"):
        Columns.of("a", ["b", "a"], None)


def test_fields_of_its_own_in_a_document_are_explained() -> None:
    with pytest.raises(InvalidDocument, match=r"unknown fields: 'body'.*text='NAME'"):
        read([{"body": "a"}])


# CSV and TSV


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "T.TSV", "t.tsv.gz"])
def test_delimited_files(tmp_path: Path, name: str) -> None:
    mark = "\t" if "tsv" in name.lower() else ","
    rows = [
        ["id", "text", "year", "code", "share"],
        ["1", '"a\nb"', "2020", "007", "0.5"],
        ["2", "c", "", "12", "1"],
    ]
    path = write(tmp_path, name, "\ufeff" + "\r\n".join(mark.join(row) for row in rows) + "\r\n\r\n")
    first, second = read(path)
    assert (first.id, first.text) == ("1", "a\nb")
    assert first.metadata == {"year": 2020, "code": "007", "share": 0.5}
    assert second.metadata == {"code": "12", "share": 1.0}


def test_the_comma_of_a_file_is_found(tmp_path: Path) -> None:
    (document,) = read(write(tmp_path, "t.csv", 'id;"a;,,,b";text\n1;2;"x, y"\n'))
    assert (document.text, document.metadata) == ("x, y", {"a;,,,b": 2})


@pytest.mark.parametrize("comma", ",;\t|")
@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\n\n"])
def test_the_comma_is_found_if_names_of_columns_have_line_breaks(
    tmp_path: Path, comma: str, line_break: str
) -> None:
    header = [f'"a ""long,,,{line_break}"" name;;;"', "text", f'"||||{line_break}|"', "id"]
    row = ["1", '"the moon, the tides; the sea"', '"x\ny"', "a"]
    text = comma.join(header) + line_break + comma.join(row) + line_break + "2"
    path = write(tmp_path, "t.csv", text)
    stream = read_documents(path, skip_invalid=True)
    (document,) = stream
    assert (document.id, document.text) == ("a", "the moon, the tides; the sea")
    lines = line_break.replace("\r", "")
    assert document.metadata == {f'a "long,,,{lines}" name;;;': 1, f"||||{lines}|": "x\ny"}
    assert f"line {1 + text.count(chr(10))} has too few values" in stream.first_errors[0]


def test_a_quotation_mark_in_a_header_that_does_not_begin_a_name_in_quotes(tmp_path: Path) -> None:
    rows = "".join(f"{n};it, that, those;x,,,\n" for n in range(3))
    assert len(read(write(tmp_path, "a.csv", f'5" disk;text;n\n{rows}'))) == 3
    assert len(read(write(tmp_path, "b.csv", f'n;text;or,"x\n{rows}'))) == 3


def test_numbers_are_those_that_come_back_as_they_were_written(tmp_path: Path) -> None:
    columns = {
        "i": "-5",
        "plus": "+5",
        "big": "12345678901234567890",
        "f": "1.25",
        "e": "1e3",
        "nan": "nan",
        "x": "0x1",
    }
    path = write(tmp_path, "t.csv", f"text,{','.join(columns)}\na,{','.join(columns.values())}\n")
    (document,) = read(path)
    assert document.metadata == {**columns, "i": -5, "f": 1.25, "e": 1000.0}


def test_short_rows_miss_values_and_long_ones_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "id,text,n\na,x\nb,y,1,2\nc,z,3\n")
    stream = read_documents(path, skip_invalid=True)
    assert [document.id for document in stream] == ["a", "c"]
    assert "line 3 has too many values; expected 3, as there are columns; found 4" in stream.first_errors[0]


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("id,text\na,x\nb\n", {}, "line 3 has too few values; expected 2; found 1"),
        ("text,id\nx,a\ny\n", {}, "line 3 has too few values; expected 2; found 1"),
        ("n,text,m\n1,x,2\n1\n", {}, "line 3 has too few values; expected at least 2, up to the id"),
        ("k,t,u,m\na,x,y,2\nb\n", {"id": "k", "text": ["u", "t"]}, "expected at least 2, up to the id"),
    ],
)
def test_rows_that_end_before_their_id_or_text(
    tmp_path: Path, content: str, columns: dict[str, object], message: str
) -> None:
    path = write(tmp_path, "t.csv", content)
    mapping = Columns.of(columns.get("id"), columns.get("text"), None)
    stream = read_documents(path, skip_invalid=True, columns=mapping)
    assert len(list(stream)) == 1
    assert message in stream.first_errors[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id,text\na,\xff\n", "line 2 is not UTF-8 at byte 2"),
        (b'id,text\na,"x', "line 2 is not a row"),
        (b'id,text\na,"x"y\n', "line 2 is not a row"),
        (b"id,text\na," + b"x" * (MAX_LINE_BYTES + 1), "line 2 is too long"),
        (b'id,text\na,"' + b"x\n" * (3 << 20), "not a row"),
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InvalidDocument, match=message):
        read(write(tmp_path, "t.csv", content))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.csv.zst", "t.jsonl"])
def test_files_in_utf_16(tmp_path: Path, encoding: str, name: str) -> None:
    rows = [{"id": f"é{n}", "text": "東京 \U0001f600 " + "long " * (n % 7 * 4000), "n": n} for n in range(20)]
    separator = "\t" if "tsv" in name else ";"
    lines = ["id;text;n".replace(";", separator), *(separator.join(map(str, row.values())) for row in rows)]
    if "jsonl" in name:
        lines = [json.dumps({"id": row["id"], "text": row["text"]}, ensure_ascii=False) for row in rows]
    content = ("\ufeff" + "\r\n".join(lines)).encode(encoding)
    path = tmp_path / name
    compressed = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}
    path.write_bytes(compressed.get(path.suffix, bytes)(content))
    assert [(each.id, each.text) for each in read(path)] == [(row["id"], row["text"]) for row in rows]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("\ufeffid,text\na,b\n".encode("utf-16-le")[:-1], 2),  # ends inside a character
        ("\ufeffid,text\na,\ud800x\n".encode("utf-16-le", "surrogatepass"), 2),
        ("\ufeffid,text\na,b\n".encode("utf-16-be") + b"\xd8\x00", 3),  # ends inside a pair
    ],
)
def test_damaged_utf_16(tmp_path: Path, content: bytes, line: int) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidDocument, match=f"line {line} is not UTF-8"):
        read(path)


def test_columns_of_files_are_checked_before_rows(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"no column 'text'; expected text='NAME'.*'body'"):
        read(write(tmp_path, "t.csv", "id,body\na,x\n"))
    with pytest.raises(InvalidSetting, match=r"no column 'key'; expected id='NAME'"):
        read(write(tmp_path, "t.csv", "id,text\na,x\n"), id="key")
    with pytest.raises(InvalidSetting, match="two columns have the name 'a'"):
        read(write(tmp_path, "t.csv", "a,a,text\n"))
    assert read(write(tmp_path, "t.csv", "")) == []
    assert read(write(tmp_path, "t.csv", "id,text\n")) == []
    (document,) = read(write(tmp_path, "t.csv", ",text\n0,x\n"))
    assert document.metadata == {"column 1": 0}


# JSON


def items(n_items: int, rng: random.Random) -> list[dict[str, str]]:
    return [{"id": str(n), "text": "é" * rng.choice([1, 10, 70_000, 200_000])} for n in range(n_items)]


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_arrays_are_read_item_by_item(tmp_path: Path, name: str, indent: int | None) -> None:
    given = items(60, random.Random(7))
    path = write(tmp_path, name, "\ufeff \n" + json.dumps(given, indent=indent, ensure_ascii=False) + "\n ")
    stream = read_documents(path)
    assert stream.fraction_read() == 0.0
    assert [{"id": document.id, "text": document.text} for document in stream] == given
    assert stream.fraction_read() == 1.0
    assert [document.text for document in read(path, text="text", id="id")] == [each["text"] for each in given]


def test_json_may_hold_lines_too(tmp_path: Path) -> None:
    assert [each.id for each in read(write(tmp_path, "t.json", '\n{"id": "a", "text": "x"}\n'))] == ["a"]
    assert [each.id for each in read(write(tmp_path, "t.ndjson", '{"id": "a", "text": "x"}\n'))] == ["a"]
    (document,) = read(write(tmp_path, "t.jsonl", '{"key": 1, "body": "x", "n": null}\n'), id="key", text="body")
    assert (document.id, document.metadata) == ("1", {})
    assert read(write(tmp_path, "t.json", "[ ]")) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"text": "a"}', "item 2 does not follow the one before it; expected a comma or ]"),
        ('[{"text": "a"} {"text": "b"}]', "item 2 does not follow"),
        ('[{"text": "a"},]', "item 2 is not JSON"),
        ('[{"text": "a"}] x', "follows the end of the array"),
        ('[{"text": "a"}, 5]', "item 2 is not a JSON object; expected an object; found int"),
        ("[" * 100_000, "item 1 is not JSON"),
        (b'[{"text": "\xff"}]', "not UTF-8"),
        ('[{"text": "a"}, {"id": "1", "id": "2", "text": "b"}]', "item 2 has the key 'id' twice in one object"),
    ],
)
def test_broken_arrays_are_named(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidDocument, match=message):
        read(write(tmp_path, "t.json", text))


@pytest.mark.parametrize("columns", [{}, {"text": "text"}])
@pytest.mark.parametrize(
    "line", ['{"id": "1", "id": "2", "text": "a"}', '{"text": "a", "metadata": {"id": 1, "id": 1}}']
)
def test_a_key_that_an_object_has_twice_is_refused(tmp_path: Path, line: str, columns: dict[str, object]) -> None:
    path = write(tmp_path, "t.jsonl", f'{{"id": "0", "text": "first"}}\n{line}\n')
    with pytest.raises(
        InvalidDocument, match=r"line 2 has the key 'id' twice in one object; expected each key once"
    ):
        read(path, **columns)


# Tables of other libraries

ROWS = [
    {"id": 1, "text": "one", "when": datetime(2024, 5, 6, 7, 8), "n": 1.5, "tags": ["a"]},
    {"id": 2, "text": "two", "when": None, "n": None, "tags": None},
]
EXPECTED = [
    ("1", "one", {"when": "2024-05-06T07:08:00", "n": 1.5, "tags": ["a"]}),
    ("2", "two", {}),
]


class Exporter:
    """An object of an unknown library that exports Arrow data."""

    def __init__(self, table: object) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)  # type: ignore[attr-defined]


def table(kind: str, folder: Path) -> object:
    if kind in {"pandas", "polars", "lazy"}:
        library = pytest.importorskip("polars" if kind == "lazy" else kind)
        frame = library.DataFrame(ROWS)
        return frame.lazy() if kind == "lazy" else frame
    arrow = pytest.importorskip("pyarrow")
    made = arrow.Table.from_pylist(ROWS)
    if kind == "parquet":
        pytest.importorskip("pyarrow.parquet").write_table(made, folder / "t.parquet")
        return folder / "t.parquet"
    if kind in {"file", "stream"}:
        path = folder / "t.arrow"
        opened = arrow.ipc.new_file if kind == "file" else arrow.ipc.new_stream
        with opened(path, made.schema) as writer:
            writer.write_table(made)
        return path
    if kind == "duckdb":
        return pytest.importorskip("duckdb").connect().from_arrow(made)
    return {"table": made, "batch": made.to_batches()[0], "reader": made.to_reader(), "exporter": Exporter(made)}[
        kind
    ]


KINDS = ["pandas", "polars", "lazy", "parquet", "file", "stream", "duckdb", "table", "batch", "reader", "exporter"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_gives_the_same_documents(kind: str, tmp_path: Path) -> None:
    documents = read(table(kind, tmp_path))
    assert [(each.id, each.text, dict(each.metadata)) for each in documents] == EXPECTED


@pytest.mark.parametrize("kind", KINDS)
def test_the_columns_of_every_kind_of_table_are_checked(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"no column 'body'; expected text='NAME'.*found the columns 'id'"):
        read(table(kind, tmp_path), text="body")


def test_peculiarities_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "text": ["a", "b"],
            "n": [1, None],
            "c": pandas.Categorical(["x", None]),
            "t": pandas.NaT,
            5: [np.nan, 1],
        },
        index=pandas.Index(["k", "l"], name="id"),
    )
    first, second = read(frame)
    assert (first.id, first.metadata) == ("k", {"n": 1.0, "c": "x"})
    assert (second.id, second.metadata) == ("l", {"5": 1.0})
    with pytest.raises(InvalidSetting, match="two columns have the name"):
        read(pandas.DataFrame([["a", "b"]], columns=["text", "text"]))
    with pytest.raises(InvalidDocument, match="'id' is missing, and it is the id"):
        read(pandas.DataFrame({"id": ["a", None], "text": ["x", "y"]}))
    assert len(read(pandas.DataFrame({"text": ["x"] * 3000}))) == 3000


def test_arrow_with_nanoseconds_and_broken_files(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    moments = arrow.array([1_700_000_000_123_456_789], arrow.timestamp("ns", "UTC"))
    (document,) = read(arrow.table({"text": ["a"], "at": moments}))
    assert document.metadata == {"at": "2023-11-14T22:13:20.123456+00:00"}
    for name in ("t.parquet", "t.arrow"):
        for content in (b"", b"PAR1 and no more", b"ARROW1\0\0" * 100):
            with pytest.raises(InvalidDocument, match="rows after number 0 cannot be read"):
                read(write(tmp_path, name, content))
    with pytest.raises(InvalidSetting, match="two columns"):
        read(arrow.Table.from_arrays([arrow.array(["a"])] * 2, names=["text", "text"]))


@contextlib.contextmanager
def peak_bytes(arrow) -> Iterator[Callable[[], int]]:
    """Measure the memory of Python objects, and that of Arrow data in all, at their peaks."""
    usual = arrow.default_memory_pool()
    pool = arrow.proxy_memory_pool(usual)  # whose peak is not that of earlier tests
    arrow.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1] + pool.max_memory()
    finally:
        tracemalloc.stop()
        arrow.set_memory_pool(usual)


FAR = 10**8  # days since 1970: in the year 275760


def far_dates(kind: str, folder: Path) -> object:
    """Return a table whose second row of three has a date that Python cannot represent."""
    pyarrow = pytest.importorskip("pyarrow")
    dates = pyarrow.array([0, FAR, None], pyarrow.date32())
    table = pyarrow.table({"id": ["a", "b", "c"], "text": ["tea"] * 3, "made": dates})
    if kind == "polars":
        return pytest.importorskip("polars").from_arrow(table)
    if kind == "pandas":
        pandas = pytest.importorskip("pandas")
        return table.to_pandas(types_mapper=pandas.ArrowDtype)
    if kind == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(table, folder / "t.parquet")
        return folder / "t.parquet"
    return table


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", ["arrow", "parquet", "polars", "pandas"])
def test_a_date_beyond_the_year_9999_is_an_error_of_its_row(kind: str, tmp_path: Path) -> None:
    """A library refuses to convert all rows at once; only the one that has the value is not valid."""
    source = far_dates(kind, tmp_path)
    with pytest.raises(InvalidDocument, match=r"(row|document) 2: field 'made' cannot be converted") as caught:
        list(read_documents(source))
    assert "9999" in str(caught.value)
    documents = list(read_documents(source, True))
    assert [(each.id, each.metadata) for each in documents] == [("a", {"made": "1970-01-01"}), ("c", {})]


def test_a_file_with_such_a_date_does_not_keep_others_out(tmp_path: Path) -> None:
    far_dates("parquet", tmp_path)
    (tmp_path / "a.txt").write_text("tea")
    with engine.Engine.open(tmp_path / "index", create=True, writable=True) as index:
        report = index.sync(tmp_path)
        assert len(index) == 1
    assert "field 'made' cannot be converted" in str(report.failed)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", ["arrow", "polars", "pandas"])
def test_columns_with_such_a_date(kind: str, tmp_path: Path) -> None:
    source = far_dates(kind, tmp_path)
    with engine.Engine.open(tmp_path / "index", create=True, writable=True) as index:
        with pytest.raises(InvalidDocument, match="row 1: cannot be converted"):
            index.add_columns(ids=source["id"], texts=source["text"], metadata={"made": source["made"]})
        assert len(index) == 0


def test_the_row_of_a_column_of_pandas_is_its_place_and_not_its_label(tmp_path: Path) -> None:
    source = far_dates("pandas", tmp_path).iloc[[2, 1, 0]]
    with engine.Engine.open(tmp_path / "index", create=True, writable=True) as index:
        for labels in (source.index, [11, 12, 10]):
            made = source["made"].set_axis(labels)
            with pytest.raises(InvalidDocument, match=r"row 1: cannot be converted.*9999.*out of range"):
                index.add_columns(ids=source["id"], texts=source["text"], metadata={"made": made})


def test_a_time_zone_that_is_not_known() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    times = pyarrow.array([0], pyarrow.timestamp("us", "No/Where"))
    with pytest.raises(InvalidDocument, match="document 1: field 'at' cannot be converted") as caught:
        read(pyarrow.table({"text": ["tea"], "at": times}))
    assert "9999" not in str(caught.value)


def test_intervals_of_arrow() -> None:
    """Those of days and nanoseconds are durations in seconds; months have no fixed length."""
    pyarrow = pytest.importorskip("pyarrow")
    intervals = pyarrow.array([(0, 3, 500_000_000), (1, 0, 0)], pyarrow.month_day_nano_interval())
    table = pyarrow.table({"text": ["tea", "tea"], "for": intervals})
    assert read(table.slice(0, 1))[0].metadata == {"for": 3 * 86_400 + 0.5}
    with pytest.raises(InvalidDocument, match="timedelta64"):
        read(table.slice(1))


@pytest.mark.parametrize("kind", ["dictionary", "plain", "table"])
def test_values_that_a_table_stores_once_do_not_fill_the_memory(tmp_path, kind: str) -> None:
    """100 rows of 4 MiB of text, which are 400 MiB, in a few kilobytes."""
    arrow = pytest.importorskip("pyarrow")
    indices = arrow.array([0] * 100, arrow.int32())
    column = arrow.DictionaryArray.from_arrays(indices, arrow.array(["x" * (4 << 20)]))
    made = arrow.table({"id": [str(number) for number in range(100)], "text": column})
    if kind != "table":
        is_kept = kind == "dictionary"
        parquet = pytest.importorskip("pyarrow.parquet")
        layout = {"use_dictionary": is_kept, "store_schema": is_kept, "write_batch_size": 1}
        parquet.write_table(made, tmp_path / "t.parquet", compression="zstd", **layout)
        assert (tmp_path / "t.parquet").stat().st_size < 1 << 20
        made = tmp_path / "t.parquet"
    with peak_bytes(arrow) as peak:
        n_rows = sum(len(each.text) == 4 << 20 for each in read_documents(made))
        assert n_rows == 100
        assert peak() < 250 << 20


def test_a_parquet_file_with_a_huge_page_is_refused(tmp_path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    parquet.write_table(arrow.table({"text": ["x" * 5000, "y"], "tags": [["a" * 9000], []]}), path)
    assert len(read(path)) == 2
    small = PageLimits(dictionary_bytes=8000, page_bytes=7000)
    problem = (
        r"t.parquet: the column 'tags.list.element' has a dictionary that is too large; expected at most 8000"
    )
    with pytest.raises(InvalidDocument, match=problem):
        bounded_batch_rows(path, parquet.read_metadata(path), 256, limits=small)
    parquet.write_table(arrow.table({"text": ["x" * 5000] * 2}), path, use_dictionary=False, compression="zstd")
    with pytest.raises(InvalidDocument, match="column 'text' has a page that is too large; expected at most 7000"):
        bounded_batch_rows(path, parquet.read_metadata(path), 256, limits=small)


@given(
    st.lists(
        st.tuples(st.text(max_size=300), st.lists(st.text(max_size=50), max_size=4)), min_size=1, max_size=50
    ),
    st.integers(1, 40),
    st.sampled_from(["none", "zstd", "snappy"]),
)
@settings(max_examples=25, deadline=None)
def test_a_batch_is_within_its_bound(tmp_path_factory, rows, group_rows, compression) -> None:
    """A batch of as many rows as are allowed has no more bytes, whichever rows they are."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path_factory.mktemp("parquet") / "t.parquet"
    table = arrow.table({"text": [text for text, _ in rows], "tags": [tags for _, tags in rows]})
    parquet.write_table(table, path, row_group_size=group_rows, compression=compression)
    n_rows = bounded_batch_rows(path, parquet.read_metadata(path), 256, limits=PageLimits(batch_bytes=1000))
    assert 1 <= n_rows <= 256
    texts = [len(text.encode()) for text, _ in rows]
    assert n_rows == 1 or all(sum(texts[start : start + n_rows]) <= 1000 for start in range(0, len(texts), n_rows))


def test_a_table_is_built_and_added(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"key": [1, 2], "body": ["Bees dance.", "Lava cools."], "year": [2020, 2021]})
    engine.build(frame, tmp_path / "index", id="key", text="body")
    with engine.Engine.open(tmp_path / "index", writable=True) as index:
        assert index.search("lava", k=1, filter={"year": 2021})[0].id == "2"
        index.add(frame.assign(key=[3, 4]), id="key", text=["body", "year"])
        index.commit()
        assert index.get("4")[0].text == "Lava cools.\n2021"


def test_what_exports_arrow_data_and_is_no_table() -> None:
    arrow = pytest.importorskip("pyarrow")
    with pytest.raises(InvalidSetting, match="a table with columns"):
        read(arrow.chunked_array([["a", "b"]]))
    for texts in (pytest.importorskip("polars").Series(["a"]), pytest.importorskip("pandas").Series(["a"])):
        assert isinstance(texts, Iterable)
        assert [document.text for document in read(texts)] == ["a"]


@pytest.mark.parametrize("n_empty", [3, 50_000])
def test_empty_lines_are_skipped_between_rows_and_kept_within_values(tmp_path: Path, n_empty: int) -> None:
    empty = "\n" * n_empty
    path = write(tmp_path, "rows.csv.gz", f'{empty}text,n\n{empty}a,1\n{empty}"b{empty}c",2\n{empty}d,3,4\n')
    stream = read_documents(path, skip_invalid=True)
    found = [(document.text, document.metadata["n"]) for document in stream]
    assert found == [("a", 1), (f"b{empty}c", 2)]
    (error,) = stream.first_errors
    assert f"line {5 * n_empty + 4} has too many values" in error


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["1.0", "0.0", "-2.0"], ["1", "0", "-2"]),
        (["10.00", "2.00"], ["10", "2"]),
        (["1.0", "2.5"], ["1.0", "2.5"]),
        (["1.0", "1.00"], ["1.0", "1.00"]),
        (["1", "1.0"], ["1", "1.0"]),
        (["01.0", "2.0"], ["01.0", "2.0"]),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_ids_that_are_whole_floats(tmp_path, written, expected, name):
    mark = "," if name.endswith("csv") else "\t"
    lines = [mark.join(("id", "text")), *(mark.join((value, "a")) for value in written)]
    (tmp_path / name).write_text("\n".join(lines))
    assert [document.id for document in read_documents(tmp_path / name)] == expected


def test_lines_that_end_with_carriage_returns(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'id;text;n\ra;"one\rtwo";1\r\rb;"three";2')
    found = [(each.id, each.text, dict(each.metadata)) for each in read_documents(path)]
    assert found == [("a", "one\rtwo", {"n": 1}), ("b", "three", {"n": 2})]
    path.write_bytes(b"id;text;n\ra;one;1\rb\r")
    with pytest.raises(InvalidDocument, match="line 3 has too few values"):
        list(read_documents(path))
