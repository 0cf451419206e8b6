"""Encodes a collection once for every representation that a measurement needs.

The vectors stay in a cache (`bench.data.prepared.cache_folder`); what is in the cache is not computed again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from bench.data.collections import Collection
from bench.data.prepared import Prepared, write_json
from bench.harness.progress import Clock
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.options import OpenOptions
from quarry.engine.representation.base import Representation
from quarry.engine.scoring.aggregation import aggregate

__all__ = ["ORACLE_DEPTH", "oracle", "prepare", "representation_key"]

ORACLE_DEPTH = 100
_TEXTS_AT_ONCE = 64
_SCORES_AT_ONCE = 1 << 24

Floats = npt.NDArray[np.float32]


def representation_key(representation: Representation) -> str:
    """A name for files: ``pieces-24``, ``mean``."""
    return "-".join([representation.name, *map(str, representation.settings().values())])


def prepare(
    collection: Collection, encoder: Encoder, representations: Sequence[Representation], cache: Path
) -> Prepared:
    """Encode what the cache does not have yet.

    Args:
        collection: documents, queries, judgments; part of the folder's name are their numbers, so a collection
            of one name and size must not change.
        encoder: what with; part of the folder's name is its identity.
        representations: what to make of the token vectors.
        cache: a folder.
    """
    prepared = Prepared(cache / _name(collection, encoder))
    if not (prepared.folder / "about.json").exists():
        _write_collection(collection, encoder, prepared.folder)
    missing = [each for each in representations if not prepared.has(representation_key(each))]
    if missing:
        _encode(list(collection.documents.values()), encoder, missing, prepared)
    for representation in missing:
        key = representation_key(representation)
        prepared.save(key, "oracle", oracle(prepared.query_vectors(), *prepared.vectors(key)))
    return prepared


def oracle(queries: Floats, values: Floats, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """(n_queries, up to 100) int32: the documents with the best maxima, in plain float32, best first.

    Args:
        queries: (n_queries, dim) float32.
        values: (n_rows, dim) float32.
        offsets: (n_documents + 1,) int64.
    """
    n = min(ORACLE_DEPTH, len(offsets) - 1)
    rows = np.ascontiguousarray(values)
    at_once = max(1, _SCORES_AT_ONCE // len(rows))
    found = []
    for low in range(0, len(queries), at_once):
        for scores in queries[low : low + at_once] @ rows.T:
            best = aggregate(scores, offsets, None)
            first = np.argpartition(-best, n - 1)[:n]
            found.append(first[np.argsort(-best[first], kind="stable")])
    return np.array(found, np.int32)


def _name(collection: Collection, encoder: Encoder) -> str:
    sizes = f"{len(collection.documents)}-{len(collection.queries)}"
    return f"{collection.name}-{collection.split}-{sizes}-{encoder.identity[:8]}"


def _write_collection(collection: Collection, encoder: Encoder, folder: Path) -> None:
    if folder.exists():  # an attempt that was stopped
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write_json(folder / "documents.json", collection.documents)
    write_json(folder / "queries.json", collection.queries)
    write_json(folder / "qrels.json", collection.qrels)
    texts = list(collection.queries.values())
    with ThreadPoolExecutor(OpenOptions().n_threads) as pool:
        np.save(folder / "queries.npy", np.stack(list(pool.map(encoder.encode_query, texts))))
    about = {
        "collection": collection.name,
        "split": collection.split,
        "encoder": encoder.name,
        "encoder_identity": encoder.identity,
        "n_documents": len(collection.documents),
        "n_queries": len(texts),
    }
    write_json(folder / "about.json", about)


def _encode(texts: list[str], encoder: Encoder, missing: list[Representation], prepared: Prepared) -> None:
    """Write values and offsets of every representation, document after document."""
    lengths: list[list[int]] = [[0] for _ in missing]
    with ExitStack() as stack, ThreadPoolExecutor(OpenOptions().n_threads) as pool:
        paths = [prepared.values_path(representation_key(each)) for each in missing]
        files: list[BinaryIO] = [stack.enter_context(path.open("wb")) for path in paths]
        clock = Clock(len(texts), f"documents of {prepared.folder.name} encoded")
        for document in _encoded(texts, encoder, missing, pool):
            for values, file, counts in zip(document, files, lengths, strict=True):
                file.write(np.ascontiguousarray(values, np.float32).tobytes())
                counts.append(len(values))
            clock.tick()
    for representation, counts in zip(missing, lengths, strict=True):
        prepared.save(representation_key(representation), "offsets", np.cumsum(counts))


def _encoded(
    texts: list[str], encoder: Encoder, wanted: list[Representation], pool: ThreadPoolExecutor
) -> Iterator[list[Floats]]:
    """For each text its centroids by each representation, on the threads of a pool."""

    def encode(text: str) -> list[Floats]:
        windows = list(encoder.windows(text))
        return [each.represent(text, windows, encoder.normalize).values for each in wanted]

    for low in range(0, len(texts), _TEXTS_AT_ONCE):
        yield from pool.map(encode, texts[low : low + _TEXTS_AT_ONCE])
