"""Spans of the texts of centroids."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarry.formats.documents.spans import pack_spans, unpack_spans
from quarry.formats.errors import CorruptFile

PATH = Path("some.seg")


@pytest.mark.parametrize(
    ("centroids", "packed"),
    [
        ([], ""),
        ([[]], "00"),
        ([[(0, 0)]], "01 00 00"),
        ([[(0, 4)], [(5, 9), (9, 10)]], "01 00 04  02 05 04 00 01"),
        ([[(127, 128)], [(128, 16512)]], "01 7f 01  01 8001 808001"),
        ([[(1, 1 << 32)]], "01 01 ffffffff0f"),
    ],
)
def test_the_bytes(centroids, packed):
    assert pack_spans(centroids) == bytes.fromhex(packed)
    assert unpack_spans(bytes.fromhex(packed), PATH) == centroids


@pytest.mark.parametrize(
    "centroids", [[[(0, 4)], [(5, 300)], [(0, 70000)]], [[], [(5, 9), (9, 300)], [(0, 70000)]], [[]] * 3]
)
def test_the_spans_of_some_centroids(centroids):
    packed = pack_spans(centroids)
    for first in range(4):
        for stop in (*range(first, 4), None):
            assert unpack_spans(packed, PATH, 3, first, stop) == centroids[first:stop]
    with pytest.raises(CorruptFile, match="do not fit"):
        unpack_spans(packed, PATH, 2)


@pytest.mark.parametrize("spans", [[(3, 2)], [(0, 5), (4, 6)], [(5, 6), (0, 1)], [(-1, 2)]])
def test_spans_that_overlap_or_go_back_are_not_packed(spans):
    with pytest.raises(ValueError, match="ascend"):
        pack_spans([spans])


@pytest.mark.parametrize(
    "packed",
    [
        "01",
        "01 00",
        "02 00 01 00",
        "80",
        "01 80",
        "01 00 8080",
        "01 00 ffffffff1f",
        "01 00 808080808001",
        "01 01 8080808010",
        "02 00 8080808010 00 01",
        "ffffffff0f",
        "01 00 00 05",
    ],
)
def test_bytes_that_are_no_spans(packed):
    with pytest.raises(CorruptFile, match=r"some\.seg"):
        unpack_spans(bytes.fromhex(packed), PATH)


def test_a_number_without_an_end_is_refused_at_once():
    """A number without an end is refused at once; decoding all of it would take hours."""
    with pytest.raises(CorruptFile):
        unpack_spans(b"\xff" * (16 << 20), PATH)


def test_more_spans_than_any_document_has():
    with pytest.raises(CorruptFile, match="too many spans"):
        unpack_spans(bytes((16 << 20) + 1), PATH)
