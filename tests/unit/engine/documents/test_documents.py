"""Valid and invalid documents."""

from __future__ import annotations

import math
import sys
from collections import OrderedDict, UserDict, defaultdict
from datetime import date, datetime, timedelta, timezone
from enum import Enum, IntEnum
from pathlib import Path

import numpy as np
import pytest

from quarry.engine.documents.document import MAX_TEXT_CHARACTERS, Document, document_from
from quarry.engine.documents.file_place import FilePlace, find_place
from quarry.formats.errors import InvalidDocument


def rejected(raw: object, *parts: str) -> str:
    """Return the message with which ``raw`` is refused; check that it contains the document and ``parts``."""
    with pytest.raises(InvalidDocument) as caught:
        document_from(raw, "document 17")
    message = str(caught.value)
    for part in ("document 17", *parts):
        assert part in message
    return message


def test_a_str_is_a_text_and_gets_an_id() -> None:
    first, second = document_from("bread", "document 1"), document_from("bread", "document 2")
    assert first.text == first.full_text == "bread"
    assert (first.title, first.metadata) == ("", {})
    assert len(first.id) == 32
    assert int(first.id, 16) >= 0
    assert first.id != second.id


def test_every_field_is_kept_as_it_is() -> None:
    metadata = {"n": -(1 << 63), "x": 0.1, "ok": True, "none": None, "tags": ["é", {"deep": [1]}]}
    raw = {"id": "\u0000 a/b é 文 \U0001f600", "title": "T", "text": " body\n", "metadata": metadata}
    document = document_from(raw, "document 1")
    assert document == Document("\u0000 a/b é 文 \U0001f600", " body\n", "T", metadata)
    assert document.full_text == "T\n body\n"
    assert document_from(document, "document 1") == document


def test_beir_names_the_id_with_an_underscore() -> None:
    assert document_from({"_id": "d1", "text": "x"}, "document 1").id == "d1"
    rejected({"_id": "d1", "id": "d1", "text": "x"}, "'id'", "'_id'")


def test_none_is_no_title_and_no_metadata() -> None:
    document = document_from({"text": "x", "title": None, "metadata": None}, "document 1")
    assert (document.title, document.metadata) == ("", {})


def test_later_changes_of_what_the_caller_gave_do_not_reach_the_document() -> None:
    metadata: dict[str, object] = {"a": 1, "b": [{"c": [2]}]}
    raw = {"id": "d", "text": "x", "title": "t", "metadata": metadata}
    taken = [document_from(raw, "document 1"), document_from(Document("d", "x", "t", metadata), "document 1")]
    metadata["b"][0]["c"].append(math.nan)  # type: ignore[index]
    metadata["b"][0][5] = 6  # type: ignore[index]
    metadata["a"] = 1 << 80
    raw.clear()
    for document in taken:
        assert document == Document("d", "x", "t", {"a": 1, "b": [{"c": [2]}]})


def test_metadata_of_a_document_that_was_taken_cannot_be_changed() -> None:
    document = document_from({"text": "x", "metadata": {"a": [1], "b": {"c": 2}}}, "document 1")
    document.metadata["a"].append(2)  # type: ignore[attr-defined]  # a copy
    dict(document.metadata.items())["b"]["c"] = 3  # type: ignore[index]
    with pytest.raises(TypeError):
        document.metadata["a"] = 2  # type: ignore[index]
    assert document.metadata == {"a": [1], "b": {"c": 2}}
    assert (len(document.metadata), list(document.metadata)) == (2, ["a", "b"])
    assert document_from(document, "document 2").metadata is document.metadata


class Shifty(str):
    """A text that changes after it was checked."""

    def encode(self, *_: object) -> bytes:
        return b"x"

    def isascii(self) -> bool:
        return True

    def __len__(self) -> int:
        return 1

    def __str__(self) -> str:
        return "another"


class Color(str, Enum):  # noqa: UP042  # whose str() is not its value
    RED = "red"


class Level(IntEnum):
    HIGH = 3


def test_subclasses_of_str_count_as_the_characters_that_they_hold() -> None:
    raw = {"id": Shifty("a"), "text": Shifty("b"), "title": Shifty("c"), "metadata": {Shifty("k"): [Shifty("v")]}}
    document = document_from(raw, "document 1")
    assert [type(each) for each in (document.id, document.text, document.title)] == [str, str, str]
    assert document == Document("a", "b", "c", {"k": ["v"]})
    rejected({"id": Shifty("x" * 5000), "text": "x"}, "'id'", "5000")
    for field in ("id", "text", "title"):
        rejected({"text": "x", field: Shifty("\ud800")}, f"'{field}'", "lone surrogate")
    rejected({"text": "x", "metadata": {"k": Shifty("\ud800")}}, "'metadata.k'", "lone surrogate")


def test_subclasses_of_builtin_types_become_those_types() -> None:
    metadata = {"c": Color.RED, "l": Level.HIGH, "f": np.float64(0.5), "d": defaultdict(list, {"a": [1]})}
    document = document_from({"text": "x", "metadata": OrderedDict(metadata)}, "document 1")
    assert document.metadata == {"c": "red", "l": 3, "f": 0.5, "d": {"a": [1]}}
    assert {type(value) for value in document.metadata.values()} == {str, int, float, dict}


def test_any_mapping_is_read_once() -> None:
    class Changing(UserDict[str, object]):
        """A mapping that returns other values each time."""

        def __getitem__(self, key: str) -> object:
            value, self.data[key] = self.data[key], math.nan
            return value

    raw = Changing({"id": "d", "text": "x", "metadata": Changing({"a": 1})})
    assert document_from(raw, "document 1") == Document("d", "x", "", {"a": 1})


@pytest.mark.parametrize("raw", [None, 5, b"bytes", ["text"], ("id", "text")])
def test_other_kinds_are_refused(raw: object) -> None:
    rejected(raw, type(raw).__name__ if raw is not None else "None")


def test_unknown_fields_are_named() -> None:
    message = rejected({"text": "x", "url": "u", "body\n" * 100: 1, 3: 4}, "'url'", "'metadata'")
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize("value", [None, 5, b"a"])
def test_an_id_is_a_str(value: object) -> None:
    rejected({"id": value, "text": "x"}, "'id'")


def test_an_id_is_neither_empty_nor_too_long() -> None:
    rejected({"id": "", "text": "x"}, "'id'", "empty")
    rejected({"_id": "é" * 2049, "text": "x"}, "'_id'", "4096", "4098")
    assert document_from({"id": "é" * 2048, "text": "x"}, "document 1").id == "é" * 2048


@pytest.mark.parametrize("value", [None, 5, "", " \n\t\u2003"])
def test_a_text_is_a_str_that_is_not_blank(value: object) -> None:
    rejected({"id": "d", "text": value}, "'text'", "(id 'd')")
    rejected({"id": "d", "title": " ", "text": value}, "'text'", "(id 'd')")


def test_a_title_is_enough_if_the_text_is_blank() -> None:
    document = document_from({"title": "T", "text": ""}, "document 1")
    assert (document.title, document.text) == ("T", "")
    rejected({"title": "T", "text": None}, "'text'")


def test_a_value_of_another_librarys_type_is_named_in_full() -> None:
    rejected({"text": "x", "metadata": {"n": np.timedelta64(1, "s")}}, "metadata.n", "numpy.timedelta64")
    rejected({"text": "x", "metadata": {"n": np.complex64(1)}}, "metadata.n", "numpy.complex64")


def test_numbers_of_numpy_in_metadata_become_pythons() -> None:
    numbers = [kind(2) for kind in (np.int8, np.uint64, np.float16, np.float32, np.float64, np.longdouble)]
    given = {"l": [*numbers, np.bool_(True), np.str_("s")], "d": {"n": np.int64(1)}}
    found = document_from({"text": "x", "metadata": given}, "document 1").metadata
    assert found == {"l": [2, 2, 2, 2, 2, 2, True, "s"], "d": {"n": 1}}
    assert [type(each) for each in found["l"]] == [int, int, float, float, float, float, bool, str]
    for wrong in (np.float32("nan"), np.longdouble("inf"), np.uint64(1 << 63), np.timedelta64(1, "s")):
        rejected({"text": "x", "metadata": {"n": wrong}}, "metadata.n", "cannot be stored")


def test_dates_in_metadata_become_texts() -> None:
    zone = timezone(timedelta(hours=2))
    given = {"day": date(2025, 1, 2), "times": [datetime(2025, 1, 2, 3, 4), datetime(2025, 1, 2, tzinfo=zone)]}
    found = document_from({"text": "x", "metadata": given}, "document 1").metadata
    assert found == {"day": "2025-01-02", "times": ["2025-01-02T03:04:00", "2025-01-02T00:00:00+02:00"]}
    moments = [np.datetime64("2025-01-02"), np.datetime64("2025-01-02T03:04", "ns")]
    found = document_from({"text": "x", "metadata": {"times": moments}}, "document 1").metadata
    assert found == {"times": ["2025-01-02", "2025-01-02T03:04:00"]}
    for wrong in (np.datetime64("NaT"), np.datetime64(9000, "Y")):
        rejected({"text": "x", "metadata": {"n": wrong}}, "metadata.n", "cannot be stored")


def test_a_missing_date_of_pandas_is_refused() -> None:
    pandas = pytest.importorskip("pandas")
    rejected({"text": "x", "metadata": {"n": pandas.NaT}}, "metadata.n", "cannot be stored")


def test_a_document_says_where_it_was_read() -> None:
    assert document_from("x", "document 17").origin == "document 17"
    document = document_from({"id": "d", "text": "x"}, "line 3", Path("docs.jsonl"))
    assert document.origin == "docs.jsonl: line 3 (id 'd')"
    assert document == Document("d", "x")


def test_a_missing_text_is_reported() -> None:
    rejected({"id": "d", "title": "t"}, "'text'", "missing")


def test_a_title_is_a_str() -> None:
    rejected({"text": "x", "title": 5}, "'title'", "int")


def test_a_text_that_is_too_long_is_to_be_split() -> None:
    assert document_from("x" * MAX_TEXT_CHARACTERS, "document 1")
    rejected("x" * (MAX_TEXT_CHARACTERS + 1), "'text'", "split", str(MAX_TEXT_CHARACTERS))
    rejected({"text": "x", "title": "t" * MAX_TEXT_CHARACTERS}, "'text'", "title included")


@pytest.mark.parametrize("field", ["id", "title", "text"])
def test_lone_surrogates_are_refused_where_they_stand(field: str) -> None:
    rejected({"text": "x", field: "ab\ud800c"}, f"'{field}'", "character 2", "U+D800")


@pytest.mark.parametrize("metadata", [{"k": {"deep": ["\udfff"]}}, {"k\udfff": 1}])
def test_lone_surrogates_are_refused_in_metadata(metadata: object) -> None:
    rejected({"text": "x", "metadata": metadata}, "metadata", "U+DFFF")


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, 1 << 63, -(1 << 63) - 1, 1 << 80, (1,), {1}, b"b", object(), 1j]
)
def test_metadata_holds_json_values_only(value: object) -> None:
    rejected({"text": "x", "metadata": {"a": [{"b": value}]}}, "'metadata.a[0].b'")


def test_a_number_of_any_size_can_be_shown() -> None:
    assert sys.get_int_max_str_digits() < 20_000
    rejected({"text": "x", "metadata": {"n": 10**20_000}}, "'metadata.n'", "bits")


def test_metadata_is_a_mapping_with_str_keys() -> None:
    rejected({"text": "x", "metadata": [1]}, "'metadata'", "list")
    rejected({"text": "x", "metadata": {"a": {3: 4}}}, "'metadata.a'", "int")


def test_metadata_is_eight_levels_deep_at_most() -> None:
    assert document_from({"text": "x", "metadata": nested(8)}, "document 1")
    rejected({"text": "x", "metadata": nested(9)}, "metadata", "8 levels")
    endless: dict[str, object] = {}
    endless["again"] = endless
    rejected({"text": "x", "metadata": endless}, "metadata", "8 levels")


def nested(n_levels: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(n_levels - 1):
        value = {"a": value}
    return value


def test_metadata_is_64_kib_at_most() -> None:
    rejected({"text": "x", "metadata": {"a": "b" * 65_536}}, "'metadata'", "65536")
    assert document_from({"text": "x", "metadata": {"a": "b" * 65_000}}, "document 1")


def test_metadata_that_is_much_too_large_is_not_copied_first() -> None:
    many: list[object] = [0] * 10
    for _ in range(6):
        many = [many] * 1000
    rejected({"text": "x", "metadata": {"a": many}}, "'metadata' is too large")
    endless: list[object] = []
    endless += [endless, endless, endless]
    rejected({"text": "x", "metadata": {"a": endless}}, "metadata.a", "8 levels")
    rejected({"text": "x", "metadata": {str(i): i for i in range(100_000)}}, "'metadata' is too large")


def test_an_item_that_is_a_table_is_explained() -> None:
    class DataFrame:
        """A table of an unknown library."""

    rejected(DataFrame(), "not a document", "its rows, each a dict")


def test_metadata_of_a_caller_has_no_place() -> None:
    for metadata in ({}, {"file": "a.txt"}, {"file": {"path": 5}}):
        assert find_place("text", "", metadata, ((0, 4),)) is None
    assert find_place("text", "", {"file": {"path": "a", "part": 7, "places": "?"}}, ((0, 4),)) == FilePlace("a")
