"""Encodes a collection once for all measurements; also the command ``prepare``.

The vectors stay in a cache (`bench.data.prepared.cache_folder`); what is in the cache is not computed again.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from bench.data.collections import Collection, add_collection, load_collection
from bench.data.prepared import Prepared, cache_folder, write_json
from quarry.engine import Cls, Encoder, FirstM, KMeans, Mean, Pieces, open_encoder
from quarry.engine.process.cpus import n_cpus

__all__ = ["REPRESENTATIONS", "add_arguments", "find_exact", "prepare", "representation_key", "run"]

Representation = Cls | FirstM | KMeans | Mean | Pieces
REPRESENTATIONS: tuple[Representation, ...] = (
    Mean(),
    Cls(),
    *(Pieces(tokens) for tokens in (16, 24, 32, 48, 64, 96)),
    KMeans(4),
    KMeans(8),
    FirstM(8),
)
"""The representations that ``tradeoff`` and ``peers`` need."""

_DEPTH = 100
_TEXTS_AT_ONCE = 64
_SCORES_AT_ONCE = 1 << 24

Floats = npt.NDArray[np.float32]


def representation_key(representation: Representation) -> str:
    """Return a name for files, such as ``pieces-24`` or ``mean``."""
    return "-".join([representation.name, *map(str, representation.settings().values())])


def prepare(
    collection: Collection, encoder: Encoder, representations: Sequence[Representation], cache: Path
) -> Prepared:
    """Encode what the cache does not have yet.

    Args:
        collection: documents, queries, judgments. The folder's name has only their numbers, so a collection must
            not change without a change of name or size.
        encoder: the folder's name has its identity.
        representations: computed from the same token vectors.
        cache: folder for prepared collections.
    """
    prepared = Prepared(cache / _folder_name(collection, encoder))
    if not (prepared.folder / "about.json").exists():
        _write_collection(collection, encoder, prepared.folder)
    missing = [each for each in representations if not prepared.has(representation_key(each))]
    if missing:
        _encode_documents(list(collection.documents.values()), encoder, missing, prepared)
    for representation in missing:
        key = representation_key(representation)
        prepared.save(key, "oracle", find_exact(prepared.query_vectors(), *prepared.vectors(key)))
    return prepared


def find_exact(queries: Floats, values: Floats, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the documents with the largest maxima, by exhaustive search in float32, best first.

    Args:
        queries: (n_queries, dim) float32.
        values: (n_rows, dim) float32.
        offsets: (n_documents + 1,) int64, first row of each document.

    Returns:
        (n_queries, up to 100) int32 ordinals.
    """
    n = min(_DEPTH, len(offsets) - 1)
    rows = np.ascontiguousarray(values)
    n_queries_at_once = max(1, _SCORES_AT_ONCE // len(rows))
    nearest = []
    for low in range(0, len(queries), n_queries_at_once):
        for scores in queries[low : low + n_queries_at_once] @ rows.T:
            best = np.maximum.reduceat(scores, offsets[:-1])
            first = np.argpartition(-best, n - 1)[:n]
            nearest.append(first[np.argsort(-best[first], kind="stable")])
    return np.array(nearest, np.int32)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench prepare``."""
    add_collection(parser, queries=1000)


def run(args: argparse.Namespace) -> int:
    """Encode the collection with the bundled encoder and print its folder in the cache."""
    print(prepare(load_collection(args), open_encoder(), REPRESENTATIONS, cache_folder()).folder)
    return 0


def _folder_name(collection: Collection, encoder: Encoder) -> str:
    sizes = f"{len(collection.documents)}-{len(collection.queries)}"
    return f"{collection.name}-{collection.split}-{sizes}-{encoder.identity[:8]}"


def _write_collection(collection: Collection, encoder: Encoder, folder: Path) -> None:
    if folder.exists():  # left by a process that was stopped
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write_json(folder / "documents.json", collection.documents)
    write_json(folder / "queries.json", collection.queries)
    write_json(folder / "qrels.json", collection.qrels)
    texts = list(collection.queries.values())
    with ThreadPoolExecutor(n_cpus()) as pool:
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


def _encode_documents(
    texts: list[str], encoder: Encoder, missing: list[Representation], prepared: Prepared
) -> None:
    """Write values and offsets of every representation, one document after another."""
    lengths: list[list[int]] = [[0] for _ in missing]
    with ExitStack() as stack, ThreadPoolExecutor(n_cpus()) as pool:
        paths = [prepared.values_path(representation_key(each)) for each in missing]
        files: list[BinaryIO] = [stack.enter_context(path.open("wb")) for path in paths]
        encoded = _represent_texts(texts, encoder, missing, pool)
        for document in tqdm(encoded, f"encoding {prepared.folder.name}", len(texts), unit=" documents"):
            for values, file, counts in zip(document, files, lengths, strict=True):
                file.write(np.ascontiguousarray(values, np.float32).tobytes())
                counts.append(len(values))
    for representation, counts in zip(missing, lengths, strict=True):
        prepared.save(representation_key(representation), "offsets", np.cumsum(counts))


def _represent_texts(
    texts: list[str], encoder: Encoder, representations: list[Representation], pool: ThreadPoolExecutor
) -> Iterator[list[Floats]]:
    """Yield the centroids of each text by each representation, computed in a pool."""

    def represent(text: str) -> list[Floats]:
        windows = list(encoder.windows(text))
        return [each.represent(text, windows, encoder.normalize).values for each in representations]

    for low in range(0, len(texts), _TEXTS_AT_ONCE):
        yield from pool.map(represent, texts[low : low + _TEXTS_AT_ONCE])
