"""Query vectors for measurements on an index: read from a file, or stored vectors with noise."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.formats.snapshot import OpenSegment

__all__ = ["Vectors", "add_queries", "read_queries", "sample_queries"]

Vectors = npt.NDArray[np.float32]


def add_queries(parser: argparse.ArgumentParser, n_queries: int) -> None:
    """Declare the options ``--queries`` and ``--n-queries``, which `read_queries` reads."""
    parser.add_argument(
        "--queries", type=Path, help=".npy file of (n, dim) vectors (default: stored vectors with noise)"
    )
    parser.add_argument(
        "--n-queries", type=int, default=n_queries, help="number of queries (default: %(default)s)"
    )


def read_queries(args: argparse.Namespace, segment: OpenSegment) -> Vectors:
    """Return (n, dim) float32 query vectors from the file of ``--queries``, or else from `sample_queries`."""
    if args.queries:
        return np.ascontiguousarray(np.load(args.queries)[: args.n_queries], np.float32)
    return sample_queries(segment, args.n_queries)


def sample_queries(segment: OpenSegment, n_queries: int) -> Vectors:
    """Return random stored vectors plus noise of the same norm, with L2 norm 1: (n_queries, dim) float32.

    Their similarities to the stored vectors are about those of real questions.
    """
    generator = np.random.default_rng(0)
    rows = generator.choice(segment.reader.n_rows, n_queries, replace=n_queries > segment.reader.n_rows)
    vectors = StoredVectors(segment).vectors(rows)
    spread = np.linalg.norm(vectors, axis=1, keepdims=True) / np.sqrt(vectors.shape[1])
    noisy = vectors + spread * generator.standard_normal(vectors.shape, np.float32)
    queries: Vectors = (noisy / np.linalg.norm(noisy, axis=1, keepdims=True)).astype(np.float32)
    return queries
