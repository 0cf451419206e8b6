"""Default number of inverted lists that a search reads, calibrated when a quantizer is trained."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from quarry.engine.quantization.held_out import ROUNDING, nearest_rows, says_enough
from quarry.engine.quantization.search_settings import setting_for
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["default_nprobe", "list_ranks", "probe_recall"]

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

_RECALL = 0.993  # of lists; codes pass over a little more, so that .99 is found
_N_HELD_OUT = 1024
_N_NEAREST = 20


def probe_recall(sample: Floats, quantizer: Quantizer, asking: Floats | None = None) -> Floats | None:
    """Share of the nearest rows that the first lists hold, for each number of lists.

    Rows of the sample ask for their nearest twenty in the sample. It is thinner than the collection, so that these
    are further away than the documents that are nearest: about as far as documents are from questions. Half of the
    rows count, those with a row nearest to them: others lie apart, where nobody asks, and a few of them would take
    as many lists as all else. For .99, three samples of squad (156,175 rows, 256 lists) took 69 to 76 lists, where
    the best rows of real questions' ten documents lay in 66; three of a collection of abstracts (1,558,039 rows,
    1024 lists) 93 to 106 and 91; one of an eighth of squad (128 lists) 48 and 52.

    Args:
        sample: (n, dim) float32 training rows in the order of their documents.
        quantizer: whose lists.
        asking: (n, dim) float32, the sample as queries; None: rows and queries are alike.

    Rows whose nearest twenty are not decided do not count, and lists that score the same as the one that holds a
    row come before it: what the order of equal scores is like is left to chance.

    Returns:
        (nlist,) float32, ascending to 1: number i for the i + 1 lists with the largest inner products. None where
        the sample says too little, as one of identical vectors.
    """
    asking = sample if asking is None else asking
    ranks, best, decided = [], [], []
    for asked in nearest_rows(sample, asking, _N_HELD_OUT, _N_NEAREST):
        ranks.append(_ranks(sample, asking, asked.places, asked.nearest, quantizer)[asked.decided])
        best.append(asked.scores.max(axis=1)[asked.decided])
        decided.append(asked.decided)
    if not says_enough(np.concatenate(decided)):
        return None
    order = np.argsort(-np.concatenate(best), kind="stable")
    counted = np.concatenate(ranks)[order[: -(-len(order) // 2)]]
    n_of_rank = np.bincount(counted.ravel(), minlength=quantizer.nlist)
    shares: Floats = (np.cumsum(n_of_rank) / n_of_rank.sum()).astype(np.float32)
    return shares


def default_nprobe(quantizer: Quantizer, k: int) -> int:
    """Return the number of lists to read for k hits if the query does not set it.

    It is the value calibrated with queries, if there is one; otherwise, for any k, the lists that hold .993 of the
    nearest rows of the training sample; otherwise 7 times the square root of the number of lists.
    """
    setting = setting_for(quantizer.search_settings, k)
    if setting is not None:
        return min(quantizer.nlist, setting.nprobe)
    if quantizer.probe_recall is None:
        return min(quantizer.nlist, round(7 * math.sqrt(quantizer.nlist)))
    return min(quantizer.nlist, int(np.searchsorted(quantizer.probe_recall, np.float32(_RECALL))) + 1)


def _ranks(sample: Floats, asking: Floats, places: Ints, nearest: Ints, quantizer: Quantizer) -> Ints:
    """For each nearest row of each row that asks, how many lists may come before its list: like `nearest`."""
    wanted, which = np.unique(nearest, return_inverse=True)
    coarse = quantizer.coarse
    lists = (quantizer.rotate(sample[wanted]) @ coarse.T).argmax(axis=1)[which].reshape(nearest.shape)
    ranks: Ints = np.take_along_axis(list_ranks(quantizer.rotate(asking[places]), coarse), lists, axis=1)
    return ranks


def list_ranks(queries: Floats, coarse: Floats) -> Ints:
    """Return how many lists may be read before each list: (n_queries, nlist) int64.

    Ties count against a list: lists whose scores are equal to its own, up to rounding, are read before it.

    Args:
        queries: (n_queries, dim) float32, rotated where the quantizer has a rotation.
        coarse: (nlist, dim) float32 coarse centroids.
    """
    scores = queries @ coarse.T
    rounding = ROUNDING * np.outer(np.linalg.norm(queries, axis=1), np.linalg.norm(coarse, axis=1))
    ascending = np.sort(scores, axis=1)
    below = [np.searchsorted(row, own) for row, own in zip(ascending, scores - rounding, strict=True)]
    return len(coarse) - 1 - np.array(below, np.int64).reshape(scores.shape)
