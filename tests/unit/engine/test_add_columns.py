"""Columns of any library are checked, and add the same documents as if they were added one by one."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.formats.errors import EncoderMismatch, InvalidDocument, InvalidQuery, InvalidSetting, ReadOnlyIndex

DIM, N = 6, 500
RNG = np.random.default_rng(0)
VECTORS = (RNG.standard_normal((N, DIM)) * 2).astype(np.float32)
IDS = [f"id {number % 450}" for number in range(N)]  # some ids occur twice
TEXTS = [f"text {number} of moon" if number % 3 else None for number in range(N)]
TITLES = [f"title é {number}" if number % 2 else "" for number in range(N)]
YEARS = [number if number % 5 else None for number in range(N)]
ROWS = [
    {
        "id": doc_id,
        "vectors": vector,
        "text": text or "",
        "title": title,
        "metadata": {} if year is None else {"year": year},
    }
    for doc_id, vector, text, title, year in zip(IDS, VECTORS, TEXTS, TITLES, YEARS, strict=True)
]


def arrow():
    pyarrow = pytest.importorskip("pyarrow")
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(VECTORS.ravel()), DIM)
    return pyarrow.table({"id": IDS, "vectors": vectors, "text": TEXTS, "title": TITLES, "year": YEARS})


def structs(rows):
    return pytest.importorskip("pyarrow").array(rows)


class OnlyArrow:
    """An object with no other interface than the export of Arrow data."""

    def __init__(self, value):
        self._value = value

    def __arrow_c_stream__(self, requested_schema=None):
        return self._value.__arrow_c_stream__(requested_schema)


def polars_table():
    return pytest.importorskip("polars").from_arrow(arrow())


KINDS = {
    "numpy": lambda: {
        "ids": np.array(IDS, object),
        "vectors": VECTORS,
        "texts": TEXTS,
        "titles": np.array(TITLES),
        "metadata": {"year": YEARS},
    },
    "rows of lists": lambda: {
        "ids": IDS,
        "vectors": VECTORS.tolist(),
        "texts": TEXTS,
        "titles": TITLES,
        "metadata": [row["metadata"] for row in ROWS],
    },
    "array of arrays": lambda: {
        "ids": IDS,
        "vectors": np.array([*VECTORS, None], object)[:-1],
        "texts": TEXTS,
        "titles": TITLES,
        "metadata": {"year": YEARS},
    },
    "Arrow table": lambda: {"table": arrow()},
    "Arrow batch": lambda: {"table": arrow().combine_chunks().to_batches()[0]},
    "Arrow stream": lambda: {"table": arrow().to_reader(max_chunksize=100)},
    "chunked columns": lambda: {
        "ids": arrow()["id"],
        "vectors": arrow()["vectors"],
        "texts": arrow()["text"],
        "titles": arrow()["title"],
        "metadata": arrow().select(["year"]),
    },
    "pandas": lambda: {"table": arrow().to_pandas()},
    "pandas columns": lambda: {
        "ids": arrow().to_pandas()["id"],
        "vectors": arrow().to_pandas()["vectors"],
        "texts": arrow().to_pandas()["text"],
        "titles": arrow().to_pandas()["title"],
        "metadata": arrow().to_pandas()[["year"]],
    },
    "polars": lambda: {"table": polars_table()},
    "polars columns": lambda: {
        "ids": polars_table()["id"],
        "vectors": polars_table()["vectors"],
        "texts": polars_table()["text"],
        "titles": polars_table()["title"],
        "metadata": polars_table().select("year"),
    },
    "mapping": lambda: {
        "table": {"id": IDS, "vectors": VECTORS, "text": TEXTS, "title": TITLES, "year": YEARS},
    },
    "pandas, ids in the index": lambda: {"table": arrow().to_pandas().set_index("id")},
    "structs of metadata": lambda: {
        "ids": IDS,
        "vectors": VECTORS,
        "texts": TEXTS,
        "titles": TITLES,
        "metadata": structs([None if year is None else {"year": year} for year in YEARS]),
    },
    "PyCapsule table": lambda: {"table": OnlyArrow(arrow())},
    "PyCapsule columns": lambda: {
        "ids": OnlyArrow(arrow()["id"]),
        "vectors": OnlyArrow(arrow()["vectors"]),
        "texts": OnlyArrow(arrow()["text"]),
        "titles": OnlyArrow(arrow()["title"]),
        "metadata": OnlyArrow(arrow().select(["year"])),
    },
    "other names": lambda: {
        "table": {"a": IDS, "b": VECTORS, "c": TEXTS, "d": TITLES, "year": YEARS, "id": IDS},
        "ids": "a",
        "vectors": "b",
        "texts": "c",
        "titles": "d",
        "metadata": ["year"],
    },
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return contents and answers of an index of the same documents, added one by one."""
    path = tmp_path_factory.mktemp("documents")
    engine.build(ROWS, path, dim=DIM)
    with Engine.open(path) as index:
        return contents(index)


def contents(index):
    documents = index.get(sorted(set(IDS)), vectors=True)
    held = [(each.id, each.title, each.text, dict(each.metadata), each.spans) for each in documents]
    hits = index.search("moon title", vector=VECTORS[7], k=50, filter={"year": {"$gte": 3}}, explain=True)
    return held, [each.vectors.tolist() for each in documents], [hit.to_dict() for hit in hits], len(index)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_columns_are_the_same_as_documents(tmp_path, expected, kind):
    if kind.startswith("pandas"):
        pytest.importorskip("pandas")
    with Engine.open(tmp_path / "index", writable=True, create=True, dim=DIM) as index:
        assert index.add_columns(**KINDS[kind]()) == N
        index.commit()
        assert contents(index) == expected


@pytest.mark.parametrize("metric", ["ip", "cosine", "l2"])
@pytest.mark.parametrize("shards", [None, 3])
def test_metrics_and_shards(tmp_path, metric, shards):
    engine.build(ROWS, tmp_path / "rows", dim=DIM, metric=metric, shards=shards)
    path = tmp_path / "columns"
    with (
        Engine.open(path, writable=True, create=True, dim=DIM, metric=metric, shards=shards) as index,
        Engine.open(tmp_path / "rows") as other,
    ):
        index.add_columns(ids=IDS, vectors=VECTORS, texts=TEXTS, titles=TITLES, metadata={"year": YEARS})
        index.commit()
        assert contents(index)[0] == contents(other)[0]
        scores = [[hit.score for hit in each.search(vector=VECTORS[3])] for each in (index, other)]
        np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-4)


def test_several_vectors_a_row(tmp_path):
    vectors = VECTORS.reshape(N // 2, 2, DIM)
    with Engine.open(tmp_path / "index", writable=True, create=True, dim=DIM) as index:
        assert index.add_columns(ids=np.arange(N // 2), vectors=vectors.astype(np.float64)) == N // 2
        index.commit()
        np.testing.assert_allclose(index.get("7", vectors=True)[0].vectors, vectors[7], atol=0.05)
        assert index.stats()["n_centroids"] == N


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_several_vectors_in_columns_of_lists(tmp_path, library):
    vectors = VECTORS.reshape(N // 2, 2, DIM)
    arrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    column = arrow.array(vectors.tolist()) if library == "pyarrow" else polars.Series(vectors.tolist())
    with Engine.open(tmp_path / "index", writable=True, create=True, dim=DIM) as index:
        assert index.add_columns(ids=np.arange(N // 2), vectors=column) == N // 2
        index.commit()
        np.testing.assert_allclose(index.get("7", vectors=True)[0].vectors, vectors[7], atol=0.05)
        assert index.stats()["n_centroids"] == N


@pytest.mark.parametrize(
    "vectors",
    [
        VECTORS.astype(np.float16),
        (VECTORS * 10).astype(np.int8),
        np.asfortranarray(VECTORS),
        np.repeat(VECTORS, 2, axis=1)[:, ::2],
        VECTORS[::-1][::-1],
        VECTORS.astype(">f4"),
    ],
    ids=["float16", "int8", "fortran", "strided", "reversed twice", "big-endian"],
)
def test_kinds_of_arrays(tmp_path, vectors):
    vectors.setflags(write=False)
    with Engine.open(tmp_path / "i", writable=True, create=True, dim=DIM, centroids="float16") as index:
        assert index.add_columns(vectors=vectors, ids=range(N)) == N
        index.commit()
        found = np.concatenate([each.vectors for each in index.get([str(n) for n in range(N)], vectors=True)])
        np.testing.assert_array_equal(found, vectors.astype(np.float16))


def with_value(row, column, value):
    changed = VECTORS.copy()
    changed[row, column] = value
    return changed


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"vectors": with_value(17, 2, np.nan)}, r"column 'vectors', row 17: number 2 of a vector is not finite"),
        ({"vectors": with_value(499, 5, -np.inf)}, r"row 499: number 5 .*found -inf"),
        ({"vectors": with_value(3, 0, 70_000)}, r"row 3: number 0 of a vector is too large"),
        ({"vectors": [[1] * DIM, [1] * DIM, [1] * 5]}, r"column 'vectors', row 2: has another shape"),
        ({"vectors": [[1] * DIM, None]}, r"column 'vectors', row 1: is not a vector; .*found None"),
        ({"vectors": [[1] * DIM, ["a"] * DIM]}, r"row 1: is not a vector"),
        ({"ids": [*IDS[:9], "", *IDS[10:]], "vectors": VECTORS}, r"column 'ids', row 9: is missing"),
        ({"ids": [*IDS[:9], None, *IDS[10:]], "vectors": VECTORS}, r"column 'ids', row 9: is missing"),
        ({"ids": [*IDS[:9], 1.5, *IDS[10:]], "vectors": VECTORS}, r"column 'ids', row 9: is not a str or an int"),
        ({"ids": [*IDS[:9], "\ud800", *IDS[10:]], "vectors": VECTORS}, r"'ids', row 9: has a lone surrogate"),
        ({"ids": [*IDS[:9], "é" * 2049, *IDS[10:]], "vectors": VECTORS}, r"'ids', row 9: is too long"),
        ({"texts": [*TEXTS[:8], True, *TEXTS[9:]], "vectors": VECTORS}, r"'texts', row 8: is not a text"),
        ({"titles": [*TEXTS[:8], b"x", *TEXTS[9:]], "vectors": VECTORS}, r"'titles', row 8: is not a text"),
        ({"texts": TEXTS}, r"column 'texts', row 0: is blank, and there are no vectors"),
        ({"metadata": {"a": [*range(N - 1), object()]}, "vectors": VECTORS}, r"'metadata', row 499.*metadata\.a"),
        ({"metadata": [{}] * (N - 1) + [3], "vectors": VECTORS}, r"'metadata', row 499: is not a mapping"),
    ],
)
def test_a_value_is_refused_by_column_and_row(tmp_path, columns, message):
    with Engine.open(tmp_path / "index", writable=True, create=True, dim=DIM) as index:
        with pytest.raises(InvalidDocument, match=message):
            index.add_columns(**columns)
        assert index.add_columns(vectors=VECTORS[:2], ids=["a", "b"]) == 2
        index.commit()
        assert len(index) == 2  # none of the others was added


def test_rows_of_arrow_data_without_a_vector(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    with Engine.open(tmp_path / "index", writable=True, create=True, dim=2) as index:
        for rows, message in (
            ([[1.0, 2.0], None], "row 1: is missing"),
            ([[1.0, 2.0], [1.0]], "row 1: has another length"),
            ([[1.0, 2.0], [None, 1.0]], "row 1: a number is missing"),
            ([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], None]], "row 1: is missing"),
            ([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0]]], "row 1: has another length"),
            ([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [1.0]]], "row 1: has another length"),
            ([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [None, 1.0]]], "row 1: a number is missing"),
        ):
            with pytest.raises(InvalidDocument, match=message):
                index.add_columns(vectors=pyarrow.chunked_array([pyarrow.array(rows)]))
        with pytest.raises(InvalidSetting, match="lists of numbers"):
            index.add_columns(vectors=pyarrow.array([1.0, 2.0]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "neither vectors nor texts"),
        ({"ids": IDS}, "neither vectors nor texts"),
        ({"ids": IDS[:3], "vectors": VECTORS}, "different lengths.*ids 3, vectors 500"),
        ({"vectors": VECTORS, "metadata": {"a": [1], "b": [1, 2]}}, "columns of metadata have different lengths"),
        ({"vectors": VECTORS[:, :5]}, r"'vectors' has the wrong shape.*found \(500, 5\)"),
        ({"vectors": VECTORS[0]}, "not a column of vectors"),
        ({"vectors": "abc"}, "vectors is not a column"),
        ({"vectors": VECTORS, "ids": "abc"}, "ids is not a column"),
        ({"vectors": VECTORS, "texts": 5}, "texts is not a column"),
        ({"vectors": VECTORS.astype(complex)}, "not a column of vectors"),
        ({"table": {"id": IDS, "vectors": VECTORS}, "vectors": "vec"}, "vectors is not a column.*'id', 'vectors'"),
        ({"table": {"id": IDS, "vectors": VECTORS}, "ids": IDS}, "ids is not a column"),
        ({"table": [1, 2]}, "the table cannot be read"),
        ({"vectors": np.zeros((3, 0, DIM))}, "wrong shape"),
        ({"table": {"vectors": VECTORS, 1: IDS, "1": IDS}}, "two columns have the name '1'"),
    ],
)
def test_columns_that_are_refused(tmp_path, columns, message):
    with Engine.open(tmp_path / "index", writable=True, create=True, dim=DIM) as index:
        with pytest.raises(InvalidSetting, match=message):
            index.add_columns(**columns)
        assert index.add_columns(vectors=np.empty((0, DIM), np.float32), ids=[]) == 0
        assert len(index) == 0


def test_columns_of_pandas_with_one_name_are_refused(tmp_path):
    frame = pytest.importorskip("pandas").DataFrame({"id": IDS, "vectors": list(VECTORS)})
    with Engine.open(tmp_path / "index", writable=True, create=True, dim=DIM) as index:
        for table, name in (
            (frame.iloc[:, [0, 1, 1]], "vectors"),
            (frame.set_index("id", drop=False), "id"),
        ):
            with pytest.raises(InvalidSetting, match=f"two columns have the name '{name}'"):
                index.add_columns(table)
            with pytest.raises(InvalidSetting, match=f"two columns have the name '{name}'"):
                index.add(table)


def test_batches_without_rows(tmp_path):
    frame, table = pytest.importorskip("pandas").DataFrame({"vectors": list(VECTORS)}), arrow()
    with Engine.open(tmp_path / "index", writable=True, create=True, dim=DIM) as index:
        for empty in (frame[:0], table[:0], polars_table()[:0], {"vectors": []}, {"id": [], "vectors": ()}):
            assert index.add_columns(empty) == 0
        assert index.add_columns(vectors=table["vectors"][:0]) == 0
        assert index.add_columns(vectors=VECTORS[:2], metadata={}) == 2


def test_tensors_that_are_no_arrays(tmp_path):
    torch = pytest.importorskip("torch")
    with Engine.open(tmp_path / "index", writable=True, create=True, dim=DIM, centroids="float16") as index:
        index.add_columns(vectors=torch.tensor(VECTORS[:2], requires_grad=True), ids=[0, 1])
        index.add_columns(vectors=torch.tensor(VECTORS[2:4]).to(torch.bfloat16), ids=[2, 3])
        index.commit()
        found = np.concatenate([each.vectors for each in index.get(["0", "1", "2", "3"], vectors=True)])
        np.testing.assert_allclose(found, VECTORS[:4], rtol=0.01)
        with pytest.raises(InvalidDocument, match="'vectors' is not an array"):
            index.add([{"vectors": torch.tensor(VECTORS[0], requires_grad=True)}])


def test_arrow_data_of_unknown_libraries_need_pyarrow(tmp_path, monkeypatch):
    table = arrow()
    with Engine.open(tmp_path / "index", writable=True, create=True, dim=DIM) as index:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        for columns in ({"table": OnlyArrow(table)}, {"vectors": OnlyArrow(table["vectors"])}):
            with pytest.raises(InvalidSetting, match="pyarrow"):
                index.add_columns(**columns)


def test_tables_are_read_by_the_rules_of_add(tmp_path):
    table = {
        "_id": [7, np.int64(8), 9.0],
        "text": [5, 2.5, None],
        "title": [np.int32(3), None, "title"],
        "vectors": np.eye(3, DIM),
        "year": [2020, np.nan, 2022],
        "metadata": [{"lang": "en"}, None, {"lang": "de", "n": np.int8(1)}],
    }
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    found = []
    for name in ("rows", "columns"):
        with Engine.open(tmp_path / name, writable=True, create=True, dim=DIM) as index:
            index.add_columns(table) if name == "columns" else index.add(rows, id="_id", text="text")
            index.commit()
            documents = index.get(["7", "8", "9"])
            found.append([(each.id, each.text, each.title, dict(each.metadata)) for each in documents])
    assert found[0] == found[1]
    assert found[0][0] == ("7", "5", "3", {"year": 2020, "lang": "en"})
    with Engine.open(tmp_path / "rows", writable=True) as index:
        both = {"text": ["a"], "vectors": np.eye(1, DIM), "lang": ["en"], "metadata": [{"lang": "de"}]}
        row = {name: column[0] for name, column in both.items()}
        for add in (lambda: index.add_columns(both), lambda: index.add([row], text="text")):
            with pytest.raises(InvalidDocument, match="metadata' and the row both have 'lang'"):
                add()


def test_texts_alone_are_encoded(tmp_path):
    encoder = WordEncoder()
    engine.build([{"id": "x", "text": "first"}], tmp_path, encoder=encoder)
    with Engine.open(tmp_path, writable=True, encoder=encoder) as index:
        assert index.add_columns(ids=["a", "b"], texts=["moon and tea", "salt"], metadata={"n": [1, 2]}) == 2
        assert index.add_columns(ids=["c"], vectors=np.ones((1, encoder.dim)), texts=["given"]) == 1
        index.commit()
        assert index.search("salt", k=1)[0].metadata == {"n": 2}
        assert index.get("c", vectors=True)[0].vectors[0, 0] == pytest.approx(encoder.dim**-0.5, abs=0.01)
    with Engine.open(tmp_path) as index, pytest.raises(ReadOnlyIndex):
        index.add_columns(texts=["a"])
    with Engine.open(tmp_path, writable=True) as index, pytest.raises(EncoderMismatch):
        index.add_columns(texts=["a"])


def test_zeros_have_no_cosine(tmp_path):
    with (
        Engine.open(tmp_path / "i", writable=True, create=True, dim=DIM, metric="cosine") as index,
        pytest.raises(InvalidDocument, match="column 'vectors', row 8: has a vector of zeros"),
    ):
        index.add_columns(vectors=np.where(np.arange(20)[:, None] == 8, 0, VECTORS[:20]))


def test_numbers_that_are_zeros_as_stored_have_no_cosine(tmp_path):
    tiny = VECTORS[:2].astype(np.float64)
    tiny[1] *= 1e-200
    with (
        Engine.open(tmp_path / "index", writable=True, create=True, dim=DIM, metric="cosine") as index,
        pytest.raises(InvalidDocument, match="row 1: has a vector of zeros"),
    ):
        index.add_columns(vectors=tiny)


TIMES = np.array(["2020-01-01T12", "2021-01-01T00:00:00.25", "NaT"], "M8[ns]")
DURATIONS = np.array([1500, 2, "NaT"], "m8[ms]")


def metadata_of(tmp_path, columns, *, as_table=False):
    with Engine.open(tmp_path / "index", create=True, dim=4, encoder=None, writable=True) as index:
        names = {"id": ["a", "b", "c"], "vectors": np.eye(3, 4)}
        if as_table:
            index.add_columns({**names, **columns})
        else:
            index.add_columns(ids=names["id"], vectors=names["vectors"], metadata=columns)
        index.commit()
        return [dict(document.metadata) for document in index.get(["a", "b", "c"])]


@pytest.mark.parametrize("unit", ["us", "ns", "ps"])
@pytest.mark.parametrize("as_table", [False, True], ids=["columns", "table"])
def test_times_of_every_unit_are_texts_and_durations_seconds(tmp_path, unit, as_table):
    times = TIMES if unit == "ns" else TIMES.astype(f"M8[{unit}]")
    texts = ["2020-01-01T12:00:00", "2021-01-01T00:00:00.250000"]
    if unit == "ps":  # spans only some months around 1970
        times = (TIMES - (TIMES[0] - np.datetime64("1970-01-01T12", "ns"))).astype("M8[ps]")
        times[1], texts = (
            np.datetime64("1970-02-01T00:00:00.25", "ps"),
            [
                "1970-01-01T12:00:00",
                "1970-02-01T00:00:00.250000",
            ],
        )
    durations = DURATIONS.astype(f"m8[{unit}]")
    expected = [{"t": texts[0], "d": 1.5}, {"t": texts[1], "d": 0.002}, {}]
    assert metadata_of(tmp_path, {"t": times, "d": durations}, as_table=as_table) == expected


def test_times_in_lists_rows_and_series_are_equal(tmp_path):
    pandas = pytest.importorskip("pandas")
    columns = {
        "array": TIMES,
        "list": list(TIMES),
        "series": pandas.Series(TIMES),
        "masked": np.ma.array(TIMES, mask=[False, False, True]),
    }
    found = metadata_of(tmp_path, columns)
    assert [len(set(row.values())) for row in found] == [1, 1, 0]


def test_times_in_columns_of_two_dimensions(tmp_path):
    times = np.stack([TIMES, TIMES[::-1]], axis=1)
    texts = ["2020-01-01T12:00:00", "2021-01-01T00:00:00.250000", None]
    expected = [{"t": [one, other]} for one, other in zip(texts, texts[::-1], strict=True)]
    assert metadata_of(tmp_path, {"t": times}) == expected


@pytest.mark.parametrize(
    "column",
    [
        np.array(["2020", "20200", "2020"], "M8[D]"),
        np.array(["2020", "20200", "2020"], "M8[s]"),
        np.array(["2020", "-0001", "2020"], "M8[us]"),
        np.array(["NaT", 1, 2], "m8[Y]"),
        np.array(["NaT", 1, 2], "m8[M]"),
    ],
    ids=["D", "s", "us", "Y", "M"],
)
def test_times_that_cannot_be_represented_are_refused(tmp_path, column):
    with pytest.raises(InvalidDocument, match=r"row 1: field .metadata\.t. cannot be stored"):
        metadata_of(tmp_path, {"t": column})


@pytest.mark.parametrize(
    "columns",
    [
        {"ids": {"a", "b"}},
        {"ids": frozenset({"a", "b"})},
        {"texts": {"a", "b"}},
        {"vectors": {(1.0, 0, 0, 0), (0, 1.0, 0, 0)}},
        {"metadata": {"year": {1, 2}}},
    ],
    ids=["set", "frozenset", "texts", "vectors", "metadata"],
)
def test_columns_without_an_order_are_refused(tmp_path, columns):
    with (
        Engine.open(tmp_path / "index", create=True, dim=4, encoder=None, writable=True) as index,
        pytest.raises(InvalidSetting, match="has no order"),
    ):
        index.add_columns(**{"ids": ["a", "b"], "vectors": np.eye(2, 4), **columns})


def test_names_in_a_mapping_have_an_order(tmp_path):
    by_id = {"b": [1.0, 0, 0, 0], "a": [0, 1.0, 0, 0]}
    with Engine.open(tmp_path / "index", create=True, dim=4, encoder=None, writable=True) as index:
        assert index.add_columns(ids=by_id.keys(), vectors=list(by_id.values())) == 2


def test_masked_numbers_are_refused(tmp_path):
    vectors = np.ma.array(np.eye(2, 4), mask=np.eye(2, 4)[::-1])
    vectors[0] = np.eye(2, 4)[0]  # unmasks the row
    with Engine.open(tmp_path / "index", create=True, dim=4, encoder=None, writable=True) as index:
        for column in (vectors, list(vectors), np.ma.array(vectors)):
            with pytest.raises(InvalidDocument, match="row 1: has a masked number"):
                index.add_columns(ids=["a", "b"], vectors=column)
        for given in (vectors, vectors[1], list(vectors)):
            with pytest.raises(InvalidDocument, match="has a masked number"):
                index.add([{"id": "a", "vectors": given}])
        for query in (vectors, vectors[1]):
            with pytest.raises(InvalidQuery, match="masked number"):
                index.search(vector=query)
        assert index.add_columns(ids=["a"], vectors=vectors[:1]) == 1
