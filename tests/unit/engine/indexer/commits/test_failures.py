"""The state of a writer after each step, for each failure of the step."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

import numpy as np
import pytest
from support.indexes.changes import stray_files
from support.indexes.inside import status_of
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine.documents.document import Document
from quarry.engine.indexer.batches.batch import Batch
from quarry.engine.indexer.commits.failures import WriterState, WriterStatus
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.formats.container.directory import Directory, WriterLimits
from quarry.formats.documents.spans import pack_spans
from quarry.formats.errors import CommitFailed, DurabilityUnknown, IndexClosed, MergeFailed
from quarry.formats.manifest import Manifest
from quarry.formats.snapshot import Snapshot

CLEAN, LITTERED, FAILED, UNCERTAIN, CLOSED = WriterStatus
ENCODER = WordEncoder(dim=16)
FULL = OSError(28, "No space left on device")
UNSURE = DurabilityUnknown("visible, perhaps")
EVENTS = {
    "a step that is undone": lambda state: state.note_orphan_files(),
    "a step that is not": lambda state: state.fail(FULL),
    "a commit that may not last": lambda state: state.fail(UNSURE),
    "close": lambda state: state.close(),
}
AFTER = {  # by status before: the status after each of the events
    CLEAN: (LITTERED, FAILED, UNCERTAIN, CLOSED),
    LITTERED: (LITTERED, FAILED, UNCERTAIN, CLOSED),
    FAILED: (FAILED, FAILED, UNCERTAIN, CLOSED),
    UNCERTAIN: (UNCERTAIN, UNCERTAIN, UNCERTAIN, CLOSED),
    CLOSED: (CLOSED, CLOSED, CLOSED, CLOSED),
}
TO = {  # by status: the events that lead to it
    CLEAN: [],
    LITTERED: ["a step that is undone"],
    FAILED: ["a step that is not"],
    UNCERTAIN: ["a commit that may not last"],
    CLOSED: ["close"],
}


@pytest.mark.parametrize("before", WriterStatus)
@pytest.mark.parametrize("number", range(len(EVENTS)))
def test_transitions(tmp_path, before, number):
    state = WriterState(tmp_path)
    for name in TO[before]:
        EVENTS[name](state)
    assert state.status == before
    EVENTS[list(EVENTS)[number]](state)
    assert state.status == AFTER[before][number]


@pytest.mark.parametrize(
    ("status", "can_commit", "has_orphan_files", "reason"),
    [
        (CLEAN, True, False, None),
        (LITTERED, True, True, None),
        (FAILED, False, True, str(FULL)),
        (UNCERTAIN, False, False, str(UNSURE)),
        (CLOSED, False, False, None),
    ],
)
def test_properties_of_each_status(tmp_path, status, can_commit, has_orphan_files, reason):
    state = WriterState(tmp_path)
    for name in TO[status]:
        EVENTS[name](state)
    found = (state.can_commit, state.has_orphan_files, state.reason, state.is_closed)
    assert found == (can_commit, has_orphan_files, reason, status == CLOSED)
    if can_commit:
        state.check()
    else:
        with pytest.raises(IndexClosed) as caught:
            state.check()
        assert (caught.value.path, caught.value.actual) == (tmp_path, reason)


def test_the_first_failure_is_the_reason(tmp_path):
    state = WriterState(tmp_path)
    state.fail(MemoryError())
    state.fail(UNSURE)
    state.close()
    assert state.reason == "MemoryError"


def docs(*numbers):
    return [Document(f"d{number}", f"text{number} word") for number in numbers]


@pytest.fixture
def directory(tmp_path):
    """Build an index of d0."""
    path = tmp_path / "ix"
    engine.build([{"id": "d0", "text": "text0 word"}], path, encoder=ENCODER, representation="kmeans")
    return Directory(path, limits=WriterLimits(section_bytes=64, posting_bytes=64, sample_bytes=64))


@pytest.fixture
def writer(directory):
    """Open a writer of d0 and d1 in two segments, whose next commit adds d2 and deletes d0."""
    opened = IndexWriter(directory, ENCODER, 1)
    opened.add(docs(1))
    opened.commit()
    opened.add(docs(2))
    opened.delete(["d0"])
    yield opened
    opened.close()


def ids(path):
    snapshot = Snapshot(Directory(path))
    found = {
        segment.reader.ids[doc]
        for segment in snapshot.segments
        for doc in range(segment.reader.n_docs)
        if segment.deleted is None or not segment.deleted[doc]
    }
    snapshot.close()
    return found


def after(n_calls, method, error):
    """Return a method that fails after `n_calls` calls."""
    calls = []

    def call(*args, **named):
        calls.append(args)
        if len(calls) > n_calls:
            raise error
        return method(*args, **named)

    return call


class Unreadable(list):
    """The terms of a document, which cannot be read."""

    def __init__(self, error):
        super().__init__([[]])
        self.error = error

    def __iter__(self):
        raise self.error


def batch(terms):
    vectors, counts, spans = np.ones((1, 16), np.float32), np.ones(1, np.int64), [pack_spans([()])]
    return Batch(["d3"], [""], ["text3 word"], [{}], vectors, counts, spans, terms, [2])


STEPS = {
    "add": lambda writer: writer.add(docs(3)),
    "commit": lambda writer: writer.commit(),
    "merge": lambda writer: writer.merge(),
    "rollback": lambda writer: writer.rollback(),
}
BEFORE, NOW = {"d0", "d1"}, {"d1", "d2"}


class Case(NamedTuple):
    """A step, the call that fails in it, from which one on, and the expected error, status and documents.

    The call is one of the directory of the index, or of the operating system.
    """

    step: str
    where: str
    n_calls: int
    error: BaseException
    raised: type[BaseException]
    status: WriterStatus
    documents: set[str]


CASES = [
    Case("add", "write", 0, FULL, CommitFailed, LITTERED, BEFORE),
    Case("add", "write", 0, MemoryError(), MemoryError, LITTERED, BEFORE),
    Case("add", "write", 0, KeyboardInterrupt(), KeyboardInterrupt, CLOSED, BEFORE),
    Case("commit", "create", 0, FULL, CommitFailed, LITTERED, BEFORE),
    Case("commit", "rename", 0, FULL, CommitFailed, LITTERED, BEFORE),
    Case("commit", "rename", 0, MemoryError(), MemoryError, LITTERED, BEFORE),
    Case("commit", "rename", 0, KeyboardInterrupt(), KeyboardInterrupt, CLOSED, BEFORE),
    Case("commit", "sync", 1, FULL, DurabilityUnknown, CLOSED, NOW),
    Case("commit", "map", 0, FULL, IndexClosed, CLOSED, NOW),
    Case("merge", "rename", 0, FULL, MergeFailed, LITTERED, BEFORE),
    Case("merge", "sync", 1, FULL, DurabilityUnknown, CLOSED, BEFORE),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.step}-{case.where}-{type(case.error).__name__}")
def test_a_step_that_fails(directory, writer, monkeypatch, case):
    owner = directory if hasattr(directory, case.where) else os
    with monkeypatch.context() as patch:
        patch.setattr(owner, case.where, after(case.n_calls, getattr(owner, case.where), case.error))
        with pytest.raises(case.raised):
            STEPS[case.step](writer)
    check_after(directory, writer, case.status, case.documents, has_d3=case.step == "add")
    if case.raised is DurabilityUnknown:  # after a power loss the previous generation may be the newest
        assert Manifest.load(directory, 2).file_names() <= {each.name for each in directory.path.iterdir()}
    elif sys.platform != "win32":  # which keeps files that are open
        assert not stray_files(directory.path)


@pytest.mark.parametrize(("error", "raised"), [(FULL, CommitFailed), (MemoryError(), MemoryError)])
def test_documents_that_are_added_in_part(directory, writer, error, raised):
    writer.add_batch(batch([["text3", "word"]]))
    with pytest.raises(raised):
        writer.add_batch(batch(Unreadable(error)))
    check_after(directory, writer, CLOSED, BEFORE)
    assert not stray_files(directory.path)


def test_a_rollback_in_part(directory, writer, monkeypatch):
    unlink, calls = os.unlink, []

    def failing_once(path):
        calls.append(path)
        if len(calls) == 1:
            raise MemoryError
        unlink(path)

    writer.add(docs(*range(2, 30)))
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", failing_once)  # of temporary files
        with pytest.raises(MemoryError):
            writer.rollback()
    check_after(directory, writer, CLOSED, BEFORE)
    assert not stray_files(directory.path) or sys.platform == "win32"  # which keeps files that are open


def check_after(directory, writer, status, documents, has_d3=False):
    """Check status and documents after a failure, and close the writer."""
    assert status_of(writer) == status
    assert ids(directory.path) == documents
    if status == LITTERED:  # uncommitted changes are kept
        assert writer.commit() == (3, 0)
        assert ids(directory.path) == (NOW | {"d3"} if has_d3 else NOW)
    else:
        with pytest.raises(IndexClosed, match="this writer is closed"):
            writer.commit()
    writer.close()


def test_a_write_that_works_leaves_the_writer_clean(writer):
    for step in ("add", "commit", "merge", "rollback"):
        STEPS[step](writer)
        assert status_of(writer) == CLEAN
    writer.close()
    assert status_of(writer) == CLOSED
