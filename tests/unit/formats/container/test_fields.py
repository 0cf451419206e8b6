"""Reading fields of maps from files."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from quarry.formats.container.fields import Fields, read_json
from quarry.formats.errors import CorruptFile

PATH = Path("some.seg")


def fields(**values):
    return Fields(values, PATH, "the table")


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 4, 11])
def test_an_integer_is_an_int_within_its_bounds(value):
    assert fields(n=5).integer("n", 5, 10) == 5
    with pytest.raises(CorruptFile, match="invalid field n; expected an integer from 5 to 10"):
        fields(n=value).integer("n", 5, 10)


@pytest.mark.parametrize("value", [True, 1, "1", math.nan, math.inf, 0.4, 2.1])
def test_a_number_is_a_finite_float_within_its_bounds(value):
    assert fields(x=0.5).number("x", 0.5, 2.0) == fields(x=0.5).optional_number("x", 0.5, 2.0) == 0.5
    assert fields(x=None).optional_number("x", 0.5, 2.0) is None
    with pytest.raises(CorruptFile, match="invalid field x"):
        fields(x=value).optional_number("x", 0.5, 2.0)
    with pytest.raises(CorruptFile, match="invalid field x"):
        fields(x=None).number("x", 0.5, 2.0)


@pytest.mark.parametrize("value", [0, 1, None, "true"])
def test_a_flag_is_a_bool(value):
    assert fields(f=False).boolean("f") is False
    with pytest.raises(CorruptFile, match="invalid field f"):
        fields(f=value).boolean("f")


@pytest.mark.parametrize("value", ["éééé", b"a", None, ["a"]])
def test_a_text_is_short_and_no_bytes(value):
    assert fields(t="ééé").text("t", 3) == "ééé"
    with pytest.raises(CorruptFile, match="invalid field t"):
        fields(t=value).text("t", 3)


@pytest.mark.parametrize("value", ["c", b"a", None, ["a"], {}])
def test_a_choice_is_one_of_a_few_texts(value):
    assert fields(t="b").choice("t", ("a", "b")) == "b"
    with pytest.raises(CorruptFile, match="one of a, b"):
        fields(t=value).choice("t", ("a", "b"))


@pytest.mark.parametrize("value", [b"123", "1234", None, [1, 2, 3, 4]])
def test_data_is_bytes_of_one_length(value):
    assert fields(d=b"1234").binary("d", 4) == b"1234"
    with pytest.raises(CorruptFile, match="invalid field d"):
        fields(d=value).binary("d", 4)


@pytest.mark.parametrize("value", [[1, 2, 3], "ab", None, {"a": 1}])
def test_items_are_a_short_array(value):
    assert fields(i=[1, 2]).items("i", 2) == [1, 2]
    with pytest.raises(CorruptFile, match="invalid field i"):
        fields(i=value).items("i", 2)


@pytest.mark.parametrize("value", [[], "a", 1])
def test_a_child_is_a_map(value):
    child = fields(c={"n": 1}).child("c")
    assert child.integer("n", 0, 9) == 1
    assert fields(c=None).optional_child("c") is None
    for take in (Fields.child, Fields.optional_child):
        with pytest.raises(CorruptFile, match=r"the table, field c is not a map"):
            take(fields(c=value), "c")


def test_missing_and_unexpected_fields_are_named():
    taken = fields(a=1, b=2)
    with pytest.raises(CorruptFile, match="the table lacks a field; expected c"):
        taken.boolean("c")
    with pytest.raises(CorruptFile, match="lacks a field"):
        taken.optional_number("c", 0.0, 1.0)
    taken.integer("a", 0, 1)
    with pytest.raises(CorruptFile, match=r"unknown fields; found .*b"):
        taken.refuse_unknown()
    assert taken.remaining() == {"b": 2}
    taken.refuse_unknown()


@pytest.mark.parametrize("value", [bytes(1 << 20), "x" * (1 << 20), list(range(1 << 20)), {"k" * 1000: 1}])
def test_messages_stay_short(value):
    for take in (lambda f: f.integer("v", 0, 1), lambda f: f.refuse_unknown()):
        with pytest.raises(CorruptFile) as caught:
            take(fields(v=value, **{"x" * 100_000: 1}))
        assert len(str(caught.value)) < 400


def test_children_are_maps_that_are_named_by_their_number():
    first, second = fields(c=[{"n": 1}, {"n": 2}]).children("c", 2)
    assert (first.integer("n", 0, 9), second.integer("n", 0, 9)) == (1, 2)
    with pytest.raises(CorruptFile, match=r"field c\[1\] is not a map"):
        fields(c=[{}, 3]).children("c", 2)
    with pytest.raises(CorruptFile, match=r"invalid field c\[0\].n"):
        fields(c=[{"n": "x"}]).children("c", 2)[0].integer("n", 0, 9)


def test_an_integer_is_a_number_in_json_alone(tmp_path):
    path = tmp_path / "some.json"
    path.write_text('{"x": 1, "inner": {"x": 2}, "flag": true}')
    members = Fields.from_json(read_json(path, 100), path)
    assert (members.number("x", 0.0, 1.0), members.child("inner").number("x", 0.0, 2.0)) == (1.0, 2.0)
    with pytest.raises(CorruptFile, match="invalid field flag"):
        members.number("flag", 0.0, 1.0)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_a_text_is_one_that_utf_8_can_hold(text):
    with pytest.raises(CorruptFile, match="invalid field t"):
        fields(t=text).text("t")


def test_an_optional_text_may_be_null():
    assert fields(t=None).optional_text("t") is None
    assert fields(t="a").optional_text("t") == "a"
    with pytest.raises(CorruptFile, match="lacks a field"):
        fields(a="a").optional_text("t")


@pytest.mark.parametrize(
    "content", [b'{"a": 1, "a": 2}', b'{"a": NaN}', b"[" * 100_000, b"\xff", b'{"a": 1', b"1" * 101]
)
def test_json_is_strict(tmp_path, content):
    path = tmp_path / "some.json"
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match=r"JSON|too long"):
        read_json(path, 1_000_000 if content[:1] == b"[" else 100)
