"""Query vectors for measurements on an index: from a file, or stored vectors with noise."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.formats.snapshot import OpenSegment

__all__ = ["Vectors", "add_queries", "noisy_queries", "read_queries"]

Vectors = npt.NDArray[np.float32]


def add_queries(parser: argparse.ArgumentParser, n_queries: int) -> None:
    """Declare the options ``--queries`` and ``--n-queries``, which `read_queries` reads."""
    parser.add_argument(
        "--queries", type=Path, help="a .npy file of (n, dim) vectors (default: stored ones with noise)"
    )
    parser.add_argument("--n-queries", type=int, default=n_queries, help="how many (default: %(default)s)")


def read_queries(args: argparse.Namespace, segment: OpenSegment) -> Vectors:
    """Return (n, dim) float32 query vectors: the first of a file, or `noisy_queries` without one."""
    if args.queries:
        return np.ascontiguousarray(np.load(args.queries)[: args.n_queries], np.float32)
    return noisy_queries(segment, args.n_queries)


def noisy_queries(segment: OpenSegment, n_queries: int) -> Vectors:
    """Return stored vectors with noise as long as the vectors, scaled to length 1: (n_queries, dim) float32.

    They are about as far from the stored vectors as questions are.
    """
    generator = np.random.default_rng(0)
    rows = generator.choice(segment.reader.n_rows, n_queries, replace=n_queries > segment.reader.n_rows)
    vectors = StoredVectors(segment).vectors(rows)
    spread = np.linalg.norm(vectors, axis=1, keepdims=True) / np.sqrt(vectors.shape[1])
    noisy = vectors + spread * generator.standard_normal(vectors.shape, np.float32)
    queries: Vectors = (noisy / np.linalg.norm(noisy, axis=1, keepdims=True)).astype(np.float32)
    return queries
