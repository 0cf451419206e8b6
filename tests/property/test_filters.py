"""A filter lets the documents pass that it lets pass when it is read as plain Python."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.indexes.format_samples import manifest, segment_record
from support.indexes.metadata_oracle import clashes, filters, metadata, passes

from quarry.engine.filtering.cache import DocumentFilter
from quarry.engine.filtering.filter import parse_filter
from quarry.formats.container.directory import Directory
from quarry.formats.errors import InvalidFilter
from quarry.formats.metadata import columns as metadata_columns
from quarry.formats.snapshot import Snapshot

collections = st.lists(metadata, min_size=1, max_size=12)
few = settings(deadline=None, max_examples=60)


def open_index(folder, parts, deleted):
    """An index of segments of documents with the given metadata."""
    directory = Directory(Path(folder))
    segments = [
        segment_record(directory, [f"{number}/{n}" for n in range(len(docs))], gone, metadata=docs.__getitem__)
        for number, (docs, gone) in enumerate(zip(parts, deleted, strict=True))
    ]
    manifest(segments).commit(directory)
    return Snapshot(directory)


def found(document_filter, condition, snapshot):
    """Segment and ordinal of what passes."""
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


@few
@given(st.lists(collections, min_size=1, max_size=3), st.lists(filters, min_size=1, max_size=6), st.data())
def test_what_passes(parts, conditions, data):
    deleted = [sorted(data.draw(st.sets(st.integers(0, len(docs) - 1), max_size=len(docs) - 1))) for docs in parts]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata_columns, "MAX_PATHS", data.draw(st.sampled_from([0, 1, 3, 4096])))
        snapshot = open_index(folder, parts, deleted)
        document_filter = DocumentFilter(snapshot.segments, 1 << 20)
        for condition in conditions:
            if clashes([each for docs in parts for each in docs], condition):
                event("clash")
                with pytest.raises(InvalidFilter, match="compared with what it never holds"):
                    document_filter.allowed(parse_filter(condition))
                continue
            expected = [
                (number, n)
                for number, docs in enumerate(parts)
                for n, each in enumerate(docs)
                if n not in deleted[number] and passes(each, condition)
            ]
            assert found(document_filter, condition, snapshot) == expected
            assert found(document_filter, condition, snapshot) == expected  # from memory
            assert document_filter.count(parse_filter(condition)) == len(expected)
            event("some pass" if expected else "none pass")
        snapshot.close()
