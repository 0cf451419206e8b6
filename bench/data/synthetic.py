"""Synthetic vectors of a given intrinsic dimension, for measurements of size and speed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.data.prepare import find_exact
from bench.data.prepared import Prepared, write_json

__all__ = ["SYNTHETIC", "prepare_synthetic"]

SYNTHETIC = "synthetic"
_PER_DOCUMENT = 4
_NOISE = 0.1  # norm relative to a vector's, so that a query and its nearest neighbor differ
_ROWS_AT_ONCE = 1 << 16
_SEED = 0

Floats = npt.NDArray[np.float32]


def prepare_synthetic(n_documents: int, n_queries: int, dim: int, intrinsic_dim: int, cache: Path) -> Prepared:
    """Prepare documents of four vectors each: points of a random subspace with a little noise.

    The four vectors of a document are scattered around one point; queries are other points of the subspace. All
    have L2 norm 1. Texts are empty and there are no judgments: results have recall and speed only.

    Args:
        n_documents: number of documents.
        n_queries: number of queries.
        dim: dimension of a vector.
        intrinsic_dim: dimension of the subspace, at most ``dim``: the smaller, the easier the search.
        cache: folder for prepared collections.
    """
    name = f"{SYNTHETIC}-{n_documents}-{n_queries}-{dim}-{intrinsic_dim}-{_SEED}"
    prepared = Prepared(cache / name)
    if prepared.has(SYNTHETIC):
        return prepared
    prepared.folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(_SEED)
    basis = generator.standard_normal((intrinsic_dim, dim)).astype(np.float32) / np.sqrt(intrinsic_dim * dim)
    with prepared.values_path(SYNTHETIC).open("wb") as file:
        for low in range(0, n_documents, _ROWS_AT_ONCE):
            file.write(_make_documents(generator, basis, min(_ROWS_AT_ONCE, n_documents - low)).tobytes())
    queries = _add_noise(
        generator, generator.standard_normal((n_queries, intrinsic_dim)).astype(np.float32) @ basis
    )
    np.save(prepared.folder / "queries.npy", queries)
    _write_texts(prepared, name, n_documents, n_queries)
    prepared.save(SYNTHETIC, "offsets", np.arange(n_documents + 1, dtype=np.int64) * _PER_DOCUMENT)
    prepared.save(SYNTHETIC, "oracle", find_exact(queries, *prepared.vectors(SYNTHETIC)))
    return prepared


def _make_documents(generator: np.random.Generator, basis: Floats, n: int) -> Floats:
    centers = generator.standard_normal((n, 1, len(basis)))
    around = centers + generator.standard_normal((n, _PER_DOCUMENT, len(basis)))
    return _add_noise(generator, around.reshape(-1, len(basis)).astype(np.float32) @ basis)


def _add_noise(generator: np.random.Generator, points: Floats) -> Floats:
    length = np.linalg.norm(points, axis=1, keepdims=True)
    noise = generator.standard_normal(points.shape, np.float32) * (_NOISE / np.sqrt(points.shape[1]))
    moved = points / length + noise
    scaled: Floats = (moved / np.linalg.norm(moved, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def _write_texts(prepared: Prepared, name: str, n_documents: int, n_queries: int) -> None:
    write_json(prepared.folder / "documents.json", {f"d{number}": "" for number in range(n_documents)})
    write_json(prepared.folder / "queries.json", {f"q{number}": "" for number in range(n_queries)})
    write_json(prepared.folder / "qrels.json", {})
    about = {"collection": name, "split": "", "encoder": SYNTHETIC, "encoder_identity": SYNTHETIC}
    write_json(prepared.folder / "about.json", {**about, "n_documents": n_documents, "n_queries": n_queries})
