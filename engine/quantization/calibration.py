"""Calibrates the default settings of searches for ten and for a hundred hits with queries, after training.

All rows of the collection are read once. For each query the best documents are kept, those that an exhaustive scan
of the index finds: by exact scores or, in an index of codes alone, by those of decoded codes; and the rows with
the best scores by their codes, with the rank of the list of each. They determine the recall of a search for every
pair of `nprobe` and number of rescored rows. The pair with the least cost that reaches the target recall is stored
with the quantizer. The computed recall differs from that of a search only by the rounding of look-up tables and by
documents that are not rescored in full: with 96 of 256 lists of squad it was .9910 and .9815, and searches reached
.9910 and .9797 (10 hits and 150 rows, 100 hits and 1000 rows).

The targets are close to 1 because a list that is not read may hold the best document of all (bench/README.md,
"Recall of the default search"). Queries about another subject than the documents find less. Ties count against the
quantizer, so that settings do not depend on the CPU; a collection of mostly equal vectors is not calibrated but
searched with cautious defaults.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from quarry.engine.quantization.coder import VectorCoder
from quarry.engine.quantization.held_out import ROUNDING, has_enough_queries
from quarry.engine.quantization.nprobe import list_ranks
from quarry.engine.scoring.stored_vectors import decode_codes, lengths_of, rotate_back
from quarry.formats.arrays import Float32Array, Float64Array, Int64Array
from quarry.formats.vectors.quantizer import Quantizer, SearchSetting

__all__ = ["calibrated"]


_TARGETS = {10: 0.997, 100: 0.991}  # hits -> recall; a margin over .995 and .99 for other kinds of queries
_TARGETS_OF_CODES = {10: 0.999, 100: 0.995}  # costs little: the nearest lists have nearly all of the best codes
_TARGETS_BESIDE_CODES = {10: 0.991, 100: 0.981}  # of the best by full vectors, in an index of codes alone
_CODED_ROWS_PER_HIT = 4  # least number of rows; look-up tables are rounded, which calibration does not see
_CODED_LISTS = 2  # times the lists that the sample needs: queries unlike it most often miss the best document
_MAX_ROWS = 1 << 14  # most rows kept for each query; if the target needs more, the codes are too coarse for it
_ROWS_FACTOR = 16  # rows kept, as a multiple of the estimate for ten hits by `candidates`
_MIN_ROWS = 1 << 10  # kept for each query, if the estimate is less
_STEPS = 8  # values of nprobe tried for each doubling
_GIVEN_UP = 0.001  # of the recall of all lists, if that is below the target
_CODES_PER_ROW = 100  # codes scanned in the time of one more rescored row


def calibrated(
    quantizer: Quantizer,
    batches: Iterable[tuple[Float32Array, Int64Array]],
    queries: Float32Array,
    threads: int,
    *,
    codes_only: bool = False,
    targets: Mapping[int, float] = _TARGETS,
    max_rows: int = _MAX_ROWS,
    codes_per_row: float = _CODES_PER_ROW,
) -> Quantizer:
    """Return the quantizer with search settings for a collection; unchanged if there are no queries.

    A query counts for k hits only if its best k documents are separated from all others by more than rounding.
    Scores of decoded codes are often equal: by these the first of equal documents count as the best, and a search
    that finds others of them has a higher recall than computed. Ties count against the quantizer: rows and lists
    whose scores are equal, up to rounding, are ranked before the wanted ones.

    In an index of codes alone the best documents are those with the largest score of a decoded code. Their final
    scores also have a share of the mean (`quarry.engine.scoring.stored_vectors.mean_share`), by which nearly the
    same are the best. Equal scores are common there, so that every query counts. If vectors have unequal lengths,
    the best documents by full vectors are found, too.

    Args:
        quantizer: a trained quantizer.
        batches: all rows of the collection: (n, dim) float32 rows and the (n,) int64 documents that own them,
            ascending within and across batches.
        queries: (n_queries, dim) float32.
        threads: number of threads for encoding rows.
        codes_only: the index stores no full vectors.
        targets: recall by the number of hits, if full vectors are stored.
        max_rows: most rows kept for each query.
        codes_per_row: codes scanned in the time of one more rescored row.

    Returns:
        A quantizer with a setting for ten hits and one for a hundred, each unless too few queries count. The
        measurements that readers of version 1.0 know, `candidate_rows` and `probe_recall`, are then those of the
        first setting, made with the same queries.
    """
    if not len(queries):
        return quantizer
    best = _BestOfCollection(quantizer, queries, threads, targets, max_rows, codes_only=codes_only)
    for vectors, docs in batches:
        best.add(vectors, docs)
    best.finish()
    settings: list[SearchSetting] = []
    least_nprobe = 1
    probe_recall: Float32Array | None = None
    for k in targets:  # ascending: a search for more hits reads no fewer lists than one for less
        searched = [(_find_wanted(best, aim, k), shares[k]) for aim, shares in best.aims()]
        wanted = [(each, target) for each, target in searched if each is not None]
        if not wanted:
            continue
        least = SearchSetting(k, least_nprobe, _CODED_ROWS_PER_HIT * k if codes_only else 1)
        setting = _largest(least, *(_cheapest_setting(best, *each, least, codes_per_row) for each in wanted))
        least_nprobe = setting.nprobe
        if codes_only:  # after `least_nprobe` was taken, or the factor would count once for each k
            setting = replace(setting, nprobe=min(quantizer.nlist, _CODED_LISTS * setting.nprobe))
        settings.append(setting)
        if probe_recall is None:
            probe_recall = np.min([each.list_recall(k) for each, _ in wanted], axis=0)
    if not settings:
        return quantizer
    return replace(
        quantizer,
        search_settings=tuple(settings),
        candidate_rows=settings[0].rows,
        probe_recall=probe_recall,
    )


class _TopScores:
    """The n largest scores of each query, with two labels of each.

    Args:
        n_queries: number of queries.
        n: number of scores kept for each.
    """

    def __init__(self, n_queries: int, n: int) -> None:
        self._n = n
        self._least = np.full(n_queries, -np.inf, np.float32)  # of the n largest, if there are n
        self._scores = [np.empty(0, np.float32) for _ in range(n_queries)]
        self._first, self._second = ([np.empty(0, np.int64) for _ in range(n_queries)] for _ in range(2))

    def add(self, scores: Float32Array, first: Int64Array, second: Int64Array) -> None:
        """Add (n_queries, b) float32 scores, whose columns have two (b,) int64 labels."""
        # After the first batches most scores are below the least that is kept, so few queries are touched.
        larger = scores > self._least[:, None]
        for query in np.flatnonzero(larger.any(axis=1)).tolist():
            new = np.flatnonzero(larger[query])
            columns = [
                np.concatenate([self._scores[query], scores[query, new]]),
                np.concatenate([self._first[query], first[new]]),
                np.concatenate([self._second[query], second[new]]),
            ]
            if len(columns[0]) >= self._n:
                kept = np.argpartition(-columns[0], self._n - 1)[: self._n]
                columns = [column[kept] for column in columns]
                self._least[query] = columns[0].min()
            self._scores[query], self._first[query], self._second[query] = columns

    def of(self, query: int) -> tuple[Float32Array, Int64Array, Int64Array]:
        """Return the scores of a query, descending, and their labels."""
        order = np.argsort(-self._scores[query], kind="stable")
        return self._scores[query][order], self._first[query][order], self._second[query][order]

    def least(self, query: int) -> float:
        """Return the score at or below which entries may have been dropped; -inf if none were."""
        return float(self._least[query])


class _BestOfCollection:
    """The best documents and rows of a collection for each query, gathered in one pass over its rows.

    Args:
        quantizer: encodes the rows.
        queries: (n_queries, dim) float32.
        threads: number of threads for encoding rows.
        targets: recall by the number of hits, if full vectors are stored.
        max_rows: most rows kept for each query.
        codes_only: documents are scored by their codes.

    Attributes:
        max_rows: see above.
        by_codes: best rows by the scores of their codes in stage 1, labeled with their documents and lists.
        list_ranks: (n_queries, nlist) int64, see `quarry.engine.quantization.nprobe.list_ranks`.
    """

    def __init__(
        self,
        quantizer: Quantizer,
        queries: Float32Array,
        threads: int,
        targets: Mapping[int, float],
        max_rows: int,
        *,
        codes_only: bool = False,
    ) -> None:
        estimated = _ROWS_FACTOR * (quantizer.candidate_rows or max_rows)
        self._documents, self._documents_by_codes = (_TopScores(len(queries), max(targets) + 1) for _ in range(2))
        self.by_codes = _TopScores(len(queries), min(max(estimated, _MIN_ROWS), max_rows))
        self._targets, self.max_rows = targets, max_rows
        self._queries = quantizer.extend_queries(queries)
        self._rotated = quantizer.rotate(self._queries)
        self.list_ranks = list_ranks(self._rotated, quantizer.coarse)
        self._list_sizes = np.zeros(quantizer.nlist, np.int64)
        self._quantizer, self._coder = quantizer, VectorCoder(quantizer, threads)
        self._open_doc = -1  # the last document, whose rows may continue in the next batch, and its scores so far
        self._open_scores = np.full((2, len(queries), 1), -np.inf, np.float32)
        self._lengths: list[float] = []
        self._codes_only = codes_only

    def add(self, vectors: Float32Array, docs: Int64Array) -> None:
        """Add the next (n, dim) float32 rows, n >= 1, and the (n,) int64 documents that own them."""
        vectors = self._quantizer.extend_rows(vectors)
        self._lengths.append(float(np.median(np.linalg.norm(vectors, axis=1))))
        lists, codes = self._coder.code(vectors)
        self._list_sizes += np.bincount(lists, minlength=len(self._list_sizes))
        decoded = decode_codes(self._quantizer, lists, codes)
        by_codes = self._rotated @ decoded.T
        self.by_codes.add(by_codes, docs, lists)
        if self._quantizer.unit_length:
            by_codes /= lengths_of(decoded)
        elif self._codes_only and self._quantizer.distances is not None:
            by_codes = self._queries @ self._quantizer.extend_rows(rotate_back(self._quantizer, decoded)).T
        self._add_documents(np.stack([self._queries @ vectors.T, by_codes]), docs)

    def _add_documents(self, scores: Float32Array, docs: Int64Array) -> None:
        """Add (2, n_queries, n) float32 scores of the next rows: exact ones, and those of the codes."""
        starts = np.flatnonzero(np.concatenate([[True], docs[1:] != docs[:-1]]))
        best, numbers = np.maximum.reduceat(scores, starts, axis=2), docs[starts]
        if numbers[0] == self._open_doc:
            best[..., 0] = np.maximum(best[..., 0], self._open_scores[..., 0])
        else:
            self.finish()
        for documents, scores_of_all in zip((self._documents, self._documents_by_codes), best, strict=True):
            documents.add(scores_of_all[:, :-1], numbers[:-1], numbers[:-1])
        self._open_doc, self._open_scores = int(numbers[-1]), best[..., -1:].copy()

    def finish(self) -> None:
        """Add the scores of the last document, after its last row."""
        if self._open_doc >= 0:
            number = np.array([self._open_doc])
            self._documents.add(self._open_scores[0], number, number)
            self._documents_by_codes.add(self._open_scores[1], number, number)
            self._open_doc = -1

    def aims(self) -> Iterator[tuple[_Aim, Mapping[int, float]]]:
        """Yield which documents are to be found, and the share of them by the number of hits.

        In an index of codes alone they are those with the best codes. Codes of vectors of unequal lengths are
        scored with a larger error, so there the best documents by full vectors are to be found, too; codes of
        vectors of length 1 rank these far behind others that are found instead.
        """
        if not self._codes_only:
            yield _Aim(self._documents, self.roundings()), self._targets
            return
        yield _Aim(self._documents_by_codes, np.full(len(self._queries), -1, np.float32)), _TARGETS_OF_CODES
        if not self._quantizer.unit_length:
            yield _Aim(self._documents, self.roundings()), _TARGETS_BESIDE_CODES

    def roundings(self) -> Float32Array:
        """Return for each query the difference of scores that rounding explains: (n_queries,) float32."""
        lengths: Float32Array = np.linalg.norm(self._queries, axis=1)
        return lengths * np.float32(ROUNDING * np.median(self._lengths))

    def rows_read(self) -> Float64Array:
        """Return the mean number of rows in the first i + 1 lists of a query: (nlist,) float64."""
        order = np.argsort(self.list_ranks, axis=1)
        read: Float64Array = np.cumsum(self._list_sizes[order], axis=1).mean(axis=0)
        return read


class _Aim(NamedTuple):
    """The best documents of each query, by one kind of scores.

    Attributes:
        documents: best documents.
        separations: (n_queries,) float32; a query counts for k hits if its k-th score exceeds the next by more.
    """

    documents: _TopScores
    separations: Float32Array


class _Wanted(NamedTuple):
    """The rows of the wanted documents among the best rows by codes.

    Attributes:
        ranks: (n_queries, n_kept) int64: the ranks of the lists of the kept rows, by descending score of their
            codes, padded with `nlist`.
        queries: (m,) int64, the line of `ranks` for each row of a wanted document.
        places: (m,) int64, which of the query's wanted documents owns it.
        own: (m,) int64, the rank of its list.
        before: (m,) int64, the number of kept rows that may be ranked before it by their codes, itself included.
        nlist: number of lists.
    """

    ranks: Int64Array
    queries: Int64Array
    places: Int64Array
    own: Int64Array
    before: Int64Array
    nlist: int

    def list_recall(self, k: int) -> Float32Array:
        """Return the share of the wanted documents with a kept row in the first i + 1 lists: (nlist,) float32."""
        nlist = self.nlist
        first = np.full((len(self.ranks), k), nlist)
        np.minimum.at(first, (self.queries, self.places), self.own)
        shares: Float32Array = (np.cumsum(np.bincount(first.ravel(), minlength=nlist + 1)) / first.size).astype(
            np.float32
        )
        return shares[:nlist]

    def needed(self, k: int, nprobe: int) -> Float64Array:
        """Return how many rows must be rescored to find each wanted document.

        Returns:
            (n,) float64, ascending; inf for a document that is not found with `nprobe` lists.
        """
        before = np.zeros((len(self.ranks), self.ranks.shape[1] + 1), np.int64)
        np.cumsum(self.ranks < nprobe, axis=1, out=before[:, 1:])
        rows = np.where(self.own < nprobe, before[self.queries, self.before], np.inf)
        n_rows = np.full((len(self.ranks), k), np.inf)
        np.minimum.at(n_rows, (self.queries, self.places), rows)
        return np.sort(n_rows.ravel())


def _find_wanted(best: _BestOfCollection, aim: _Aim, k: int) -> _Wanted | None:
    """Return the rows of the best k documents of each query that counts; None if too few queries count."""
    roundings, nlist = best.roundings(), best.list_ranks.shape[1]
    separated: list[bool] = []
    ranks: list[Int64Array] = []
    columns: list[Int64Array] = []
    for query, rounding in enumerate(roundings.tolist()):
        scores, docs, _ = aim.documents.of(query)
        separated.append(len(scores) > k and bool(scores[k - 1] - scores[k] > aim.separations[query]))
        if not separated[-1]:
            continue
        # Rows that were dropped may tie with the last kept ones, so rows within rounding of these do not count as
        # found; rows with scores equal up to rounding count as ranked before (`before`).
        by_codes, owners, lists = best.by_codes.of(query)
        order = np.argsort(docs[:k])
        places = np.minimum(np.searchsorted(docs[:k], owners, sorter=order), k - 1)
        places = order[places]
        rows = np.flatnonzero((docs[places] == owners) & (by_codes - rounding > best.by_codes.least(query)))
        before = np.searchsorted(-by_codes, rounding - by_codes[rows], side="right")
        own = best.list_ranks[query, lists]
        columns.append(np.stack([np.full(len(rows), len(ranks)), places[rows], own[rows], before]))
        ranks.append(own)
    if not has_enough_queries(np.array(separated, bool)):
        return None
    kept = np.full((len(ranks), max(map(len, ranks))), nlist, np.int64)
    for line, own in zip(kept, ranks, strict=True):
        line[: len(own)] = own
    of_query, places, own, before = np.concatenate(columns, axis=1)
    return _Wanted(kept, of_query, places, own, before, nlist)


def _largest(first: SearchSetting, *others: SearchSetting) -> SearchSetting:
    """Return the larger values of settings for the same number of hits."""
    every = (first, *others)
    return SearchSetting(first.k, max(each.nprobe for each in every), max(each.rows for each in every))


def _cheapest_setting(
    best: _BestOfCollection, wanted: _Wanted, target: float, least: SearchSetting, codes_per_row: float
) -> SearchSetting:
    """Return the cheapest setting with the target recall, or with nearly that of all lists if it is less.

    Args:
        best: the best documents of the collection.
        wanted: rows of the documents to find.
        target: share of the documents to find.
        least: the number of hits, and the least number of lists: that of fewer hits, so that their documents are
            found among more hits, too.
        codes_per_row: codes scanned in the time of one more rescored row.
    """
    k = least.k
    read = best.rows_read()
    reachable = float(np.isfinite(wanted.needed(k, wanted.nlist)).mean())
    # Codes that are too coarse miss the target even with all lists, and the last lists then gain next to nothing.
    target = min(target, max(0.0, reachable - _GIVEN_UP))
    cheapest, least_cost = SearchSetting(k, wanted.nlist, best.max_rows), math.inf
    for nprobe in _ladder(wanted.nlist):
        if nprobe < least.nprobe:
            continue
        needed = wanted.needed(k, nprobe)
        rows = needed[max(0, math.ceil(target * len(needed)) - 1)]
        cost = read[nprobe - 1] + codes_per_row * rows
        if cost < least_cost:
            cheapest, least_cost = SearchSetting(k, nprobe, max(1, int(rows))), cost
    return cheapest


def _ladder(nlist: int) -> Iterator[int]:
    """Yield the values of nprobe to try, ascending by about a twelfth, from 1 to `nlist`."""
    steps = math.ceil(_STEPS * math.log2(nlist)) if nlist > 1 else 0
    yield from sorted({round(nlist ** (step / max(1, steps))) for step in range(steps + 1)})
