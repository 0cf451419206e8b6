"""Facets have the counts that plain Python computes."""

from __future__ import annotations

import tempfile
from collections import Counter

from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.indexes.metadata_oracle import KEYS, fields_of, found_at, metadata, titles, type_of
from support.indexes.metadata_segments import ids_of, open_index

from quarry.engine.filtering.cache import DocumentFilter
from quarry.engine.filtering.filter import parse_filter
from quarry.engine.listing.facets import FacetRequest, count_values, select_documents

collections = st.lists(st.tuples(titles, metadata), min_size=1, max_size=12)
paths = st.sampled_from([*KEYS, "a.a", "b.a", "a.b.c", ".", "nothing"])


def key_of(value):
    """Return the key of a value: 1 and 1.0 are the same value, True is another."""
    return type_of(value), value + 0.0 if value == 0 and type_of(value) == "number" else value


def counted(snapshot, field, condition):
    document_filter = DocumentFilter(snapshot.segments, 1 << 20, str.split)
    allowed = document_filter.evaluate(parse_filter(condition))[0]
    flags = select_documents(snapshot.segments, allowed, None)
    parts = (count_values(segment, field, docs) for segment, docs in zip(snapshot.segments, flags, strict=True))
    return FacetRequest.of(field, None, None).sum(parts)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(collections, min_size=1, max_size=3),
    paths,
    st.sampled_from([{}, {"a": {"$exists": True}}]),
    st.data(),
)
def test_counts(parts, field, condition, data):
    deleted = [sorted(data.draw(st.sets(st.integers(0, len(docs) - 1), max_size=len(docs) - 1))) for docs in parts]
    live = [
        (fields_of(doc_id, *docs[n]), {"id": [doc_id], "title": [docs[n][0]] if docs[n][0] else []})
        for number, docs in enumerate(parts)
        for n, doc_id in enumerate(ids_of(number, docs))
        if n not in deleted[number]
    ]
    if condition:
        live = [each for each in live if found_at(each[0], "a")]
    # facets of ids and titles count those alone, not what metadata has at their paths
    found = [own[field] if field in own else found_at(document, field) for document, own in live]
    values = [{key_of(value) for value in each if value is not ...} for each in found]
    expected = Counter(key for each in values for key in each)
    with tempfile.TemporaryDirectory() as folder:
        snapshot = open_index(folder, parts, deleted, data.draw(st.sampled_from([0, 1, 3, 4096])))
        found = counted(snapshot, field, condition)
        snapshot.close()
    assert {key_of(each.value): each.n_documents for each in found.values} == expected
    assert (found.n_values, found.n_documents) == (len(expected), len(live))
    assert found.n_missing == sum(not each for each in values)
    numbers = [each.n_documents for each in found.values]
    assert numbers == sorted(numbers, reverse=True)
    event("some values" if expected else "no value")
