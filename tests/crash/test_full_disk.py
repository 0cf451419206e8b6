"""A writer on a disk that is full at random moments loses nothing that was added."""

from __future__ import annotations

import errno
import logging
import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
from support.faults.system_calls import SystemCalls
from support.faults.torture import SHARE, figure
from support.indexes import changes
from support.indexes.changes import OFTEN, SMALL, stray_files
from support.indexes.inside import wait_for_merges

from quarry import engine
from quarry.formats.container.directory import WriterLimits
from quarry.formats.errors import CommitFailed, MergeFailed

pytestmark = pytest.mark.skipif(not hasattr(os, "O_DIRECTORY"), reason="folders cannot be synced on this system")

IDS = [f"d{number}" for number in range(40)]
SEED = random.SystemRandom().randrange(1 << 32) if SHARE else 0
LIMITS = WriterLimits(section_bytes=256, posting_bytes=512, sample_bytes=512)  # every document spills
THRESHOLDS = replace(SMALL, merging=OFTEN, writing=LIMITS)
open_index, options = partial(changes.open_index, thresholds=THRESHOLDS), partial(changes.options, THRESHOLDS)


@pytest.fixture(autouse=True)
def silent():
    logging.disable(logging.CRITICAL)  # silence the log of failed merges
    yield
    logging.disable(logging.NOTSET)


class Unsteady(SystemCalls):
    """Fails each call that needs disk space with some probability."""

    def __init__(self, generator, rate):
        super().__init__()
        self.generator, self.rate, self.n_failures = generator, rate, 0

    def call(self, kind, name, perform):
        needs_room = kind in {"create", "write", "fsync", "rename"} and name not in {"", "write.lock"}
        if needs_room and self.generator.random() < self.rate:
            self.n_failures += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        return perform()


class Writer:
    """Makes changes and keeps the expected contents."""

    def __init__(self, index, texts):
        self.index, self.committed, self.collected, self.n_raised = index, dict(texts), dict(texts), 0

    def add(self, doc_id, text):
        self.try_it(lambda: self.index.add([{"id": doc_id, "text": text}]))
        self.collected[doc_id] = text  # also if the disk was full during the spill after it

    def delete(self, doc_id):
        assert self.index.delete(doc_id) == (doc_id in self.collected)
        self.collected.pop(doc_id, None)

    def commit(self):
        if not isinstance(self.try_it(self.index.commit), CommitFailed):
            self.committed = dict(self.collected)

    def rollback(self):
        self.index.rollback()
        self.collected = dict(self.committed)

    def try_it(self, act):
        try:
            act()
        except (CommitFailed, MergeFailed) as error:
            self.n_raised += 1
            return error
        return None


def test_a_disk_that_is_full_now_and_then(tmp_path, torture):
    torture.seed = SEED
    for number in range(figure(5, 3000)):
        generator = random.Random(SEED + number)
        path, calls = tmp_path / str(number), Unsteady(generator, 0.0)
        with calls.installed():
            engine.build([{"id": doc_id, "text": "first"} for doc_id in IDS[:5]], path, **options())
            writer = Writer(open_index(path, writable=True), dict.fromkeys(IDS[:5], "first"))
            calls.rate = generator.choice([0.002, 0.01, 0.03])
            for step in range(120):
                change(writer, generator, f"text{generator.randrange(1000)} {step}")
            calls.rate = 0.0
            while writer.try_it(writer.index.commit):  # failures of background merges are raised here
                pass
            writer.try_it(writer.index.close)
            check(path, writer.collected, SEED + number)
        torture.add(failures=calls.n_failures, raised=writer.n_raised)
    assert torture.counts["raised"] > 20


def test_threads_on_a_disk_that_is_full_now_and_then(tmp_path, torture):
    """Threads with documents of their own lose none, although commits and merges of the other threads may fail."""
    torture.seed = SEED
    for number in range(figure(2, 1500)):
        seed = SEED + number
        path, calls = tmp_path / str(number), Unsteady(random.Random(seed), 0.0)
        with calls.installed():
            engine.build([{"id": doc_id, "text": "first"} for doc_id in IDS[:5]], path, **options())
            with open_index(path, writable=True) as index, ThreadPoolExecutor(3) as pool:
                calls.rate = calls.generator.choice([0.002, 0.01, 0.03])
                texts = list(pool.map(lambda thread: on_a_thread(index, seed, thread), range(3)))  # noqa: B023
                calls.rate = 0.0
                last = Writer(index, {})
                last.try_it(lambda: wait_for_merges(index))  # raises earlier failures before close does
                while last.try_it(index.commit):
                    pass
            check(path, {key: text for part in texts for key, text in part.items()}, seed)
        torture.add(failures=calls.n_failures)
    assert torture.counts["failures"] > 3


def on_a_thread(index, seed, thread):
    """Change a third of the documents at random; return their expected texts."""
    generator = random.Random(3 * seed + thread)
    mine = IDS[thread::3]
    writer = Writer(index, dict.fromkeys(set(mine) & set(IDS[:5]), "first"))
    for step in range(40):
        chance = generator.random()
        if chance < 0.55:
            writer.add(generator.choice(mine), f"text{generator.randrange(1000)} {step}")
        elif chance < 0.7:
            writer.delete(generator.choice(mine))
        elif chance < 0.95:
            writer.commit()
        else:
            writer.try_it(index.merge)
    return writer.collected


def change(writer, generator, text):
    chance = generator.random()
    if chance < 0.5:
        writer.add(generator.choice(IDS), text)
    elif chance < 0.65:
        writer.delete(generator.choice(IDS))
    elif chance < 0.9:
        writer.commit()
    elif chance < 0.94:
        writer.rollback()
    elif chance < 0.97:
        writer.try_it(writer.index.merge)
    else:
        writer.try_it(lambda: wait_for_merges(writer.index))


def check(path, expected, seed):
    with open_index(path) as index:
        index.verify()
        found = {document.id: document.text for document in index.get(IDS)}
        assert len(index) == len(found)
    assert found == expected, f"seed {seed}"
    assert not stray_files(path), f"seed {seed}"
