"""Latency of queries with a quoted phrase or a prefix, which read texts.

``python -m bench phrases INDEX [--queries N]`` draws pairs and triples of words that follow one another in random
documents of the index, as they come: most have a frequent word. Processor time of a lexical search on one thread
for the words, for the words as a phrase, for the same phrase a second time, and for the first four letters of the
longest word as a prefix, each for the first time.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import numpy as np

from bench.harness.records import add_out, append_result
from quarry.engine import Engine

__all__ = ["add_arguments", "run"]

_SEED = 1
_PREFIX_LETTERS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench phrases``."""
    parser.add_argument("index", type=Path)
    parser.add_argument("--queries", type=int, default=200, help="number of queries (default: 200)")
    add_out(parser, "phrases")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, append the raw results."""
    with Engine.open(args.index, threads=1) as index:
        phrases = _draw_phrases(index, args.queries)
        for phrase in phrases:
            index.search(phrase, mode="lexical")  # reads the postings
        kinds = {
            "words": phrases,
            "phrase": [f'"{phrase}"' for phrase in phrases],
            "phrase again": [f'"{phrase}"' for phrase in phrases],
            "prefix": [max(phrase.split(), key=len)[:_PREFIX_LETTERS] + "*" for phrase in phrases],
        }
        print(f"{'':<14} {'p50 ms':>8} {'p90 ms':>8} {'p99 ms':>8}")
        for kind, queries in kinds.items():
            times = [_time(index, query) for query in queries]
            p50, p90, p99 = (float(each) for each in np.percentile(times, (50, 90, 99)) * 1e3)
            print(f"{kind:<14} {p50:>8.2f} {p90:>8.2f} {p99:>8.2f}", flush=True)
            record = {"query": kind, "cpu_p50_ms": p50, "cpu_p90_ms": p90, "cpu_p99_ms": p99}
            about = {"index": args.index.name, "n_documents": len(index), "n_queries": len(queries)}
            append_result(args.out, {**record, **about})
    return 0


def _draw_phrases(index: Engine, n: int) -> list[str]:
    generator = random.Random(_SEED)
    ids = sorted(index.ids())
    found: list[str] = []
    while len(found) < n:
        words = index.get(generator.choice(ids))[0].text.replace('"', "").split()
        length = generator.choice((2, 3))
        if len(words) > length:
            at = generator.randrange(len(words) - length)
            found.append(" ".join(words[at : at + length]))
    return found


def _time(index: Engine, query: str) -> float:
    """Return the processor time of a search in seconds."""
    started = time.thread_time()
    index.search(query, mode="lexical")
    return time.thread_time() - started
