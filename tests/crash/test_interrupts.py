"""Ctrl-C between any two steps of a writer leaves the old or the new index, and the change can be repeated."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from functools import partial

import pytest
from support.faults.interrupts import Interrupt
from support.faults.system_calls import SystemCalls, release_locks
from support.faults.torture import figure
from support.indexes import changes
from support.indexes.changes import (
    DELETED,
    NEW,
    SMALL,
    documents,
    prepare,
    state_of,
    stray_files,
)

from quarry.engine.thresholds import MergeLimits
from quarry.formats.container.directory import WriterLimits
from quarry.formats.errors import IndexClosed

pytestmark = pytest.mark.skipif(not hasattr(os, "O_DIRECTORY"), reason="folders cannot be synced on this system")

CORE = {
    "committer.py", "contextlib.py", "failures.py", "generation.py", "index_writer.py", "partition_writer.py",
    "publication.py",
}  # fmt: skip
WHOLE = CORE | {
    "deletions.py", "directory.py", "garbage.py", "ids.py", "inversion.py", "layout.py", "manifest.py",
    "new_quantizer.py", "quantizer.py", "reader.py", "segment.py", "segment_builder.py", "segment_merger.py",
    "snapshot.py", "spool.py", "store.py", "system_errors.py", "tombstones.py", "writer.py",
}  # fmt: skip
THRESHOLDS = replace(
    SMALL,
    merging=MergeLimits(width=1000),  # merges in the background would make runs differ
    writing=WriterLimits(section_bytes=256, posting_bytes=512, sample_bytes=512),
)
open_index = partial(changes.open_index, thresholds=THRESHOLDS)


def make(change, index):
    if change == "merge":
        index.merge()
        return
    index.add(documents(NEW))
    index.delete(DELETED)
    index.commit()


def interrupted(change, path, interrupt):
    """Make the change; after an interrupt repeat it, with the same writer if it is still open."""
    with open_index(path, writable=True) as index:
        try:
            with interrupt.installed():
                make(change, index)
        except KeyboardInterrupt:
            state_of(change, path)
        try:
            make(change, index)
        except IndexClosed:
            assert interrupt.where
        else:
            return
    with open_index(path, writable=True) as index:
        make(change, index)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # errors in __del__ are ignored
@pytest.mark.parametrize(("files", "usual", "full"), [(CORE, 8, 1500), (WHOLE, 6, 4000)], ids=["core", "whole"])
@pytest.mark.parametrize("change", ["commit", "merge"])
def test_interrupted_at_any_step(change, files, usual, full, tmp_path, torture):
    before, path = tmp_path / "before", tmp_path / "index"
    with SystemCalls().installed():
        prepare(change, before, THRESHOLDS)
        moment, n_places, step = 0, 1, 1
        while moment <= n_places:
            shutil.copytree(before, path)
            interrupt = Interrupt(moment, files)
            interrupted(change, path, interrupt)
            assert state_of(change, path) == "new", interrupt.where
            assert not stray_files(path), interrupt.where
            shutil.rmtree(path)
            if moment == 0:
                n_places = interrupt.n_places
                step = max(1, n_places // figure(usual, full))
                moment = 1 - step
            else:
                torture.add(interrupts=1)
            moment += step
    release_locks()
    assert torture.counts["interrupts"] >= usual
