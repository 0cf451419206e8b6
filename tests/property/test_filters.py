"""A filter matches the same documents as its condition evaluated in plain Python."""

from __future__ import annotations

import tempfile
import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.faults.torture import figure
from support.indexes.metadata_oracle import (
    clashes,
    fields_of,
    filters,
    metadata,
    own_fields,
    passes,
    titles,
    unknown_fields,
)
from support.indexes.metadata_segments import ids_of, open_index

from quarry.engine import UnknownFieldWarning
from quarry.engine.analysis.auto_analyzer import cached_analyzer
from quarry.engine.documents.document import full_text
from quarry.engine.filtering.cache import DocumentFilter
from quarry.engine.filtering.evaluation import find_unknown_paths
from quarry.engine.filtering.filter import parse_filter
from quarry.engine.filtering.unknown_fields import UnknownFields
from quarry.formats.errors import InvalidFilter

collections = st.lists(st.tuples(titles, metadata), min_size=1, max_size=12)
few = settings(deadline=None, max_examples=figure(30, 1000))
several = st.lists(filters | own_fields, min_size=1, max_size=6)


def found(document_filter, condition, snapshot):
    """Return (segment, ordinal) of each document that passes the filter."""
    passed = []
    answer = document_filter.allowed(parse_filter(condition))
    for number, (segment, allowed) in enumerate(zip(snapshot.segments, answer, strict=True)):
        gone = np.zeros(segment.record.n_docs, bool) if segment.deleted is None else segment.deleted
        flags = ~gone if allowed is None else allowed.flags
        assert allowed is None or (allowed.n, allowed.docs.tolist()) == (
            sum(flags),
            np.flatnonzero(flags).tolist(),
        )
        passed += [(number, doc) for doc in np.flatnonzero(flags).tolist()]
    return passed


def check(document_filter, condition, unknown):
    """Check the types of a filter, and warn about unknown fields, as a view does for all its partitions."""
    parsed = parse_filter(condition)
    for field in find_unknown_paths(parsed, document_filter.evaluate(parsed)[1]):
        unknown.warn(field, partial(document_filter.find_nearest, field))


@few
@given(st.lists(collections, min_size=1, max_size=3), several, st.data())
def test_a_filter_matches_like_plain_python(parts, conditions, data):
    deleted = [sorted(data.draw(st.sets(st.integers(0, len(docs) - 1), max_size=len(docs) - 1))) for docs in parts]
    live = {
        (number, n): fields_of(doc_id, *docs[n])
        for number, docs in enumerate(parts)
        for n, doc_id in enumerate(ids_of(number, docs))
        if n not in deleted[number]
    }
    with tempfile.TemporaryDirectory() as folder:
        snapshot = open_index(folder, parts, deleted, data.draw(st.sampled_from([0, 1, 3, 4096])))
        for condition in conditions:
            document_filter, warned = DocumentFilter(snapshot.segments, 1 << 20, str.split), UnknownFields()
            if clashes(live.values(), condition):
                event("clash")
                with pytest.raises(InvalidFilter, match="compared with a type that none of its values has"):
                    check(document_filter, condition, warned)
                continue
            expected = [place for place, fields in live.items() if passes(fields, condition)]
            with warnings.catch_warnings(record=True) as issued:
                warnings.simplefilter("always")
                check(document_filter, condition, warned)
                assert found(document_filter, condition, snapshot) == expected
            unknown = unknown_fields(live.values(), condition)
            assert len(issued) == len(unknown)
            assert all(warning.category is UnknownFieldWarning for warning in issued)
            assert all(any(f"the field {name!r};" in str(each.message) for each in issued) for name in unknown)
            assert found(document_filter, condition, snapshot) == expected  # from the cache
            assert document_filter.count(parse_filter(condition)) == len(expected)
            event("some pass" if expected else "none pass")
            event("unknown fields" if unknown else "known fields")
        snapshot.close()


@few
@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(["english", "german", "none"]))
def test_a_document_has_the_terms_of_its_title(title, text, language):
    """A document contains the terms of its title, so that they find it."""
    analyzer = cached_analyzer(language, 2)
    assert set(analyzer.terms(title)) <= set(analyzer.terms(full_text(title, text)))


@few
@given(
    st.lists(st.sampled_from("aB é'.-_:#+文\u0301\u200d1\n"), max_size=12).map("".join),
    st.text("aB'.-:#+文\u0301 1", max_size=6),
)
def test_a_document_has_the_terms_of_an_odd_title(title, text):
    """Characters that join, sign or compose words where title and text meet change no term of the title."""
    analyzer = cached_analyzer("english", 2)
    assert set(analyzer.terms(title)) <= set(analyzer.terms(full_text(title, text)))
