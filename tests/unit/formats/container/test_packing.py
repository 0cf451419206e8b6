"""Msgpack as the files use it: one form out, a strict and bounded one in."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path

import msgpack
import pytest

from quarry.formats.container.packing import Fields, pack, unpack, unpack_bounded
from quarry.formats.errors import CorruptFile

PATH = Path("some.seg")
VALUE = {"text": "é", "data": b"\0\xff", "list": [1, -1, 1 << 63, [], {}], "none": None, "x": 0.5, "yes": True}


def refused(data: bytes) -> str:
    with pytest.raises(CorruptFile) as caught:
        unpack(data, PATH, "the table")
    message = str(caught.value)
    assert message.startswith("some.seg: the table")
    assert len(message) < 300
    return message


def fields(**values):
    return Fields(values, PATH, "the table")


def test_what_is_packed_comes_back():
    assert unpack(pack(VALUE), PATH, "the table") == VALUE
    assert unpack(memoryview(pack(VALUE)), PATH, "the table") == VALUE


def test_the_bytes_do_not_depend_on_the_order_of_maps():
    assert pack({"b": {"d": 1, "c": (2,)}, "a": b"x"}) == pack({"a": b"x", "b": {"c": [2], "d": 1}})
    assert pack({"b": 1, "a": 300}) == bytes.fromhex("82 a161 cd012c a162 01")


@pytest.mark.parametrize(
    "data", ["82 a161 01 a161 02", "81 a161 82 a162 01 a162 01", "81 a161 91 82 a162 01 a162 01"]
)
def test_a_key_that_appears_twice_is_refused(data):
    assert "twice" in refused(bytes.fromhex(data))


@pytest.mark.parametrize("key", ["01", "c0", "c3", "c40161", "90", "80", "cb3ff0000000000000"])
def test_a_key_that_is_no_text_is_refused(key):
    refused(bytes.fromhex("81" + key + "01"))
    refused(bytes.fromhex("81 a161 81" + key + "01"))


@pytest.mark.parametrize(
    "value", ["d40500", "d6ff00000000", "d7ff0000000000000000", "c70005", "c700ff", "c70105aa", "c80000 05", "c1"]
)
def test_extension_types_are_refused(value):
    refused(bytes.fromhex("81 a161" + value))
    refused(bytes.fromhex("81 a161 91" + value))


@pytest.mark.parametrize("value", [[], 1, None, "text", b"bytes", True])
def test_what_is_no_map_is_refused(value):
    assert "is no map" in refused(msgpack.packb(value))


def test_every_truncation_and_anything_behind_it_is_refused():
    whole = pack(VALUE)
    for length in range(len(whole)):
        refused(whole[:length])
    refused(whole + b"\0")
    refused(whole + whole)


@pytest.mark.parametrize("text", ["a1ff", "a2c328", "a3eda080"])
def test_text_that_is_no_utf8_is_refused(text):
    refused(bytes.fromhex("81 a161" + text))


def test_depth_is_bounded():
    refused(b"\x81\xa1a" + b"\x91" * 100_000 + b"\x90")
    deep = unpack(b"\x81\xa1a" + b"\x91" * 1000 + b"\x90", PATH, "the table")
    with pytest.raises(CorruptFile):
        Fields(deep, PATH, "the table").integer("a", 0, 1)


@pytest.mark.parametrize("head", ["dd00200000", "ddffffffff", "df00100000", "c6ffffffff", "dbffffffff"])
def test_lengths_that_are_lies_cost_nothing(head):
    for data in (b"\x81\xa1a" + bytes.fromhex(head) * 1000, b"\x81\xa1a" + bytes.fromhex(head) + bytes(3 << 20)):
        tracemalloc.start()
        try:
            refused(data)
            assert tracemalloc.get_traced_memory()[1] < 3 * len(data) + (32 << 20)
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("item", ["90", "80", "c0", "a26162"])
def test_many_small_values_are_refused_before_they_are_made(item):
    data = b"\x81\xa1a\xdd\0\x40\0\0" + bytes.fromhex(item) * (1 << 22)
    tracemalloc.start()
    try:
        refused(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_bound_counts_every_value():
    data = msgpack.packb({"some key": ["text 1", b"bytes 2", 1.5, 1 << 40, {"key": None}]})
    assert unpack_bounded(data, 10) == msgpack.unpackb(data)
    with pytest.raises(ValueError, match="more than 9 values"):
        unpack_bounded(data, 9)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 4, 11])
def test_an_integer_is_an_int_within_its_bounds(value):
    assert fields(n=5).integer("n", 5, 10) == 5
    with pytest.raises(CorruptFile, match="wrong n; expected an integer from 5 to 10"):
        fields(n=value).integer("n", 5, 10)


@pytest.mark.parametrize("value", [True, 1, "1", math.nan, math.inf, 0.4, 2.1])
def test_a_number_is_a_finite_float_within_its_bounds(value):
    assert fields(x=0.5).number("x", 0.5, 2.0) == fields(x=0.5).optional_number("x", 0.5, 2.0) == 0.5
    assert fields(x=None).optional_number("x", 0.5, 2.0) is None
    with pytest.raises(CorruptFile, match="wrong x"):
        fields(x=value).optional_number("x", 0.5, 2.0)
    with pytest.raises(CorruptFile, match="wrong x"):
        fields(x=None).number("x", 0.5, 2.0)


@pytest.mark.parametrize("value", [0, 1, None, "true"])
def test_a_flag_is_a_bool(value):
    assert fields(f=False).flag("f") is False
    with pytest.raises(CorruptFile, match="wrong f"):
        fields(f=value).flag("f")


@pytest.mark.parametrize("value", ["éééé", b"a", None, ["a"]])
def test_a_text_is_short_and_no_bytes(value):
    assert fields(t="ééé").text("t", 3) == "ééé"
    with pytest.raises(CorruptFile, match="wrong t"):
        fields(t=value).text("t", 3)


@pytest.mark.parametrize("value", ["c", b"a", None, ["a"], {}])
def test_a_choice_is_one_of_a_few_texts(value):
    assert fields(t="b").choice("t", ("a", "b")) == "b"
    with pytest.raises(CorruptFile, match="one of a, b"):
        fields(t=value).choice("t", ("a", "b"))


@pytest.mark.parametrize("value", [b"123", "1234", None, [1, 2, 3, 4]])
def test_data_is_bytes_of_one_length(value):
    assert fields(d=b"1234").data("d", 4) == b"1234"
    assert fields(d=b"12").data("d") == b"12"
    with pytest.raises(CorruptFile, match="wrong d"):
        fields(d=value).data("d", 4)


@pytest.mark.parametrize("value", [[1, 2, 3], "ab", None, {"a": 1}])
def test_items_are_a_short_array(value):
    assert fields(i=[1, 2]).items("i", 2) == [1, 2]
    with pytest.raises(CorruptFile, match="wrong i"):
        fields(i=value).items("i", 2)


@pytest.mark.parametrize("value", [[], "a", 1])
def test_a_child_is_a_map(value):
    child = fields(c={"n": 1}).child("c")
    assert child.integer("n", 0, 9) == 1
    assert fields(c=None).optional_child("c") is None
    for take in (Fields.child, Fields.optional_child):
        with pytest.raises(CorruptFile, match=r"the table, field c is no map"):
            take(fields(c=value), "c")


def test_what_is_missing_or_left_over_is_named():
    taken = fields(a=1, b=2)
    with pytest.raises(CorruptFile, match="the table lacks a field; expected c"):
        taken.flag("c")
    with pytest.raises(CorruptFile, match="lacks a field"):
        taken.optional_number("c", 0.0, 1.0)
    taken.integer("a", 0, 1)
    with pytest.raises(CorruptFile, match=r"unknown fields; found .*b"):
        taken.done()
    assert taken.remaining() == {"b": 2}
    taken.done()


@pytest.mark.parametrize("value", [bytes(1 << 20), "x" * (1 << 20), list(range(1 << 20)), {"k" * 1000: 1}])
def test_messages_stay_short(value):
    for take in (lambda f: f.integer("v", 0, 1), lambda f: f.done()):
        with pytest.raises(CorruptFile) as caught:
            take(fields(v=value, **{"x" * 100_000: 1}))
        assert len(str(caught.value)) < 400
