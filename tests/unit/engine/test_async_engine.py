"""`AsyncEngine`: results, cancellation, and an event loop that is never blocked."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support.indexes.format_samples import n_descriptors
from support.indexes.sharded import ENCODER, columns, random_documents, random_queries

from quarry import engine
from quarry.engine import (
    AsyncEngine,
    Engine,
    IndexClosed,
    IndexLocked,
    IndexNotFound,
    InvalidQuery,
    InvalidSetting,
)

DOCS = random_documents(40)
QUERIES = random_queries(8)


@pytest.fixture(params=[None, 2], ids=["whole", "sharded"])
def path(request, tmp_path):
    engine.build(DOCS, tmp_path / "index", encoder=ENCODER, shards=request.param)
    return tmp_path / "index"


def threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("quarry-async")}


class Gate:
    """A call that blocks its thread until the test opens the gate."""

    def __init__(self):
        self.begun, self.open, self.n_calls = threading.Event(), threading.Event(), 0

    def __call__(self, index):
        self.n_calls += 1
        self.begun.set()
        assert self.open.wait(20)
        return len(index)


async def begun(gate):
    """Wait without blocking the loop until a gate is reached."""
    while not gate.begun.is_set():
        await asyncio.sleep(0.001)


def test_results_are_those_of_the_engine(path):
    async def run():
        async with await AsyncEngine.open(path, encoder=ENCODER) as index:
            hits = await asyncio.gather(*(index.search(query, k=5) for query in QUERIES))
            several = await index.search(QUERIES, 5, mode="lexical")
            documents = [document async for document in index]
            some = [document async for document in index.documents(filter={"number": 3}, offset=1)]
            return (
                [columns(each) for each in hits],
                [columns(each) for each in several],
                documents,
                some,
                await index.get(DOCS[0]["id"]),
                await index.count(),
                await index.count({"number": 3}),
                await index.facets("number", query=QUERIES[0]),
                await index.refresh(),
                (await index.stats())["n_documents"],
                await index.read(lambda opened: opened.verify()) is not None,
            )

    found = asyncio.run(run())
    with Engine.open(path, encoder=ENCODER) as index:
        assert found == (
            [columns(index.search(query, k=5)) for query in QUERIES],
            [columns(each) for each in index.search(QUERIES, 5, mode="lexical")],
            list(index),
            list(index.documents(filter={"number": 3}, offset=1)),
            index.get(DOCS[0]["id"]),
            index.count(),
            index.count({"number": 3}),
            index.facets("number", query=QUERIES[0]),
            False,
            len(index),
            True,
        )
    assert not threads()


def test_changes(path):
    async def run():
        steps = []
        async with await AsyncEngine.open(path, encoder=ENCODER, writable=True) as index:
            assert await index.add([{"id": "new", "text": "w1"}], progress=lambda *step: steps.append(step)) == 1
            assert await index.delete([DOCS[0]["id"], "unheard"]) == 1
            assert await index.delete(filter={"number": 3}) == sum(d["metadata"]["number"] == 3 for d in DOCS)
            await index.rollback()
            await index.add(iter([{"id": "new", "text": "w1"}]))
            await index.commit()
            await index.merge(retrain=False)
            assert await index.change(lambda opened: opened.optimize()) == 0
            assert await index.count() == len(DOCS) + 1
        assert steps == [(1, 1)]

    asyncio.run(run())


def test_errors_are_those_of_the_engine(path, tmp_path):
    async def run():
        with pytest.raises(IndexNotFound):
            await AsyncEngine.open(tmp_path / "nothing", encoder=ENCODER)
        for slots in (0, -1, "1", 10**9):
            with pytest.raises(InvalidSetting, match="slots"):
                await AsyncEngine.open(path, slots=slots)
        async with await AsyncEngine.open(path, encoder=ENCODER, writable=True) as index:
            with pytest.raises(InvalidQuery):
                await index.search(5)
            with pytest.raises(IndexLocked):
                await AsyncEngine.open(path, encoder=ENCODER, writable=True)
            async with await AsyncEngine.open(path, encoder=ENCODER) as reader:
                assert await reader.count() == await index.count()

    asyncio.run(run())


def test_the_event_loop_goes_on_while_calls_run(path):
    async def run():
        gate = Gate()
        async with await AsyncEngine.open(path, encoder=ENCODER, slots=2, writable=True) as index:
            tasks = [asyncio.ensure_future(call(gate)) for call in (index.read, index.change)]
            await begun(gate)
            assert await index.count() == len(DOCS)  # on the other thread, during the change
            await asyncio.sleep(0)
            assert not any(task.done() for task in tasks)
            gate.open.set()
            assert await asyncio.gather(*tasks) == [len(DOCS)] * 2

    asyncio.run(run())


def test_a_cancelled_search_in_line_is_not_made_and_a_running_one_frees_its_slot(path):
    async def run():
        running, waiting = Gate(), Gate()
        waiting.open.set()
        async with await AsyncEngine.open(path, encoder=ENCODER, slots=1) as index:
            first = asyncio.ensure_future(index.read(running))
            await begun(running)
            second = asyncio.ensure_future(index.read(waiting))
            third = asyncio.ensure_future(index.search(QUERIES[0]))
            await asyncio.sleep(0)
            for task in (second, first):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task  # at once: the gate is still closed
            assert not running.open.is_set()
            running.open.set()
            assert len(await third) == 10
            assert (running.n_calls, waiting.n_calls) == (1, 0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await index.read(lambda _: time.sleep(0.1))
            assert len(await index.search(QUERIES[1])) == 10

    asyncio.run(run())


def test_a_cancelled_add_stops_and_keeps_whole_documents(path):
    n_taken = 0

    def source(go_on):
        nonlocal n_taken
        for number in range(100_000):
            n_taken += 1
            if number == 30:
                go_on.set()
            yield {"id": f"new {number}", "text": f"w{number % 9}"}

    async def run():
        go_on = threading.Event()
        async with await AsyncEngine.open(path, encoder=ENCODER, writable=True, threads=1) as index:
            task = asyncio.ensure_future(index.add(source(go_on)))
            while not go_on.is_set():
                await asyncio.sleep(0.001)
            task.cancel()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            before = n_taken
            await asyncio.sleep(0.02)
            assert n_taken == before < 100_000  # nothing continues in the background
            await index.commit()
            return before

    n = asyncio.run(run())
    with Engine.open(path, encoder=ENCODER) as index:
        index.verify()
        added = sorted(int(doc_id.split()[1]) for doc_id in index.ids() if doc_id.startswith("new"))
        assert added == list(range(len(added)))
        assert 30 <= len(added) <= n


def test_a_cancelled_change_has_ended_when_its_awaiting_ends(path):
    async def run():
        gate, never = Gate(), Gate()
        async with await AsyncEngine.open(path, encoder=ENCODER, writable=True) as index:
            task = asyncio.ensure_future(index.change(gate))
            await begun(gate)
            in_line = asyncio.ensure_future(index.change(never))
            await asyncio.sleep(0)
            in_line.cancel()
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0.001)
                assert not task.done()
            gate.open.set()
            for each in (task, in_line):
                with pytest.raises(asyncio.CancelledError):
                    await each
            assert never.n_calls == 0
            await index.add([{"id": "new", "text": "w1"}])
            await index.commit()
            assert await index.count() == len(DOCS) + 1

    asyncio.run(run())


def test_cancellations_under_load(path):
    async def work(index, generator, number):
        """Make a call, half of the calls with a time limit that some exceed on any machine."""
        limit = float(generator.exponential(0.01)) if number % 10 else 0.0
        try:
            async with asyncio.timeout(limit if number % 2 == 0 else None):
                if number % 3 == 0:
                    docs = [{"id": f"{number}-{n}", "text": f"w{n}"} for n in range(30)]
                    await index.add(docs)
                elif number % 7 == 0:
                    await index.commit()
                else:
                    await index.search(QUERIES[number % len(QUERIES)], k=3)
        except TimeoutError:
            return 1
        return 0

    async def run():
        generator = np.random.default_rng(0)
        async with await AsyncEngine.open(path, encoder=ENCODER, writable=True, slots=2) as index:
            n_cancelled = sum(await asyncio.gather(*(work(index, generator, number) for number in range(90))))
            await index.commit()
            assert len(await index.search(QUERIES[0])) == 10
            return n_cancelled

    assert 0 < asyncio.run(run()) < 90
    assert not threads()
    with Engine.open(path, encoder=ENCODER) as index:
        index.verify()
        assert len(list(index)) == len(index) >= len(DOCS)


def test_closing(path):
    async def run():
        index = await AsyncEngine.open(path, encoder=ENCODER, writable=True, slots=1)
        gate = Gate()
        running = asyncio.ensure_future(index.change(gate))
        await begun(gate)
        closing = [asyncio.ensure_future(index.close()) for _ in range(2)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in closing)
        for call in (index.search("w1"), index.commit(), index.count()):
            with pytest.raises(IndexClosed):
                await call
        closing[0].cancel()
        gate.open.set()
        assert await running == len(DOCS)
        with pytest.raises(asyncio.CancelledError):
            await closing[0]
        await closing[1]
        await index.close()
        assert not threads()
        async with await AsyncEngine.open(path, encoder=ENCODER, writable=True) as again:  # the lock was released
            assert await again.count() == len(DOCS)

    asyncio.run(run())


def test_an_error_in_the_block_discards_changes_and_releases_the_lock(path):
    async def run():
        async with await AsyncEngine.open(path, encoder=ENCODER, writable=True) as index:
            await index.add([{"id": "new", "text": "w1"}])
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(run())
    with Engine.open(path, encoder=ENCODER, writable=True) as index:
        assert "new" not in index


def test_a_cancelled_opening_leaves_nothing_open(path, monkeypatch):
    gate = Gate()
    really_open = os.open

    def slow_open(name, *arguments, **options):
        descriptor = really_open(name, *arguments, **options)
        if Path(name).name == "write.lock":
            gate("")
        return descriptor

    async def run():
        monkeypatch.setattr(os, "open", slow_open)
        task = asyncio.ensure_future(AsyncEngine.open(path, encoder=ENCODER, writable=True))
        await begun(gate)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        monkeypatch.undo()
        gate.open.set()

    before = n_descriptors()
    asyncio.run(run())
    for thread in threading.enumerate():
        if thread.name.startswith("quarry-async-open"):
            thread.join()  # it closes what it has opened meanwhile
    gc.collect()
    assert n_descriptors() <= before
    with Engine.open(path, encoder=ENCODER, writable=True) as index:
        assert len(index) == len(DOCS)
