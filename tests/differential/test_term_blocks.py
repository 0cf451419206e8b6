"""Packing, unpacking, sorting and comparing terms as rows of a matrix is compared with plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from support.faults.torture import figure

from quarry.formats.postings.term_blocks import (
    argsort_rows,
    find_first_of_equal,
    get_term,
    is_ascending,
    make_rows,
    pack,
    stack_rows,
    unpack,
)

NUMBERS = [1, 127, 128, (1 << 14) - 1, 1 << 14, (1 << 21) - 1, 1 << 21, 1 << 29, (1 << 32) - 1]


def random_terms(generator, n_terms):
    """Return distinct sorted terms of up to 255 bytes: short ones, long common prefixes, trailing zeros."""
    terms = set()
    while len(terms) < n_terms:
        terms |= {
            generator.bytes(int(generator.integers(1, 4))),
            b"prefix" * int(generator.integers(1, 40)) + bytes(int(generator.integers(0, 12))),
            f"term{generator.integers(100_000)}".encode(),
            b"x" * int(generator.integers(1, 256)),
            generator.bytes(int(generator.integers(1, 256))),
        }
    return sorted(generator.permutation(np.array(list(terms), object))[:n_terms].tolist())


def varint(number):
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*packed, number])


def packed_one_by_one(terms, n_docs, record_bytes):
    """Return blocks as `quarry.formats.postings.term_dictionary` describes them."""
    blocks = []
    for number, term in enumerate(terms):
        shared = 0
        if number % 16 == 0:
            blocks.append(b"")
        else:
            before = terms[number - 1]
            while shared < min(len(term), len(before)) and term[shared] == before[shared]:
                shared += 1
        rest = term[shared:]
        blocks[-1] += bytes([shared, len(rest)]) + rest + varint(n_docs[number]) + varint(record_bytes[number])
    return blocks


def starts_of(sizes):
    return np.concatenate([[0], np.cumsum(sizes)])


def listed(rows):
    return [get_term(row) for row in rows]


@pytest.mark.parametrize("n_terms", [1, 2, 15, 16, 17, 32, 33, 500])
@pytest.mark.parametrize("seed", range(4))
def test_packed_and_unpacked(n_terms, seed):
    generator = np.random.default_rng(seed)
    terms = random_terms(generator, n_terms)
    n_docs, record_bytes = generator.choice(NUMBERS, (2, n_terms))
    rows = make_rows(terms)
    assert listed(rows) == terms
    packed, sizes = pack(rows, n_docs, record_bytes)
    blocks = packed_one_by_one(terms, n_docs.tolist(), record_bytes.tolist())
    assert packed.tobytes() == b"".join(blocks)
    assert sizes.tolist() == [len(block) for block in blocks]
    found = unpack(packed, starts_of(sizes), is_end=True)
    assert listed(found.rows) == terms
    assert found.n_docs.tolist() == n_docs.tolist()
    assert found.record_bytes.tolist() == record_bytes.tolist()


@pytest.mark.parametrize("seed", range(6))
def test_sorted_and_compared(seed):
    generator = np.random.default_rng(seed)
    terms = random_terms(generator, 300)
    chosen = [[terms[n] for n in np.sort(generator.choice(300, 200, replace=False))] for _ in range(3)]
    chosen.append([b"x"])
    rows = stack_rows([make_rows(part) for part in chosen])
    together = [term for part in chosen for term in part]
    assert listed(rows) == together
    order = argsort_rows(rows)
    assert order.tolist() == sorted(range(len(together)), key=lambda number: (together[number], number))
    assert listed(rows[order][find_first_of_equal(rows[order])]) == sorted(set(together))
    assert is_ascending(make_rows(terms))
    assert not is_ascending(make_rows([*terms[:7], *terms[6:]]))
    assert not is_ascending(make_rows([*terms[:7], terms[8], terms[7]]))


def test_damaged_blocks_are_refused_or_read_within_bounds():
    generator = np.random.default_rng(0)
    terms = random_terms(generator, 40)
    n_docs, record_bytes = generator.integers(1, 1 << 32, (2, 40))
    good, sizes = pack(make_rows(terms), n_docs, record_bytes)
    n_refused = 0
    n = figure(500, 2000)
    for _ in range(n):
        bad = good.copy()
        bad[generator.integers(len(bad), size=2)] = generator.integers(0, 256, 2)
        try:
            found = unpack(bad, starts_of(sizes), is_end=True)
        except ValueError:
            n_refused += 1
        else:
            assert listed(found.rows) == sorted(set(listed(found.rows)))
            assert 32 < len(found.rows) <= 48
    assert n / 4 < n_refused < n


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\0\0\1\1",
        b"\0\1a",
        b"\0\1a\1",
        b"\0\1a\1\x80",
        b"\0\1a\1" + b"\x80" * 5 + b"\1",
        b"\1\1a\1\1",
        b"\0\1b\1\1" + b"\0\1a\1\1",
        b"\0\1b\1\1" + b"\1\0\1\1",
        b"\0\xff" + b"x" * 255 + b"\1\1" + b"\xff\1x\1\1",
        b"\0\1a\1\1" + b"".join(b"\1" + bytes([1, n]) + b"\1\1" for n in range(16)),
    ],
)
def test_blocks_that_are_none(block):
    with pytest.raises(ValueError, match=r"term|blocks|integer"):
        unpack(np.frombuffer(block, np.uint8), np.array([0, len(block)]), is_end=True)


def test_only_the_last_block_is_short():
    short = b"\0\1a\1\1"
    with pytest.raises(ValueError, match="blocks"):
        unpack(np.frombuffer(short + b"\0\1b\1\1", np.uint8), np.array([0, 5, 10]), is_end=True)
    with pytest.raises(ValueError, match="blocks"):
        unpack(np.frombuffer(short, np.uint8), np.array([0, 5]), is_end=False)
