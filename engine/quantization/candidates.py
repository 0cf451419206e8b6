"""How many documents stage 2 rescores by default: measured when a quantizer is trained."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from quarry.engine.quantization.held_out import ROUNDING, hide_neighbours, nearest_rows, says_enough
from quarry.engine.quantization.search_settings import setting_for
from quarry.engine.scoring.stored_vectors import decoded_vectors
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["default_candidates", "measured_candidate_rows", "rows_per_candidate", "usual_candidates"]

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]

_SHARE = 0.995  # with most of the lists, .99 of both together takes more
_DENSER = 2  # times as many rows lie between in the collection, see `measured_candidate_rows`
_N_HELD_OUT = 256
_N_NEAREST = 10
_MEASURED_K = 10
_GROWTH = 0.62  # exponent of candidates by hits, from 10 to 100 hits
_THINNING = 1 / 6  # exponent of candidates by the share of the documents that a filter leaves
_LEAST = 30  # below, less is gained than a search takes without them
_BATCH_ROWS = 8192
_UNMEASURED_FACTOR = 3  # default candidates for each hit wanted
_UNMEASURED_LEAST = 100
_ROWS_PER_CANDIDATE = 2.5  # centroids asked for, for each document wanted, where documents have several


def measured_candidate_rows(
    quantizer: Quantizer, sample: Floats, lists: Ints, codes: Codes, asking: Floats | None = None
) -> int | None:
    """In how many of the rows that score best by their codes the ten nearest documents are, but for .005.

    Rows of the sample ask for the ten rows nearest to them; where these stand by their codes hardly depends on how
    thin the sample is. In the collection more rows lie between: of squad .995 took 84 rows of the sample and 125
    of the collection where real questions asked for ten documents, of a collection of abstracts 253 and 300.
    Searching only some of the lists takes more of both; twice the rows of the sample give .99 altogether.

    A row whose ten nearest are not decided does not count. A row that scores the same by its code as one of the
    nearest comes before it, and so does one that scores less by no more than rounding explains: codes that cannot
    tell rows apart find nothing. So the number is the same on every CPU but for a few rows at the edge of that.

    Args:
        quantizer: that they are coded with.
        sample: (n, dim) float32 training rows in the order of their documents.
        lists: (n,) int64, the list of each.
        codes: (n, code_bytes) uint8, the code of each.
        asking: (n, dim) float32, the sample as queries; None: rows and queries are alike.

    Returns:
        The number; None where the sample says too little, as one of identical vectors.
    """
    asking = sample if asking is None else asking
    ranks, decided = [], []
    for asked in nearest_rows(sample, asking, _N_HELD_OUT, _N_NEAREST):
        ranks.append(_ranks(quantizer, asking, lists, codes, asked.places, asked.nearest)[asked.decided].ravel())
        decided.append(asked.decided)
    if not says_enough(np.concatenate(decided)):
        return None
    found = np.sort(np.concatenate(ranks))
    return _DENSER * (int(found[math.ceil(_SHARE * len(found)) - 1]) + 1)


def default_candidates(segment: OpenSegment, k: int, n_allowed: int | None = None) -> int:
    """Return how many documents of a segment to rescore if the query does not set it.

    It is the number calibrated with queries, if there is one. In an index of version 1.0, or one built without an
    encoder, it is the number calibrated with rows of the training sample for ten hits, times a power of k: where
    ten hits took 54 and 162 candidates, one took 6 and 25, 30 took 132 and 375, and 100 took 372 and 839 (squad,
    abstracts). Fewer than ten hits use the number for ten. With a filter fewer candidates are needed: ten hits
    took 54 candidates of all of squad, and 34 of a tenth of it.

    Args:
        segment: the segment.
        k: number of hits.
        n_allowed: number of documents that pass the filter; None: all.
    """
    rows = _rows_for(segment.quantizer, k) if segment.quantizer else None
    if rows is None:
        return usual_candidates(k)
    share = 1.0 if n_allowed is None else max(1, n_allowed) / segment.record.n_docs
    thinner: float = share**_THINNING
    return max(k, math.ceil(max(_LEAST, rows / rows_per_candidate(segment)) * thinner))


def _rows_for(quantizer: Quantizer, k: int) -> float | None:
    """Return the calibrated number of rows to rescore for k hits; None if nothing was calibrated."""
    setting = setting_for(quantizer.search_settings, k)
    if setting is not None:
        return setting.rows
    if quantizer.candidate_rows is None:
        return None
    growth: float = max(1.0, k / _MEASURED_K) ** _GROWTH
    return quantizer.candidate_rows * growth


def usual_candidates(k: int) -> int:
    """Documents to rescore for k hits where nothing was measured."""
    return max(_UNMEASURED_LEAST, _UNMEASURED_FACTOR * k)


def rows_per_candidate(segment: OpenSegment) -> float:
    """Centroids to ask for by their codes, for each document wanted: the more, the coarser the codes.

    With one bit a number (48 bytes of 384 numbers) 250 centroids hold .999 of the top 10 documents of squad, with
    half a bit .984, and 500 .995.
    """
    assert segment.quantizer is not None
    bits = 8 * segment.quantizer.code_bytes / segment.quantizer.input_dim
    most = segment.reader.n_rows / segment.record.n_docs
    return min(_ROWS_PER_CANDIDATE, most) * max(1.0, 1 / bits)


def _ranks(
    quantizer: Quantizer, rows: Floats, lists: Ints, codes: Codes, places: Ints, nearest: Ints
) -> npt.NDArray[np.int64]:
    """For each nearest row of each row that asks, how many rows may come before it by codes: like `nearest`."""
    asking = quantizer.rotate(rows[places])
    scores, lengths = np.empty((len(places), len(rows)), np.float32), np.empty(len(rows), np.float32)
    for low in range(0, len(rows), _BATCH_ROWS):
        part = slice(low, low + _BATCH_ROWS)
        decoded = decoded_vectors(quantizer, lists[part], codes[part])
        scores[:, part], lengths[part] = asking @ decoded.T, np.linalg.norm(decoded, axis=1)
    hide_neighbours(scores, places)
    rounding = ROUNDING * np.linalg.norm(asking, axis=1)[:, None] * lengths[nearest]
    own = np.take_along_axis(scores, nearest, axis=1) - rounding
    before = [(row[None] >= mine[:, None]).sum(axis=1) - 1 for row, mine in zip(scores, own, strict=True)]
    return np.array(before, np.int64)
