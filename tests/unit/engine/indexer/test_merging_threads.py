"""A merge on two threads writes the same file as on one, and handles errors in the same way."""

from __future__ import annotations

import errno
import itertools
import os
import threading

import pytest
from support.faults.system_calls import FailsAt
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.indexer.segments.new_quantizer import ListPlan
from quarry.engine.indexer.segments.segment_merger import SegmentMerger
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory, WriterLimits
from quarry.formats.errors import FormatError
from quarry.formats.snapshot import Snapshot

ENCODER = WordEncoder(dim=16)


def documents(first, n_documents):
    return [
        {"id": f"d{n}", "text": f"word{n} word{n // 3} all", "metadata": {"n": n}}
        for n in range(first, first + n_documents)
    ]


@pytest.fixture
def snapshot(tmp_path):
    """Build three segments, two with deleted documents; limits force temporary files and early syncs."""
    engine.build(documents(0, 90), tmp_path / "ix", encoder=ENCODER, representation=KMeans(3))
    with Engine.open(tmp_path / "ix", encoder=ENCODER, writable=True) as index:
        index.add(documents(80, 60))
        index.commit()
        index.add(documents(130, 30))
        index.commit()
    limits = WriterLimits(section_bytes=500, sync_bytes=1)
    opened = Snapshot(Directory(tmp_path / "ix", limits=limits))
    assert [segment.deleted is None for segment in opened.segments] == [False, False, True]
    yield opened
    opened.close()


def merged(snapshot, threads):
    merger = SegmentMerger(snapshot.directory, ListPlan(snapshot.manifest.settings, threads, Thresholds()))
    return merger.merge(snapshot.segments, None).record.file


def sections(snapshot, file):
    return (snapshot.directory.path / file.name).read_bytes()[64:-64]


def test_the_file_is_the_same(snapshot):
    one, two = (sections(snapshot, merged(snapshot, threads)) for threads in (1, 2))
    assert one == two


def test_no_thread_is_left(snapshot):
    before = threading.active_count()
    merged(snapshot, 2)
    assert threading.active_count() == before


def test_an_error_at_every_call(snapshot):
    """An error at any call is raised, and leaves no new file or thread."""
    before, n_threads = snapshot.directory.names(), threading.active_count()
    numbers = set()
    for moment in itertools.count(1):
        calls = FailsAt(moment, errno.ENOSPC, frozenset({"create", "write", "fsync"}), lasting=True)
        with calls.installed():
            try:
                merged(snapshot, 2)
            except OSError as error:
                numbers.add(error.errno)
            else:
                break
        assert calls.failed
        assert snapshot.directory.names() == before
        assert threading.active_count() == n_threads
    assert 20 < moment < 200
    assert numbers == {errno.ENOSPC}


def replace_writes(monkeypatch, in_main, elsewhere):
    """Call one function instead of each write on the main thread, and another for each on another thread."""

    def write(*arguments):
        is_main = threading.current_thread() is threading.main_thread()
        return (in_main if is_main else elsewhere)(*arguments)

    monkeypatch.setattr(os, "write", write)


@pytest.mark.parametrize("error", [FormatError("words are damaged"), KeyboardInterrupt()])
def test_an_error_of_the_words_ends_the_merge(snapshot, monkeypatch, error):
    def fail(*_):
        raise error

    before = snapshot.directory.names()
    replace_writes(monkeypatch, os.write, fail)
    with pytest.raises(type(error)):
        merged(snapshot, 2)
    assert snapshot.directory.names() == before


def test_an_error_elsewhere_waits_for_the_words(snapshot, monkeypatch):
    real, threads, has_begun = os.write, [], threading.Event()

    def slow(*arguments):
        if not threads:
            threads.append(threading.current_thread())
            has_begun.set()
            threading.Event().wait(0.2)
        return real(*arguments)

    header = []

    def fail(*arguments):
        if not header:  # which is written before the thread is started
            header.append(arguments)
            return real(*arguments)
        assert has_begun.wait(60)
        raise FormatError("centroids are damaged")

    before = snapshot.directory.names()
    replace_writes(monkeypatch, fail, slow)
    with pytest.raises(FormatError, match="centroids"):
        merged(snapshot, 2)
    assert not threads[0].is_alive()
    assert snapshot.directory.names() == before
