"""Documents copy their metadata when they are made, or refuse it, whatever its values."""

from __future__ import annotations

import copy
import json
import math

import msgpack
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.faults.torture import figure
from support.indexes.metadata_oracle import metadata, scalars

from quarry.engine.documents.document import MAX_METADATA_BYTES, MAX_METADATA_DEPTH, Document, document_from
from quarry.formats.documents.packed_metadata import PackedMetadata
from quarry.formats.errors import InvalidDocument

BAD = [math.nan, math.inf, 1 << 63, 1 << 80, (1,), {1}, b"b", 1j, "\ud800", "x" * MAX_METADATA_BYTES]
anything = st.recursive(
    scalars | st.sampled_from(BAD),
    lambda inside: st.one_of(
        st.lists(inside, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "é", "", 5, None, "\udfff"]), inside, max_size=3),
    ),
    max_leaves=12,
)
nested = st.integers(1, 10).map(lambda n: json.loads("[" * n + "]" * n))
few = settings(deadline=None, max_examples=figure(100, 1000))


def is_storable(value, depth=1):
    """Return whether a value can be stored, checked in the simplest way."""
    if isinstance(value, dict | list):
        members = [*value, *value.values()] if isinstance(value, dict) else value
        keys = list(value) if isinstance(value, dict) else []
        return (
            depth <= MAX_METADATA_DEPTH
            and all(isinstance(key, str) for key in keys)
            and all(is_storable(member, depth + 1) for member in members)
        )
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    return isinstance(value, float) and math.isfinite(value)


def make_unstorable(value):
    """Change every container within a value into one that cannot be stored."""
    if isinstance(value, dict):
        for member in list(value.values()):
            make_unstorable(member)
        value[5] = {1 << 80}
    elif isinstance(value, list):
        for member in list(value):
            make_unstorable(member)
        value.append(math.nan)


@few
@given(st.dictionaries(st.sampled_from(["a", "b", 6]), anything | nested, max_size=4))
def test_accepted_values_are_read_back_and_others_refused(given_metadata):
    before = copy.deepcopy(given_metadata)
    raw = {"text": "x", "metadata": given_metadata}
    if not is_storable(before) or len(msgpack.packb(before)) > MAX_METADATA_BYTES:
        event("refused")
        with pytest.raises(InvalidDocument, match="document 17: field 'metadata"):
            document_from(raw, "document 17")
        return
    event("taken")
    document = document_from(raw, "document 17")
    assert document.metadata.packed == msgpack.packb(before)
    make_unstorable(given_metadata)
    assert document == Document(document.id, "x", "", before)


@few
@given(metadata)
def test_packed_metadata_reads_like_what_was_packed(given_metadata):
    packed = PackedMetadata.of(given_metadata)
    assert packed == given_metadata
    assert (dict(packed), packed.unpacked()) == (given_metadata, given_metadata)
    assert list(packed.items()) == list(given_metadata.items())
    assert list(packed.values()) == list(given_metadata.values())
    assert PackedMetadata.of(packed) is packed
