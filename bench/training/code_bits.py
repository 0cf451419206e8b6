"""Codes of 4 and of 8 bits a sub-quantizer in indexes of codes alone: quality, size and time.

``python -m bench code_bits INDEX COLLECTION`` takes the vectors of an index that was built with the bundled
encoder and default settings, makes indexes of codes alone with sub-quantizers of 16 and of 256 sub-vectors, and
searches them with the same queries in turn.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from bench.data.collections import Collection
from bench.data.quality import measure_hits
from bench.data.recode import recode_index
from bench.harness.records import add_out, append_result
from bench.training.collections import COLLECTIONS
from bench.training.encoders import measure_hybrid_codes
from quarry.engine import Engine
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.thresholds import Thresholds
from quarry.formats.arrays import Float32Array
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

__all__ = ["BITS", "add_arguments", "measure", "run"]

BITS = {4: Thresholds(long_code_rows=1 << 40), 8: Thresholds(long_code_rows=0)}
"""Thresholds by the bits of a sub-quantizer's number."""

_N_HITS = 100
_ROUNDS = 3
_TIMED = 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench code_bits``."""
    parser.add_argument("index", type=Path, help="of the collection, built with the default encoder and settings")
    parser.add_argument("collection", choices=COLLECTIONS)
    parser.add_argument("--code-bytes", type=int, nargs="+", default=[96, 48, 24, 8], help="of the codes")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the quantizers")
    add_out(parser, "code_bits")


def run(args: argparse.Namespace) -> int:
    """Measure both kinds of codes in every size; print a line for each and append the raw results."""
    collection, encoder = COLLECTIONS[args.collection](), open_encoder()
    for found in measure(collection, encoder, args.index, args.code_bytes, args.seeds):
        append_result(args.out, {"collection": args.collection, "encoder": encoder.name, **found})
        print(
            f"{args.collection} {found['code_bytes']} bytes, {found['nbits']} bits, seed {found['seed']}: "
            f"nDCG@10 {found['ndcg_10']:.4f}, hybrid {found['hybrid_ndcg_10']:.4f}, "
            f"built in {found['build_s']:.1f} s, {found['search_ms']:.2f} ms, "
            f"{found['index_bytes']:,} bytes",
            flush=True,
        )
    return 0


def measure(
    collection: Collection, encoder: Encoder, index: Path, code_sizes: list[int], seeds: list[int]
) -> Iterator[dict[str, object]]:
    """Yield a result for each size of codes, seed and number of bits.

    Args:
        collection: has the queries and judgments.
        encoder: of the index.
        index: folder of an index with the vectors of the collection.
        code_sizes: bytes of a code.
        seeds: of the quantizers.
    """
    queries = np.stack([encoder.encode_query(text) for text in collection.queries.values()])
    source = Snapshot(Directory(index))
    for code_bytes in code_sizes:
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                yield from _compare(collection, encoder, source, queries, Path(folder), code_bytes, seed)
    source.close()


def _compare(
    collection: Collection,
    encoder: Encoder,
    source: Snapshot,
    queries: Float32Array,
    folder: Path,
    code_bytes: int,
    seed: int,
) -> Iterator[dict[str, object]]:
    """Yield the results of both numbers of bits; their searches are timed in turn."""
    opened: dict[int, Engine] = {}
    results: dict[int, dict[str, object]] = {}
    for nbits, thresholds in BITS.items():
        path = folder / f"codes-{nbits}"
        path.mkdir()
        settings = replace(source.manifest.settings, centroids="none", code_bytes=code_bytes, seed=seed)
        start = time.perf_counter()
        made = recode_index(
            source, path, settings, thresholds=thresholds, encoder=encoder, texts=collection.documents
        )
        seconds = time.perf_counter() - start
        quantizer, n_rows = made.segments[0].quantizer, made.segments[0].reader.n_rows
        made.close()
        if quantizer is None or quantizer.nbits != nbits:
            raise ValueError("the index is too small for codes")
        opened[nbits] = Engine.open(path, encoder=encoder)
        results[nbits] = {
            "code_bytes": code_bytes,
            "nbits": nbits,
            "seed": seed,
            "n_rows": n_rows,
            "nlist": quantizer.nlist,
            "build_s": seconds,
            "index_bytes": sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
        }
    times: dict[int, list[float]] = {nbits: [] for nbits in opened}
    for _ in range(_ROUNDS):
        for nbits, engine in opened.items():
            for query in queries[:_TIMED]:
                start = time.perf_counter()
                engine.search_vectors(query[np.newaxis], 10)
                times[nbits].append(time.perf_counter() - start)
    for nbits, engine in opened.items():
        with engine:
            quality = measure_hits(collection, engine.search_vectors(queries, _N_HITS))
        part = folder / f"hybrid-{nbits}"
        part.mkdir()
        hybrid = measure_hybrid_codes(collection, source, encoder, part, code_bytes, seed, BITS[nbits])
        results[nbits] |= {"search_ms": 1000 * float(np.median(times[nbits])), "hybrid_ndcg_10": hybrid.ndcg_10}
        yield {**results[nbits], **asdict(quality)}
