"""How many inverted lists a search reads by default: measured when a quantizer is trained."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from quarry.engine.quantization.held_out import ROUNDING, nearest_rows, says_enough
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["default_nprobe", "probe_recall"]

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

_RECALL = 0.993  # of lists; codes pass over a little more, so that .99 is found
_N_HELD_OUT = 1024
_N_NEAREST = 20


def probe_recall(sample: Floats, quantizer: Quantizer) -> Floats | None:
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

    Rows whose nearest twenty are not decided do not count, and lists that score the same as the one that holds a
    row come before it: what the order of equal scores is like is left to chance.

    Returns:
        (nlist,) float32, ascending to 1: number i for the i + 1 lists with the largest inner products. None where
        the sample says too little, as one of identical vectors.
    """
    ranks, best, decided = [], [], []
    for asked in nearest_rows(sample, _N_HELD_OUT, _N_NEAREST):
        ranks.append(_ranks(sample, asked.places, asked.nearest, quantizer)[asked.decided])
        best.append(asked.scores.max(axis=1)[asked.decided])
        decided.append(asked.decided)
    if not says_enough(np.concatenate(decided)):
        return None
    order = np.argsort(-np.concatenate(best), kind="stable")
    counted = np.concatenate(ranks)[order[: -(-len(order) // 2)]]
    n_of_rank = np.bincount(counted.ravel(), minlength=quantizer.nlist)
    shares: Floats = (np.cumsum(n_of_rank) / n_of_rank.sum()).astype(np.float32)
    return shares


def default_nprobe(quantizer: Quantizer) -> int:
    """Lists read where a query does not say: those with .993 of the nearest rows, where that was measured."""
    if quantizer.probe_recall is None:
        return min(quantizer.nlist, round(7 * math.sqrt(quantizer.nlist)))
    return min(quantizer.nlist, int(np.searchsorted(quantizer.probe_recall, np.float32(_RECALL))) + 1)


def _ranks(sample: Floats, places: Ints, nearest: Ints, quantizer: Quantizer) -> Ints:
    """For each nearest row of each row that asks, how many lists may come before its list: like `nearest`."""
    wanted, which = np.unique(nearest, return_inverse=True)
    coarse = quantizer.coarse
    lists = (quantizer.rotate(sample[wanted]) @ coarse.T).argmax(axis=1)[which].reshape(nearest.shape)
    asking = quantizer.rotate(sample[places])
    near_lists = asking @ coarse.T
    rounding = ROUNDING * np.outer(np.linalg.norm(asking, axis=1), np.linalg.norm(coarse, axis=1))
    own = np.take_along_axis(near_lists, lists, axis=1) - np.take_along_axis(rounding, lists, axis=1)
    near_lists.sort(axis=1)
    before = [np.searchsorted(row, mine) for row, mine in zip(near_lists, own, strict=True)]
    ranks: Ints = len(coarse) - 1 - np.array(before, np.int64).reshape(nearest.shape)
    return ranks
