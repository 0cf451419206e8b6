"""How many inverted lists a search reads by default: measured when a quantizer is trained."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from formats.quantizer import Quantizer

__all__ = ["default_nprobe", "probe_recall"]

Floats = npt.NDArray[np.float32]

_RECALL = 0.99
_N_HELD_OUT = 512
_N_NEAREST = 10
_NEIGHBOURS = 16  # rows of the sample on either side of a row: of the same document, perhaps
_BATCH_SCORES = 1 << 23


def probe_recall(sample: Floats, coarse: Floats) -> Floats:
    """Share of the nearest rows that the first lists hold, for each number of lists.

    Rows of the sample ask for their nearest ten in the sample. It is thinner than the collection, so that these
    are further away than the documents that are nearest: about as far as documents are from questions. On squad
    (256 lists) .99 took 85 lists, and 73 where real questions asked for their ten documents; .98 50 and 39.

    Args:
        sample: (n, dim) float32 training rows in the order of their documents, rotated where there is a rotation.
        coarse: (nlist, dim) float32 coarse centroids.

    Returns:
        (nlist,) float32, ascending to 1: number i for the i + 1 lists with the largest inner products.
    """
    held_out = np.linspace(0, len(sample) - 1, min(_N_HELD_OUT, len(sample))).astype(np.int64)
    batch = max(1, _BATCH_SCORES // len(sample))
    n_of_rank = np.zeros(len(coarse), np.int64)
    for low in range(0, len(held_out), batch):
        ranks = _ranks(sample, held_out[low : low + batch], coarse)
        n_of_rank += np.bincount(ranks, minlength=len(coarse))
    shares: Floats = (np.cumsum(n_of_rank) / n_of_rank.sum()).astype(np.float32)
    return shares


def default_nprobe(quantizer: Quantizer) -> int:
    """Lists read where a query does not say: for .99 of the nearest rows, where that was measured."""
    if quantizer.probe_recall is None:
        return min(quantizer.nlist, round(7 * math.sqrt(quantizer.nlist)))
    return min(quantizer.nlist, int(np.searchsorted(quantizer.probe_recall, np.float32(_RECALL))) + 1)


def _ranks(sample: Floats, held_out: npt.NDArray[np.int64], coarse: Floats) -> npt.NDArray[np.int64]:
    """For each nearest row of each row held out: how many lists come before its list."""
    scores = sample[held_out] @ sample.T
    for row, place in zip(scores, held_out.tolist(), strict=True):
        row[max(0, place - _NEIGHBOURS) : place + _NEIGHBOURS + 1] = -np.inf
    n_nearest = min(_N_NEAREST, len(sample))
    nearest = np.argpartition(scores, -n_nearest, axis=1)[:, -n_nearest:]
    lists = (sample[nearest.ravel()] @ coarse.T).argmax(axis=1).reshape(nearest.shape)
    near_lists = sample[held_out] @ coarse.T
    own = np.take_along_axis(near_lists, lists, axis=1)
    ranks: npt.NDArray[np.int64] = (near_lists[:, None, :] > own[:, :, None]).sum(axis=2).ravel()
    return ranks
