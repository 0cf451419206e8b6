"""Two-stage search over a snapshot: candidates from each segment, exact scores, the best k of all."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from quarry.engine.backends.protocol import Backend, Candidates, DeviceBackend, Resources, Wanted
from quarry.engine.backends.registry import open_backend
from quarry.engine.backends.selection import LAST_RESORTS, Choice, choose_backends
from quarry.engine.filtering.allowed import Allowed, AllowedDocs
from quarry.engine.gpu.device import Device
from quarry.engine.gpu.device_vectors import DeviceVectors
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.quantization.candidates import default_candidates, usual_candidates
from quarry.engine.scoring.query_vectors import Queries, host_vectors
from quarry.engine.scoring.ranking import Exactness, Ranking, ranked
from quarry.engine.search.rescorer import Rescorer, kth_largest
from quarry.formats.errors import BackendUnavailable, InvalidSetting
from quarry.formats.snapshot import OpenSegment, Snapshot

__all__ = ["Searcher"]

_BY_CODES = ("cpu_faiss", "gpu")  # backends that choose by codes, where how many they should choose was measured
_UNKNOWN_SHARE = 0.05  # of documents deleted since a backend was opened from which on it is opened anew
_LIKELY = 2  # times as many candidates as are rescored in full, where it is known what they were found by
_WIDER = 4  # how many times more candidates where the first ones do not settle an exact answer

_log = logging.getLogger(__name__)
Query = npt.NDArray[np.float32]


class Searcher:
    """Searches one snapshot; safe to use from several threads.

    Backends are opened when they are first needed.

    Args:
        snapshot: what is searched.
        options: backend, device and threads.
        room_bytes: main memory that backends may hold; None: as much as they need.
        before: searcher of another generation, whose backends are reused for the segments that are the same.
        device: of backend "gpu"; None: as `options` say.

    Raises:
        InvalidSetting: the backend asked for needs more.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        options: OpenOptions,
        room_bytes: int | None = None,
        before: Searcher | None = None,
        device: Device | None = None,
    ) -> None:
        resources = Resources(options.n_threads, device or Device(options.device, options.device_bytes))
        self._options = options
        self._beta = snapshot.manifest.settings.beta
        choices = choose_backends(snapshot.segments, options, room_bytes)
        self._segments = [
            _SegmentSearcher(segment, options, resources, self._beta, choice)
            for segment, choice in zip(snapshot.segments, choices, strict=True)
        ]
        known = {each.segment.reader: each for each in before._segments} if before else {}
        for each in self._segments:
            if each.segment.reader in known:
                each.take_over(known[each.segment.reader])

    def search(
        self, queries: Queries, options: SearchOptions, allowed: AllowedDocs | None = None
    ) -> list[Ranking]:
        """The best k documents for each query.

        Args:
            queries: (n_queries, dim) float32; those on a device go to the backends that take them.
            options: of the search.
            allowed: for each segment the documents that may be found; None: all.
        """
        return self.candidates(queries, options.candidates, options.k, options, allowed)

    def candidates(
        self,
        queries: Queries,
        n: int | None,
        n_kept: int,
        options: SearchOptions,
        allowed: AllowedDocs | None = None,
        keep_ties: bool = False,
    ) -> list[Ranking]:
        """The best `n_kept` of n documents looked at for each query, k at least, with their exact scores.

        None for n is what was measured for k hits of each segment. With `keep_ties` all documents that tie with
        the last one are kept too.
        """
        if not len(queries):
            return []
        each: AllowedDocs = [None] * len(self._segments) if allowed is None else allowed
        answers = []
        for segment, docs in zip(self._segments, each, strict=True):
            wanted = Wanted(
                k=options.k,
                n=n or segment.default_candidates(options.k, docs),
                nprobe=options.nprobe,
                threads=self._options.n_threads,
                allowed=docs.flags if docs else None,
                beta=self._beta,
            )
            answers.append(segment.search(queries, wanted, n_kept))
        return [
            _merged([answer[number] for answer in answers], n_kept, keep_ties) for number in range(len(queries))
        ]

    @property
    def choices(self) -> list[Choice]:
        """Which backend searches each segment, and why."""
        return [segment.choice for segment in self._segments]

    @property
    def resident_bytes(self) -> int:
        """Main memory of the backends that are open."""
        return sum(backend.resident_bytes for backend in self._backends())

    @property
    def device_bytes(self) -> int:
        """Memory of accelerators that the backends that are open hold."""
        return sum(backend.device_bytes for backend in self._backends())

    def _backends(self) -> list[Backend]:
        return [segment.opened for segment in self._segments if segment.opened]

    def scores(self, query: Query, segment: int, docs: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Exact aggregated scores of documents of one segment: (len(docs),) float32."""
        return self._segments[segment].rescorer.scores(query, docs)

    def centroid_scores(self, query: Query, segment: int, doc: int) -> npt.NDArray[np.float32]:
        """Scores of the centroids of one document."""
        return self._segments[segment].rescorer.centroid_scores(query, doc)


class _Scored(NamedTuple):
    """Documents of one segment with their scores, unordered."""

    docs: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    exactness: Exactness


class _SegmentSearcher:
    def __init__(
        self,
        segment: OpenSegment,
        options: OpenOptions,
        resources: Resources,
        beta: float | None,
        choice: Choice,
    ) -> None:
        self.segment = segment
        self._options = options
        self._resources = resources
        self._lock = threading.Lock()
        self._allowed: npt.NDArray[np.bool_] | None = None  # where more is deleted than the backend knows
        self._opened_for = segment
        self.opened: Backend | None = None
        self.choice = choice
        self._failed: list[str] = []  # backends that "auto" does without
        self.rescorer = Rescorer(segment, beta)

    def take_over(self, before: _SegmentSearcher) -> None:
        """Use the backend that was opened for the same file, unless much was deleted since."""
        made_for, now = before._opened_for, self.segment
        n_unknown = now.record.n_deleted - made_for.record.n_deleted
        if (
            before.opened
            and before.choice.backend == self.choice.backend
            and n_unknown <= _UNKNOWN_SHARE * now.record.n_docs
        ):
            self.opened, self.rescorer, self._opened_for = before.opened, before.rescorer, made_for
            if n_unknown and now.deleted is not None:
                self._allowed = ~now.deleted

    def default_candidates(self, k: int, allowed: Allowed | None) -> int:
        """Documents to rescore for k hits, where a query does not say."""
        if self.choice.backend not in _BY_CODES:
            return usual_candidates(k)
        return default_candidates(self.segment, k, allowed.n if allowed else None)

    def search(self, queries: Queries, wanted: Wanted, n_kept: int) -> list[_Scored]:
        """What is found for each query, its best `n_kept` at least."""
        if wanted.allowed is None:
            wanted = replace(wanted, allowed=self._allowed)
        found = self._candidates(queries, wanted)
        return [self._settle(queries, number, first, wanted, n_kept) for number, first in enumerate(found)]

    def _candidates(self, queries: Queries, wanted: Wanted) -> list[Candidates]:
        """What the backend finds, or where "auto" chose one whose device fails, the next best."""
        while True:
            backend = self._backend()
            try:
                if (
                    isinstance(queries, DeviceVectors)
                    and isinstance(backend, DeviceBackend)
                    and backend.takes(queries)
                ):
                    return backend.candidates(queries, wanted)
                return backend.candidates(host_vectors(queries), wanted)
            except BackendUnavailable as error:
                with self._lock:
                    if self.opened is backend:
                        self._choose_another(error)
                        self.opened = None

    def _settle(self, queries: Queries, number: int, found: Candidates, wanted: Wanted, n_kept: int) -> _Scored:
        """Rescore; where the backend knows a ceiling, widen until no other document can win or tie."""
        docs, scores = self._rescored(queries, number, found, wanted, n_kept)
        while np.isfinite(found.ceiling) and kth_largest(scores, wanted.k) <= found.ceiling:
            wanted = replace(wanted, n=wanted.n * _WIDER, threads=1)
            found = self._candidates(queries[number : number + 1], wanted)[0]
            docs, scores = self._rescored(queries, number, found, wanted, n_kept)
        return _Scored(docs, scores, _exactness(found))

    def _rescored(
        self, queries: Queries, number: int, found: Candidates, wanted: Wanted, n_kept: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Candidates with their scores.

        Where each has a bound, not those that cannot be among the best; where it is known which centroids they
        were found by, those with the best of these, unless they are all documents of the lists that were read.
        """
        if found.scores is not None:
            return found.docs, found.scores
        query = host_vectors(queries)[number]
        if found.bounds is not None:
            return self.rescorer.best_scores(query, found.docs, found.bounds, n_kept)
        if found.rows is not None and not found.whole_lists:
            return self.rescorer.likely_scores(query, found.docs, found.rows, max(n_kept, wanted.n // _LIKELY))
        return found.docs, self.rescorer.scores(query, found.docs)

    def _backend(self) -> Backend:
        if self.opened is None:
            with self._lock:
                if self.opened is None:
                    self.opened = self._open()
        return self.opened

    def _open(self) -> Backend:
        """What was chosen, or where "auto" chose what does not work here, the next best."""
        while True:
            try:
                return open_backend(self.choice.backend, self.segment, self._resources)
            except (BackendUnavailable, InvalidSetting) as error:
                self._choose_another(error)

    def _choose_another(self, error: BackendUnavailable | InvalidSetting) -> None:
        """Put the next best in the place of a backend that failed, in the same memory; raise where none may be."""
        if self._options.backend != "auto" or self.choice.backend in LAST_RESORTS:
            raise error
        self._failed.append(self.choice.backend)
        room_bytes = None if self._options.memory_bytes is None else self.choice.needed_bytes
        self.choice = choose_backends([self.segment], self._options, room_bytes, self._failed)[0]
        _log.warning("backend %s instead of %s: %s", self.choice.backend, self._failed[-1], error)


def _merged(parts: list[_Scored], n: int, keep_ties: bool) -> Ranking:
    """The n best of all segments."""
    ranking = ranked([(part.docs, part.scores) for part in parts], n, keep_ties)
    exactness = Exactness.weakest(part.exactness for part in parts)
    return ranking._replace(dense=ranking.scores, exactness=exactness)


def _exactness(found: Candidates) -> Exactness:
    """Of candidates that are settled: where a ceiling is known, the k-th score is above it."""
    if found.ceiling < np.inf:
        return Exactness.EXACT
    return Exactness.PROBED_LISTS if found.whole_lists else Exactness.APPROXIMATE
