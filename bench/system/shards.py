"""Measures building with processes and searching over shards: ``python -m bench shards [PART ...]``.

``build``: documents per second with the bundled encoder, in one process with one thread and with two, and with 1
and 2 worker processes, in turn; start and end of the processes included. ``search``: latency of hybrid queries of
one index and of 1, 2, 4 and 8 shards of the same documents in process, in turn, so that other load affects all
alike.
``serve``: the same through Ray Serve, one copy of each shard on this machine, beside the same shards in process
and one index; one number of shards after another, so that no idle processes are beside those that are measured.
Documents of ``search`` and ``serve`` have random word vectors (`bench.data.word_encoder`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from bench.data.word_encoder import WordVectorEncoder
from bench.harness.latency import summarize_ms, time_in_turn
from bench.harness.records import Record, add_out, append_result
from quarry import engine
from quarry.engine import Engine, KMeans

__all__ = ["add_arguments", "run"]

_ENCODER = WordVectorEncoder()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench shards``."""
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(_PARTS))
    parser.add_argument("--documents", type=int, default=20_000, help="documents that are searched")
    parser.add_argument("--encoded", type=int, default=1500, help="documents that are built with the real encoder")
    parser.add_argument("--queries", type=int, default=300, help="number of queries")
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4, 8], help="numbers of shards")
    parser.add_argument("--rounds", type=int, default=3, help="how often each build is repeated")
    add_out(parser, "shards")


def run(args: argparse.Namespace) -> int:
    """Measure the named parts, or all, and append the raw results."""
    for name in args.parts or _PARTS:
        with tempfile.TemporaryDirectory() as folder:
            for record in _PARTS[name](Path(folder), args):
                print(name, record, flush=True)
                append_result(args.out, {"part": name, **record})
    return 0


def _texts(n: int, n_words: int, seed: int) -> list[str]:
    """Return texts of random words with a Zipf distribution."""
    words = np.random.default_rng(seed).zipf(1.3, (n, n_words)) % 50_000
    return [" ".join(f"word{word}" for word in row) for row in words.tolist()]


def _measure_builds(folder: Path, args: argparse.Namespace) -> Iterator[Record]:
    documents = _texts(args.encoded, 40, 1)
    kinds: dict[str, dict[str, int]] = {
        "one process, 1 thread": {"threads": 1},
        "one process, 2 threads": {"threads": 2},
        "1 worker": {"workers": 1, "threads": 2},
        "2 workers": {"workers": 2, "threads": 2},
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(args.rounds):
        for name, options in kinds.items():
            started = time.perf_counter()
            engine.build(documents, folder / f"{name} {number}", progress=False, **options)  # type: ignore[arg-type]
            times[name].append(time.perf_counter() - started)
    for name, seconds in times.items():
        yield {
            "how": name,
            "n_documents": len(documents),
            "seconds": seconds,
            "documents_per_s": len(documents) / float(np.median(seconds)),
        }


def _measure_searches(folder: Path, args: argparse.Namespace) -> Iterator[Record]:
    with ExitStack() as stack:
        indexes = {"one index": _opened(folder / "one", args.documents, None, stack)}
        for n_shards in args.shards:
            indexes[f"{n_shards} shards"] = _opened(folder / f"{n_shards}", args.documents, n_shards, stack)
        yield from _latencies({name: index.search for name, index in indexes.items()}, args)


def _measure_served(folder: Path, args: argparse.Namespace) -> Iterator[Record]:
    from ray import serve

    from quarry.distributed import serve_index

    with ExitStack() as stack, _cluster():
        whole = _opened(folder / "one", args.documents, None, stack)
        for n_shards in args.shards:
            path, name = folder / f"{n_shards}", f"shards{n_shards}"
            together = _opened(path, args.documents, n_shards, stack)
            served = serve_index(path, name=name, encoder=_ENCODER, num_cpus=0.05)
            searches: dict[str, Callable[[str], object]] = {
                "one index": whole.search,
                f"{n_shards} shards": together.search,
                f"{n_shards} shards, served": served.search,
            }
            yield from _latencies(searches, args)
            serve.delete(name)
        serve.shutdown()


@contextmanager
def _cluster() -> Iterator[None]:
    import quarry.distributed  # noqa: F401  # before ray

    import ray  # isort: skip

    paths = {"env_vars": {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}}
    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False, runtime_env=paths
    )
    try:
        yield
    finally:
        ray.shutdown()


def _opened(path: Path, n_documents: int, n_shards: int | None, stack: ExitStack) -> Engine:
    documents = [{"id": str(number), "text": text} for number, text in enumerate(_texts(n_documents, 60, 2))]
    engine.build(
        documents, path, encoder=_ENCODER, representation=KMeans(4), shards=n_shards, progress=False, threads=2
    )
    return stack.enter_context(Engine.open(path, encoder=_ENCODER))


def _latencies(searches: dict[str, Callable[[str], object]], args: argparse.Namespace) -> Iterator[Record]:
    queries = _texts(args.queries + 20, 5, 3)
    time_in_turn(searches, queries[:20])  # files are mapped, document frequencies known
    for name, timing in time_in_turn(searches, queries[20:]).items():
        yield {
            "how": name,
            "n_documents": args.documents,
            "n_queries": args.queries,
            **summarize_ms((timing.wall_ms / 1e3).tolist()),
        }


_PARTS: dict[str, Callable[[Path, argparse.Namespace], Iterator[Record]]] = {
    "build": _measure_builds,
    "search": _measure_searches,
    "serve": _measure_served,
}
