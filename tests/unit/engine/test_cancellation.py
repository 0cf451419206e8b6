"""Searches and other requests that nobody waits for stop at one of their next steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry.engine import AsyncEngine, Engine, build
from quarry.formats.container.cancellation import Cancellation

N_DOCUMENTS = 60
TITLE = {"title": {"$contains": "title"}}
QUERIES = [f"common w{number}" for number in range(7)]
REQUESTS: dict[str, tuple[Callable[[Engine], object], int]] = {  # each with a number of steps that it has at least
    "a filter of titles": (lambda index: index.count(TITLE), N_DOCUMENTS),
    "a filter of many conditions": (
        lambda index: index.count({"$or": [{"number": {"$gt": number}} for number in range(500)]}),
        500,
    ),
    "a phrase": (lambda index: index.search('"common words"', mode="lexical"), N_DOCUMENTS),
    "a prefix": (lambda index: index.search("com* w*", mode="lexical"), 2),
    "many words": (lambda index: index.search(" ".join(f"w{number}" for number in range(60)), mode="lexical"), 60),
    "mistyped words": (lambda index: index.search("comon wrods", mode="lexical"), 4),
    "many queries of words": (lambda index: index.search(QUERIES, mode="lexical"), len(QUERIES)),
    "many queries of vectors": (lambda index: index.search(QUERIES, mode="dense"), len(QUERIES)),
    "many hybrid queries": (lambda index: index.search(QUERIES), 3 * len(QUERIES)),
    "passages": (lambda index: [hit.passages for hit in index.search("common", k=40)], 40),
    "facets": (lambda index: index.facets("title"), N_DOCUMENTS),
    "documents": (lambda index: list(index.documents()), N_DOCUMENTS),
}


class Counting(Cancellation):
    """Is cancelled at the step of a number."""

    def __init__(self, number: float = np.inf) -> None:
        super().__init__()
        self.n_steps = 0
        self._number = number

    @property
    def is_cancelled(self) -> bool:
        self.n_steps += 1
        return self.n_steps >= self._number


@pytest.fixture(scope="module", params=[None, 2], ids=["whole", "sharded"])
def path(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    documents = [
        {
            "id": str(number),
            "title": f"title {number}",
            "text": f"common words w{number}",
            "metadata": {"number": number},
        }
        for number in range(N_DOCUMENTS)
    ]
    path = tmp_path_factory.mktemp("cancelled") / "index"
    build(documents, path, encoder=WordEncoder(), shards=request.param)
    return path


@pytest.mark.parametrize("name", REQUESTS)
def test_a_cancelled_request_stops_at_any_step(path: Path, name: str) -> None:
    request, n_least = REQUESTS[name]
    with Engine.open(path, encoder=WordEncoder(), threads=2) as index:
        whole = Counting()
        whole.run(request, index)
        assert whole.n_steps >= n_least
    for number in {1, 2, n_least // 2 + 1, n_least}:
        with (
            Engine.open(path, encoder=WordEncoder(), threads=2) as index,
            pytest.raises(CancelledError),
        ):
            Counting(number).run(request, index)


def test_a_filter_reads_a_document_once_and_only_if_the_columns_do_not_decide(path: Path) -> None:
    def n_steps(condition: dict[str, object]) -> int:
        with Engine.open(path, encoder=WordEncoder()) as index:
            counting = Counting()
            counting.run(index.count, condition)
            return counting.n_steps

    one, n_conditions = n_steps(TITLE), 30
    several = n_steps(
        {"$or": [{"title": {"$prefix": f"no {number}"}} for number in range(n_conditions)] + [{"$not": TITLE}]}
    )
    assert several - one <= 2 * (n_conditions + 4)  # each is looked at in each shard
    assert n_steps({"number": {"$lt": 3}} | TITLE) < N_DOCUMENTS / 2
    assert n_steps({"$or": [{"number": {"$gte": 3}}, TITLE]}) < N_DOCUMENTS / 2


def test_a_call_of_asyncio_that_is_cancelled_stops(path: Path) -> None:
    async def cancel_search() -> None:
        async with await AsyncEngine.open(path, encoder=WordEncoder(), slots=1) as index:
            loop, begun, stopped = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

            def search_on(engine: Engine) -> None:
                loop.call_soon_threadsafe(begun.set)
                try:
                    while True:
                        engine.search("common")
                except CancelledError:
                    loop.call_soon_threadsafe(stopped.set)
                    raise

            reading = asyncio.create_task(index.read(search_on))
            await begun.wait()
            reading.cancel()
            await stopped.wait()
            assert len(await index.search("common")) == 10

    asyncio.run(cancel_search())
