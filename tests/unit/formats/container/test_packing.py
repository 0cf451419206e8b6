"""Msgpack as used in files: written in one canonical form, and read strictly within limits."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgpack
import pytest

from quarry.formats.container.packing import pack, unpack, unpack_bounded
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


def test_packed_values_are_unpacked():
    assert unpack(pack(VALUE), PATH, "the table").remaining() == VALUE
    assert unpack(memoryview(pack(VALUE)), PATH, "the table").remaining() == VALUE


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
def test_bytes_that_are_not_a_map_are_refused(value):
    assert "is not a map" in refused(msgpack.packb(value))


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
        deep.integer("a", 0, 1)


@pytest.mark.parametrize("head", ["dd00200000", "ddffffffff", "df00100000", "c6ffffffff", "dbffffffff"])
def test_false_lengths_allocate_no_memory(head):
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
