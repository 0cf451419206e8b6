"""LEB128 encoding of single numbers and of arrays."""

from __future__ import annotations

import numpy as np
import pytest

from quarry.formats.container.varint import (
    MAX_VARINT_BYTES,
    append_varint,
    put_varints,
    read_varint,
    read_varints,
    varint_sizes,
)

NUMBERS = sorted({0, *(n + step for bits in range(35) for n in [1 << bits] for step in (-1, 0, 1)), (1 << 35) - 1})


def packed(numbers):
    buffer = bytearray()
    for number in numbers:
        append_varint(buffer, number)
    return bytes(buffer)


def test_the_examples_of_the_specification_of_leb128():
    assert (packed([0]), packed([127]), packed([128]), packed([624485])) == (
        b"\0",
        b"\x7f",
        b"\x80\1",
        b"\xe5\x8e\x26",
    )


def test_numbers_come_back_one_at_a_time():
    data, position, found = packed(NUMBERS), 0, []
    while position < len(data):
        number, position = read_varint(data, position)
        found.append(number)
    assert found == NUMBERS


def test_many_at_once_are_the_same():
    numbers = np.array(NUMBERS)
    sizes = varint_sizes(numbers)
    positions = np.cumsum(sizes) - sizes
    data = np.zeros(int(sizes.sum()), np.uint8)
    put_varints(data, positions, numbers, sizes)
    assert data.tobytes() == packed(NUMBERS)
    found, ends = read_varints(np.append(data, np.zeros(MAX_VARINT_BYTES, np.uint8)), positions)
    assert (found.tolist(), ends.tolist()) == (NUMBERS, (positions + sizes).tolist())


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x80\x80\x80\x80\1"])
def test_a_number_that_is_cut_off_or_too_long(data):
    with pytest.raises(ValueError, match="too long"):
        read_varint(data, 0)
    if len(data) > MAX_VARINT_BYTES:
        with pytest.raises(ValueError, match="too long"):
            read_varints(np.frombuffer(data, np.uint8), np.array([0]))


def test_64_bits_take_ten_bytes():
    assert read_varint(packed([(1 << 64) - 1]), 0, 10) == ((1 << 64) - 1, 10)
