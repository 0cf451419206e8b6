"""Dense search over a snapshot in two stages: candidates of each segment, exact scores, the best k of all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from quarry.engine.backends.protocol import (
    Accelerator,
    Backend,
    BoundedCandidates,
    Candidates,
    DeviceBackend,
    Resources,
    RowCandidates,
    ScoredCandidates,
    SearchParameters,
)
from quarry.engine.backends.selection import Choice, choose_backends
from quarry.engine.filtering.evaluation import Allowed, AllowedDocs
from quarry.engine.options import OpenOptions, SearchOptions, uncalibrated_candidates
from quarry.engine.quantization.candidates import default_candidates
from quarry.engine.scoring.aggregation import Rescorer, kth_largest
from quarry.engine.scoring.query_vectors import Queries, to_host_vectors
from quarry.engine.scoring.ranking import Exactness, Ranking, merge_rankings
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.errors import BackendUnavailable, InvalidSetting
from quarry.formats.segment import SegmentReader
from quarry.formats.snapshot import OpenSegment, Snapshot

__all__ = ["Searcher"]

_MAX_STALE_SHARE = 0.05  # documents deleted since a backend was opened; if there are more it is opened again
_LIKELY_DIVISOR = 2  # half of the candidates are rescored if their best rows are known
_WIDENING = 4  # factor of the number of candidates if the first ones do not prove an exact answer

_log = logging.getLogger(__name__)


class Searcher:
    """Searches one snapshot; safe to use from several threads.

    Backends are opened when they are first used.

    Args:
        snapshot: the snapshot.
        options: backend, device and number of threads.
        room_bytes: main memory that backends may hold; None: no limit.
        device: the device of backend "gpu"; None: the first CUDA device.
        before: searcher of another generation with the same options, whose backends are reused for the same files.

    Raises:
        InvalidSetting: the requested backend needs more memory.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        options: OpenOptions,
        room_bytes: int | None = None,
        device: Accelerator | None = None,
        before: Searcher | None = None,
    ) -> None:
        resources = Resources(options.n_threads, device, options.thresholds.graph_step_rows)
        self._n_threads = options.n_threads
        self._beta = snapshot.manifest.settings.beta
        choices = choose_backends(snapshot.segments, options, room_bytes)
        known = before.by_file() if before else {}
        self._segments = [
            known[segment.reader].next_generation(segment, choice)
            if segment.reader in known
            else _SegmentSearcher(_SegmentBackend(segment, options, resources, choice), self._beta)
            for segment, choice in zip(snapshot.segments, choices, strict=True)
        ]

    def search(
        self,
        queries: Queries,
        options: SearchOptions,
        allowed: AllowedDocs | None = None,
        *,
        n_candidates: int | None = None,
        keep_ties: bool = False,
    ) -> list[Ranking]:
        """Return the best documents for each query, with exact scores.

        Args:
            queries: (n_queries, dim) float32; queries on a device are passed on to backends that accept them.
            options: options of the search.
            allowed: for each segment the documents that may be found; None: all.
            n_candidates: number of candidates, all of which are returned; None: candidates as `options` say, of
                which the best `options.n_retrieved` are returned.
            keep_ties: whether all documents that tie with the last one are returned too.
        """
        if not len(queries):
            return []
        batch = _QueryBatch(queries)
        if not self._segments:
            _ = batch.host  # nothing else validates queries on a device
        n_kept = n_candidates or options.n_retrieved
        masks: AllowedDocs = [None] * len(self._segments) if allowed is None else allowed
        answers = []
        for segment, docs in zip(self._segments, masks, strict=True):
            stop_if_cancelled()
            parameters = SearchParameters(
                k=options.n_retrieved,
                n=n_candidates or options.candidates or segment.default_candidates(options.n_retrieved, docs),
                nprobe=options.nprobe,
                threads=self._n_threads,
                allowed=docs.flags if docs else None,
                beta=self._beta,
            )
            answers.append(segment.search(batch, parameters, n_kept))
        return [
            _merge([answer[number] for answer in answers], n_kept, keep_ties) for number in range(len(queries))
        ]

    @property
    def choices(self) -> list[Choice]:
        """The backend of each segment, and why it was chosen."""
        return [segment.backend.choice for segment in self._segments]

    @property
    def backends(self) -> list[Backend | None]:
        """The backend of each segment; None if it is not open yet."""
        return [segment.backend.opened for segment in self._segments]

    def by_file(self) -> dict[SegmentReader, _SegmentSearcher]:
        """Return the searcher of each segment by the reader of its file."""
        return {segment.backend.segment.reader: segment for segment in self._segments}

    @property
    def resident_bytes(self) -> int:
        """Main memory of the open backends."""
        return sum(backend.resident_bytes for backend in self.backends if backend)

    @property
    def device_bytes(self) -> int:
        """Memory of accelerators that the open backends hold."""
        return sum(backend.device_bytes for backend in self.backends if backend)

    def rescorer(self, segment: int) -> Rescorer:
        """Return what computes exact scores of documents of a segment, given its number."""
        return self._segments[segment].rescorer


class _QueryBatch:
    """The queries of a search: on a device they are copied to main memory, and validated there, at most once."""

    def __init__(self, values: Queries) -> None:
        self.values = values

    @cached_property
    def host(self) -> Float32Array:
        """(n, dim) float32 in main memory."""
        return to_host_vectors(self.values)

    def select(self, number: int) -> _QueryBatch:
        """Return one of the queries as a batch."""
        return _QueryBatch(self.values[number : number + 1])


class _SegmentBackend:
    """The backend of one segment: opened when it is first used; if "auto" chose it, replaced when it fails.

    Attributes:
        segment: the segment.
        choice: the backend that was chosen.
        opened: the backend; None if it is not open.
    """

    def __init__(
        self,
        segment: OpenSegment,
        options: OpenOptions,
        resources: Resources,
        choice: Choice,
        opened: tuple[Backend, OpenSegment] | None = None,
    ) -> None:
        self.segment = segment
        self.choice = choice
        self.opened: Backend | None = opened[0] if opened else None
        self._opened_for = opened[1] if opened else segment
        is_stale = self._opened_for.record.n_deleted < segment.record.n_deleted
        self._live = segment.live_passages if is_stale and segment.deleted is not None else None
        self._failed: list[str] = []  # backends that "auto" does not choose again
        self._options = options
        self._resources = resources
        self._lock = threading.Lock()

    def next_generation(self, segment: OpenSegment, choice: Choice) -> _SegmentBackend:
        """Return the backend for another generation of the segment, opened unless it would miss many deletions."""
        opened, n_missed = self.opened, segment.record.n_deleted - self._opened_for.record.n_deleted
        is_usable = choice.backend == self.choice.backend and n_missed <= _MAX_STALE_SHARE * segment.record.n_docs
        known = (opened, self._opened_for) if opened and is_usable else None
        return _SegmentBackend(segment, self._options, self._resources, choice, known)

    def candidates(self, queries: _QueryBatch, parameters: SearchParameters) -> Sequence[Candidates]:
        """Find candidates for queries; see `quarry.engine.backends.protocol.Backend`."""
        if parameters.allowed is None:
            parameters = replace(parameters, allowed=self._live)
        while True:
            backend = self._open()
            try:
                if (
                    not isinstance(queries.values, np.ndarray)
                    and isinstance(backend, DeviceBackend)
                    and backend.accepts(queries.values)
                ):
                    return backend.candidates(queries.values, parameters)
                return backend.candidates(queries.host, parameters)
            except BackendUnavailable as error:
                with self._lock:
                    if self.opened is backend:
                        self._choose_another(error)
                        self.opened = None

    def _open(self) -> Backend:
        opened = self.opened
        if opened is None:
            with self._lock:
                opened = self.opened
                if opened is None:
                    self.opened = opened = self._open_chosen()
        return opened

    def _open_chosen(self) -> Backend:
        """Open the chosen backend, or if "auto" chose one that does not work here, the next best."""
        while True:
            try:
                return self.choice.adapter.open(self.choice.backend, self.segment, self._resources)
            except (BackendUnavailable, InvalidSetting) as error:
                self._choose_another(error)

    def _choose_another(self, error: BackendUnavailable | InvalidSetting) -> None:
        """Choose the next best backend with no more memory than the failed one; raise if there is none."""
        name = self.choice.backend
        if self._options.backend != "auto" or self.choice.adapter.is_fallback:
            raise error
        self._failed.append(name)
        room_bytes = None if self._options.memory_bytes is None else self.choice.needed_bytes
        self.choice = choose_backends([self.segment], self._options, room_bytes, self._failed)[0]
        _log.warning("backend %s instead of %s: %s", self.choice.backend, name, error)


class _Scored(NamedTuple):
    """Documents of one segment with their final scores, in any order."""

    docs: Int64Array
    scores: Float32Array
    exactness: Exactness


class _SegmentSearcher:
    """Both stages of the search in one segment."""

    def __init__(self, backend: _SegmentBackend, beta: float | None, rescorer: Rescorer | None = None) -> None:
        self.backend = backend
        self.rescorer = rescorer or Rescorer(backend.segment, beta)
        self._beta = beta

    def next_generation(self, segment: OpenSegment, choice: Choice) -> _SegmentSearcher:
        """Return the searcher of another generation of the segment."""
        backend = self.backend.next_generation(segment, choice)
        return _SegmentSearcher(backend, self._beta, self.rescorer)

    def default_candidates(self, k: int, allowed: Allowed | None) -> int:
        """Return the default number of documents to rescore for k hits."""
        if not self.backend.choice.adapter.uses_codes:
            return uncalibrated_candidates(k)
        return default_candidates(self.backend.segment, k, allowed.n if allowed else None)

    def search(self, queries: _QueryBatch, parameters: SearchParameters, n_kept: int) -> list[_Scored]:
        """Return for each query at least the best `n_kept` documents."""
        candidates = self.backend.candidates(queries, parameters)
        return [
            self._rescore_until_proven(queries, number, each, parameters, n_kept)
            for number, each in enumerate(candidates)
        ]

    def _rescore_until_proven(
        self, queries: _QueryBatch, number: int, candidates: Candidates, parameters: SearchParameters, n_kept: int
    ) -> _Scored:
        """Rescore candidates; given an upper bound, get more until no other document can be among the best."""
        stop_if_cancelled()
        docs, scores = self._rescore(queries, number, candidates, parameters, n_kept)
        while np.isfinite(candidates.upper_bound) and kth_largest(scores, parameters.k) <= candidates.upper_bound:
            stop_if_cancelled()
            parameters = replace(parameters, n=parameters.n * _WIDENING, threads=1)
            candidates = self.backend.candidates(queries.select(number), parameters)[0]
            docs, scores = self._rescore(queries, number, candidates, parameters, n_kept)
        return _Scored(docs, scores, candidates.exactness)

    def _rescore(
        self, queries: _QueryBatch, number: int, candidates: Candidates, parameters: SearchParameters, n_kept: int
    ) -> tuple[Int64Array, Float32Array]:
        """Return candidates with final scores, without those that cannot be among the best `n_kept`."""
        if isinstance(candidates, ScoredCandidates):
            return candidates.docs, self.rescorer.checked(candidates.scores)
        query = queries.host[number]
        if isinstance(candidates, BoundedCandidates):
            return self.rescorer.best_scores(query, candidates.docs, candidates.bounds, n_kept)
        if isinstance(candidates, RowCandidates):
            n = max(n_kept, parameters.n // _LIKELY_DIVISOR)
            return self.rescorer.likely_scores(query, candidates.docs, candidates.rows, n)
        return candidates.docs, self.rescorer.scores(query, candidates.docs)


def _merge(parts: list[_Scored], n: int, keep_ties: bool) -> Ranking:
    """Merge the documents of all segments into the n best."""
    ranking = merge_rankings([(part.docs, part.scores) for part in parts], n, keep_ties)
    exactness = Exactness.weakest(part.exactness for part in parts)
    return ranking._replace(dense=ranking.scores, exactness=exactness)
