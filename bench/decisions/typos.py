"""Quality and latency of queries with one typing error each, with and without close terms for mistyped ones.

``python -m bench typos INDEX COLLECTION [--queries N]`` changes one word of at least four letters in each query of
the collection: a letter is replaced, left out, inserted, or exchanged with the next one, at a random place. The
errors are the same in every run. nDCG@10 in lexical and hybrid mode of the queries as given, and of the mistyped
ones with ``typos=False`` and by default; processor time of a search on one thread, settings taking turns at each
query. No mistyped term was searched for before, so the time of its first look-up is included.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import string
import time
from pathlib import Path

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.quality import measure_hits
from bench.harness.records import add_out, append_result
from quarry.engine import Engine, Hits
from quarry.engine.choices import Mode

__all__ = ["add_arguments", "mistype", "run"]

_WORD = re.compile(r"[a-zA-Z]{4,}")
_MISTYPED = "xylophoen zebraaa"  # so that the dictionaries are read that close terms are searched in
_N_HITS = 10
_SEED = 1
_SETTINGS = (("clean", False), ("clean", True), ("mistyped", False), ("mistyped", True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench typos``."""
    parser.add_argument("index", type=Path)
    add_collection(parser, queries=1000)
    add_out(parser, "typos")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, append the raw results."""
    collection = load_collection(args)
    generator = random.Random(_SEED)
    clean = list(collection.queries.values())
    texts = {"clean": clean, "mistyped": [mistype(query, generator) for query in clean]}
    print(f"{'':<10} {'queries':<10} {'typos':<6} {'nDCG@10':>8} {'p50 ms':>8}")
    modes: tuple[Mode, ...] = ("lexical", "hybrid")
    for mode in modes:
        with Engine.open(args.index, threads=1) as index:  # anew: it remembers what mistyped terms stand for
            for record in _measure(index, collection, texts, mode):
                print(
                    f"{mode:<10} {record['queries']:<10} {record['typos']!s:<6} {record['ndcg_10']:>8.4f}"
                    f" {record['cpu_p50_ms']:>8.3f}",
                    flush=True,
                )
                append_result(args.out, {**record, "collection": collection.name, "n_queries": len(clean)})
    return 0


def mistype(query: str, generator: random.Random) -> str:
    """Return a query with a typing error in one of its words of at least four letters; unchanged without one."""
    words = list(_WORD.finditer(query))
    if not words:
        return query
    word = generator.choice(words)
    at = generator.randrange(len(word[0]))
    letter = generator.choice([each for each in string.ascii_lowercase if each != word[0][at].lower()])
    kind = generator.choice(["replace", "delete", "insert", "transpose"])
    before, here, after = word[0][:at], word[0][at], word[0][at + 1 :]
    if kind == "transpose" and after and after[0] != here:
        changed = before + after[0] + here + after[1:]
    elif kind == "delete":
        changed = before + after
    elif kind == "insert":
        changed = before + letter + here + after
    else:
        changed = before + letter + after
    return query[: word.start()] + changed + query[word.end() :]


def _measure(
    index: Engine, collection: Collection, texts: dict[str, list[str]], mode: Mode
) -> list[dict[str, object]]:
    answers: dict[tuple[str, bool], list[Hits]] = {setting: [] for setting in _SETTINGS}
    times: dict[tuple[str, bool], list[float]] = {setting: [] for setting in _SETTINGS}
    index.search([*texts["clean"], _MISTYPED], mode=mode)  # reads dictionaries and postings
    for number in range(len(collection.queries)):
        first = number % len(_SETTINGS)
        for setting in _SETTINGS[first:] + _SETTINGS[:first]:
            queries, typos = setting
            started = time.thread_time()
            hits = index.search(texts[queries][number], _N_HITS, mode=mode, typos=typos)
            times[setting].append(time.thread_time() - started)
            answers[setting].append(hits)
    return [
        {
            "mode": mode,
            "queries": queries,
            "typos": typos,
            "ndcg_10": measure_hits(collection, answers[queries, typos]).ndcg_10,
            "cpu_p50_ms": statistics.median(times[queries, typos]) * 1e3,
        }
        for queries, typos in _SETTINGS
    ]
