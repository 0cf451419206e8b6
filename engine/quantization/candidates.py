"""Default numbers of documents that stage 2 rescores, calibrated when a quantizer is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from quarry.engine.options import uncalibrated_candidates
from quarry.engine.quantization.held_out import (
    ROUNDING,
    TakeQueries,
    find_nearest_rows,
    has_enough_queries,
    mask_neighbors,
)
from quarry.engine.scoring.stored_vectors import decode_codes
from quarry.formats.arrays import Float32Array, Float64Array, Int64Array, UInt8Array
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.centroids import StoredBatch
from quarry.formats.vectors.quantizer import Quantizer, SearchSetting

__all__ = [
    "default_candidates",
    "find_setting",
    "measure_candidate_rows",
    "rows_per_candidate",
]


_SHARE = 0.995  # with most of the lists, .99 of both together takes more
_DENSER = 2  # as many more rows rank between in the collection, see `measure_candidate_rows`
_N_HELD_OUT = 256  # rows as queries
_N_NEAREST = 10  # rows of each that must be found
_MEASURED_K = 10  # hits that the number of candidates is measured for
_GROWTH = 0.62  # exponent of rows by hits, from 10 to 100 hits, if only one number of hits was calibrated
_THINNING = 1 / 6  # exponent of candidates by the share of the documents that pass a filter
_PER_HIT_BY_DISTANCE = 4  # of codes; found .995 of 100 hits, and 2 found .973 of 200
_LEAST_OF_CODES = 60  # if only codes are stored, which stage 1 does not order by their final scores
_LEAST = 30  # fewer save less time than the rest of a search takes
_BATCH_ROWS = 2048  # decoded at a time
_TABLE_NBITS, _TABLE_STEPS = 4, 255  # of sub-quantizers that FAISS scans, and of its tables of scores
_ROWS_PER_CANDIDATE = 2.5  # centroids requested for each candidate, if documents have several


def find_setting(settings: Sequence[SearchSetting], k: int) -> SearchSetting | None:
    """Return the setting for k hits; None if nothing was calibrated.

    Fewer hits than were calibrated use the setting of the smallest calibrated k. Between two values of k, and
    beyond the last one, nprobe and rows are powers of k through the two nearest calibrated settings.

    Args:
        settings: calibrated settings, by ascending k.
        k: number of hits.
    """
    if not settings or k <= settings[0].k:
        return settings[0] if settings else None
    if len(settings) == 1:
        only = settings[0]
        return SearchSetting(k, only.nprobe, math.ceil(only.rows * (k / only.k) ** _GROWTH))
    above = next((place for place, each in enumerate(settings) if each.k >= k), len(settings) - 1)
    low, high = settings[above - 1], settings[above]
    share = math.log(k / low.k) / math.log(high.k / low.k)
    return SearchSetting(k, _interpolate(low.nprobe, high.nprobe, share), _interpolate(low.rows, high.rows, share))


def _interpolate(low: int, high: int, share: float) -> int:
    """Interpolate, or extrapolate for shares above 1, on a logarithmic scale; the result is at least `low`."""
    value: float = low * (high / low) ** share
    return max(low, math.ceil(value - 1e-9))


def measure_candidate_rows(
    quantizer: Quantizer,
    sample: Float32Array | StoredBatch,
    lists: Int64Array,
    codes: UInt8Array,
    take_queries: TakeQueries | None = None,
    decoded: Float32Array | None = None,
    n_rows: int | None = None,
    n_held_out: int = _N_HELD_OUT,
) -> int | None:
    """Measure how many rows with the best scores by their codes contain .995 of the ten nearest rows.

    Held-out rows of the sample are the queries. The rank of their nearest rows by codes hardly depends on the size
    of the sample, but in the collection more rows rank between: .995 took 84 rows of the sample of squad, and 125
    rows of the collection with real questions and ten documents; 253 and 300 of a collection of abstracts. If only
    some lists are read, both numbers are larger; twice the rows of the sample find .99 altogether.

    A query counts only if its ten nearest rows are separated from the others. Ties count against the codes: a row
    whose score by its code is equal to that of a nearest row, or lower by no more than rounding, is ranked before
    it, and as many of them in the whole collection as their share of the sample. So codes that do not distinguish
    rows, such as those of many similar documents, find nothing before all of them, and the number is nearly the
    same on every CPU.

    Args:
        quantizer: encoded the rows.
        sample: (n, dim) float32 training rows in the order of their documents.
        lists: (n,) int64, the list of each.
        codes: (n, code_bytes) uint8, the code of each.
        take_queries: returns rows of the sample as queries; None: rows and queries are alike.
        decoded: (n, dim) float32 decoded vectors, whose best rows are to be found; None: those of the sample.
        n_rows: number of rows of the collection; None: as many as in the sample.
        n_held_out: number of queries.

    Returns:
        The number of rows; None if too few queries count, as in a sample of equal vectors.
    """
    take_queries = take_queries or sample.__getitem__

    def take_rotated(places: Int64Array) -> Float32Array:
        return quantizer.rotate(take_queries(places))

    compared = sample if decoded is None else decoded
    places, nearest, _, is_separated = find_nearest_rows(
        compared, take_queries, n_held_out, _N_NEAREST, quantizer.distances
    )
    if not has_enough_queries(is_separated):
        return None
    queries = take_rotated(places[is_separated])
    tied_share = max(1.0, (n_rows or 0) / len(sample) / _DENSER)
    before = _count_before(
        quantizer, queries, lists, codes, places[is_separated], nearest[is_separated], tied_share
    )
    ranks = np.sort(before.ravel())
    return _DENSER * math.ceil(float(ranks[math.ceil(_SHARE * len(ranks)) - 1]) + 1)


def default_candidates(segment: OpenSegment, k: int, n_allowed: int | None = None) -> int:
    """Return how many documents of a segment to rescore if the query does not set it.

    It is the number calibrated with queries, if there is one. In an index of version 1.0, or one built without an
    encoder, it is the number calibrated with rows of the training sample for ten hits, times a power of k: if
    ten hits took 54 and 162 candidates, one took 6 and 25, 30 took 132 and 375, and 100 took 372 and 839 (squad,
    abstracts). Fewer than ten hits use the number for ten. With a filter fewer candidates are needed: ten hits
    took 54 candidates of all of squad, and 34 of a tenth of it. If the final scores of codes are not
    those of stage 1, as many documents are rescored as rows were calibrated.

    Args:
        segment: the segment.
        k: number of hits.
        n_allowed: number of documents that pass the filter; None: all.
    """
    rows = _rows_for(segment.quantizer, k) if segment.quantizer else None
    if rows is None:
        return uncalibrated_candidates(k)
    share = 1.0 if n_allowed is None else max(1, n_allowed) / segment.reader.passages.n_passages
    thinner: float = share**_THINNING
    if _ranks_again(segment):
        per_hit = _PER_HIT_BY_DISTANCE * k if segment.distance_dim is not None else 0
        n_docs: float = max(_LEAST_OF_CODES, rows, per_hit)
    else:
        n_docs = max(_LEAST, rows / rows_per_candidate(segment))
    return max(k, math.ceil(n_docs * thinner))


def _ranks_again(segment: OpenSegment) -> bool:
    """Whether codes are all that is stored, but are not ranked by the inner products of stage 1 in the end."""
    quantizer = segment.quantizer
    if quantizer is None or segment.reader.centroids.kind != "none":
        return False
    return quantizer.unit_length or quantizer.distances is not None


def _rows_for(quantizer: Quantizer, k: int) -> float | None:
    """Return the calibrated number of rows to rescore for k hits; None if nothing was calibrated."""
    setting = find_setting(quantizer.search_settings, k)
    if setting is not None:
        return setting.rows
    if quantizer.candidate_rows is None:
        return None
    growth: float = max(1.0, k / _MEASURED_K) ** _GROWTH
    return quantizer.candidate_rows * growth


def rows_per_candidate(segment: OpenSegment) -> float:
    """Return how many centroids to find by their codes for each candidate: the coarser the codes, the more.

    With one bit per dimension (48 bytes for 384) 250 centroids contained .999 of the top ten documents of squad;
    with half a bit 250 contained .984, and 500 contained .995.
    """
    assert segment.quantizer is not None
    bits = 8 * segment.quantizer.code_bytes / segment.quantizer.input_dim
    most = segment.reader.n_rows / segment.reader.passages.n_passages
    return min(_ROWS_PER_CANDIDATE, most) * max(1.0, 1 / bits)


def _count_before(
    quantizer: Quantizer,
    rotated: Float32Array,
    lists: Int64Array,
    codes: UInt8Array,
    places: Int64Array,
    nearest: Int64Array,
    tied_share: float,
) -> Float64Array:
    """Return how many rows may be ranked before each nearest row of each query by their codes: like `nearest`.

    Args:
        quantizer: encoded the rows.
        rotated: (b, dim) float32 queries, rotated if the quantizer has a rotation.
        lists: (n,) int64, the list of each row.
        codes: (n, code_bytes) uint8, the code of each row.
        places: (b,) int64, the rows that the queries are.
        nearest: (b, n_nearest) int64, the rows nearest to each query.
        tied_share: how many rows each counts for whose score is that of the nearest row, up to rounding.
    """
    best = decode_codes(quantizer, lists[nearest.ravel()], codes[nearest.ravel()]).reshape(*nearest.shape, -1)
    rounding = ROUNDING * np.linalg.norm(rotated, axis=1)[:, None] * np.linalg.norm(best, axis=2)
    if quantizer.distances is not None and quantizer.nbits == _TABLE_NBITS:
        rounding = rounding + _table_rounding(quantizer, rotated)[:, None]
    exact = np.einsum("bd,bnd->bn", rotated, best)
    before = np.full(nearest.shape, -tied_share)  # which counts the row itself
    for low in range(0, len(lists), _BATCH_ROWS):
        part = slice(low, low + _BATCH_ROWS)
        scores = rotated @ decode_codes(quantizer, lists[part], codes[part]).T
        mask_neighbors(scores, places, low)
        for number in range(nearest.shape[1]):
            own, error = exact[:, number, None], rounding[:, number, None]
            n_better = np.count_nonzero(scores > own + error, axis=1)
            n_tied = np.count_nonzero(scores >= own - error, axis=1) - n_better
            before[:, number] += n_better + tied_share * n_tied
    return before


def _table_rounding(quantizer: Quantizer, rotated: Float32Array) -> Float32Array:
    """Return how far scores of 4-bit codes may be apart that FAISS sums to the same number: (b,) float32.

    It rounds the scores of sub-vectors to 8 bits of the widest range of one sub-quantizer. For distances this is
    the one with the squared norms: if these differ widely, they hide the rest.

    Args:
        quantizer: the quantizer of the codes.
        rotated: (b, dim) float32 queries, rotated if the quantizer has a rotation.
    """
    book = quantizer.score_codebook
    scores = np.einsum("mkd,bmd->bmk", book, rotated.reshape(len(rotated), len(book), -1))
    widest = np.ptp(scores, axis=2).max(axis=1)
    rounding: Float32Array = widest / _TABLE_STEPS * np.float32(math.sqrt(len(book)) / 2)
    return rounding
