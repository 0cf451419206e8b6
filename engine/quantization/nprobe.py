"""Default number of inverted lists that a search reads, calibrated when a quantizer is trained."""

from __future__ import annotations

import math

import numpy as np

from quarry.engine.quantization.candidates import find_setting
from quarry.engine.quantization.held_out import ROUNDING, TakeQueries, find_nearest_rows, has_enough_queries
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.vectors.centroids import StoredBatch
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["default_nprobe", "list_ranks", "probe_recall"]


_RECALL = 0.993  # of the lists; codes miss a few more rows, and .99 are found
_N_HELD_OUT = 1024  # rows as queries
_N_NEAREST = 20  # rows of each that must be found
_RANKED_QUERIES = 64  # at a time


def probe_recall(
    sample: Float32Array | StoredBatch,
    quantizer: Quantizer,
    take_queries: TakeQueries | None = None,
    decoded: Float32Array | None = None,
    n_held_out: int = _N_HELD_OUT,
) -> Float32Array | None:
    """Measure the share of the nearest rows in the best lists, for each number of lists.

    Held-out rows of the sample are the queries, with their twenty nearest rows in the sample. A sample is sparser
    than the collection, so these are about as far away as documents are from questions. Only the half of the
    queries with the highest best scores counts: the others are outliers, and a few of them would need as many
    lists as all the rest. For .99, three samples of squad (156,175 rows, 256 lists) took 69 to 76 lists, while the
    best rows of the ten documents of real questions were in 66; three of a collection of abstracts (1,558,039
    rows, 1024 lists) 93 to 106 and 91; one of an eighth of squad (128 lists) 48 and 52.

    A query counts only if its twenty nearest rows are separated from the others. Ties count against a list: lists
    whose scores are equal to its own, up to rounding, are read before it.

    Args:
        sample: (n, dim) float32 training rows in the order of their documents.
        quantizer: has the lists.
        take_queries: returns rows of the sample as queries; None: rows and queries are alike.
        decoded: (n, dim) float32 decoded vectors, whose best rows are to be found; None: those of the sample.
        n_held_out: number of queries.

    Returns:
        (nlist,) float32, ascending to 1: entry i is for the i + 1 lists with the largest inner products. None if
        too few queries count, as in a sample of equal vectors.
    """
    take_queries = take_queries or sample.__getitem__

    def take_rotated(places: Int64Array) -> Float32Array:
        return quantizer.rotate(take_queries(places))

    compared = sample if decoded is None else decoded
    places, nearest, scores, is_separated = find_nearest_rows(
        compared, take_queries, n_held_out, _N_NEAREST, quantizer.distances
    )
    if not has_enough_queries(is_separated):
        return None
    best = np.where(is_separated, scores[:, 0], -np.inf)
    order = np.argsort(-best, kind="stable")[: -(-np.count_nonzero(is_separated) // 2)]
    parts = [order[low : low + _RANKED_QUERIES] for low in range(0, len(order), _RANKED_QUERIES)]
    ranks = [_rank_lists_of_rows(sample, take_rotated(places[part]), nearest[part], quantizer) for part in parts]
    counted = np.concatenate(ranks)
    n_of_rank = np.bincount(counted.ravel(), minlength=quantizer.nlist)
    shares: Float32Array = (np.cumsum(n_of_rank) / n_of_rank.sum()).astype(np.float32)
    return shares


def default_nprobe(quantizer: Quantizer, k: int) -> int:
    """Return the number of lists to read for k hits if the query does not set it.

    It is the value calibrated with queries, if there is one; otherwise, for any k, the lists that hold .993 of the
    nearest rows of the training sample; otherwise 7 times the square root of the number of lists.
    """
    setting = find_setting(quantizer.search_settings, k)
    if setting is not None:
        return min(quantizer.nlist, setting.nprobe)
    if quantizer.probe_recall is None:
        return min(quantizer.nlist, round(7 * math.sqrt(quantizer.nlist)))
    return min(quantizer.nlist, int(np.searchsorted(quantizer.probe_recall, np.float32(_RECALL))) + 1)


def _rank_lists_of_rows(
    sample: Float32Array | StoredBatch, rotated: Float32Array, nearest: Int64Array, quantizer: Quantizer
) -> Int64Array:
    """Return how many lists may be read before the list of each nearest row of each query: like `nearest`."""
    wanted, which = np.unique(nearest, return_inverse=True)
    coarse = quantizer.coarse
    lists = (quantizer.rotate(sample[wanted]) @ coarse.T).argmax(axis=1)[which].reshape(nearest.shape)
    ranks: Int64Array = np.take_along_axis(list_ranks(rotated, coarse), lists, axis=1)
    return ranks


def list_ranks(queries: Float32Array, coarse: Float32Array) -> Int64Array:
    """Return how many lists may be read before each list: (n_queries, nlist) int64.

    Ties count against a list: lists whose scores are equal to its own, up to rounding, are read before it.

    Args:
        queries: (n_queries, dim) float32, rotated if the quantizer has a rotation.
        coarse: (nlist, dim) float32 coarse centroids.
    """
    scores = queries @ coarse.T
    rounding = ROUNDING * np.outer(np.linalg.norm(queries, axis=1), np.linalg.norm(coarse, axis=1))
    ascending = np.sort(scores, axis=1)
    below = [np.searchsorted(row, own) for row, own in zip(ascending, scores - rounding, strict=True)]
    return len(coarse) - 1 - np.array(below, np.int64).reshape(scores.shape)
