"""The contract of backends: the answers of the reference in numpy, or nearly, for small indexes of all types."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from quarry.engine import Engine, Hits, build
from quarry.engine.backends.protocol import BackendType, Resources, SearchParameters
from quarry.engine.backends.selection import choose_backends
from quarry.engine.gpu.device import Device
from quarry.engine.options import OpenOptions
from quarry.engine.thresholds import Thresholds
from quarry.formats.arrays import Float32Array
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

__all__ = ["BackendContract"]

_DIM = 32
_N_DOCS = 400  # in the first segment; the second has 100
_K = 10
_EVERYTHING = 1 << 20
_SMALL = Thresholds(calibration_queries=16, list_rows=300, graph_rows=100)


class BackendContract:
    """Tests of a backend, given by a fixture ``backend``: its class, or a registered name.

    Attributes:
        least_recall: the share of the ten best documents that searches find on average.
        stored: the types of stored vectors that it is tested with.
        device: as for `Engine.open`.
    """

    least_recall: ClassVar[float] = 0.9
    stored: ClassVar[tuple[str, ...]] = ("int8", "none")
    device: ClassVar[str | None] = None

    @pytest.fixture(scope="class")
    @classmethod
    def folders(cls, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
        """An index with two segments and deleted documents for each type of stored vectors."""
        made = {}
        for stored in cls.stored:
            path = made[stored] = tmp_path_factory.mktemp("index") / stored
            documents = _documents()
            settings: Any = {"centroids": stored, "code_bytes": 16}
            build(documents[:_N_DOCS], path, dim=_DIM, metric="cosine", thresholds=_SMALL, **settings)
            with Engine.open(path, writable=True, thresholds=_SMALL) as index:
                index.add(documents[_N_DOCS:])
                index.commit()
                index.delete(str(number) for number in range(0, len(documents), 7))
                index.commit()
                index.optimize()
        return made

    @pytest.fixture
    def opened(
        self, backend: str | BackendType, folders: dict[str, Path]
    ) -> Iterator[list[tuple[Engine, Engine]]]:
        """Each index, opened with the backend and with the reference."""
        pairs = []
        for path in folders.values():
            tested = Engine.open(path, backend=backend, device=self.device, thresholds=_SMALL)
            pairs.append((tested, Engine.open(path, backend="exact", thresholds=_SMALL)))
        yield pairs
        for pair in pairs:
            for index in pair:
                index.close()

    def test_scores_are_those_of_the_reference(self, opened: list[tuple[Engine, Engine]]) -> None:
        for tested, reference in opened:
            for hits, all_hits in zip(_search(tested), _search(reference, k=_EVERYTHING), strict=True):
                scores = {hit.id: hit.score for hit in all_hits}
                np.testing.assert_allclose(
                    [hit.score for hit in hits], [scores[each] for each in _ids(hits)], atol=1e-5
                )
                assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)

    def test_the_best_documents_are_found(self, opened: list[tuple[Engine, Engine]]) -> None:
        for tested, reference in opened:
            answers, best = _search(tested), _search(reference)
            shares = [len({*_ids(one)} & {*_ids(other)}) / _K for one, other in zip(answers, best, strict=True)]
            assert np.mean(shares) >= self.least_recall
            for one, other in zip(answers, best, strict=True):
                assert one.exactness != "exact" or _ids(one) == _ids(other)

    def test_filters_leave_k_documents(self, opened: list[tuple[Engine, Engine]]) -> None:
        for tested, _ in opened:
            for hits in _search(tested, filter={"even": True}):
                assert len({*_ids(hits)}) == _K
                assert all(int(each) % 2 == 0 for each in _ids(hits))
            one_live = {"id": {"$in": ["1", "0"]}}  # "0" was deleted
            assert {len(hits) for hits in _search(tested, filter=one_live)} == {1}

    def test_more_hits_than_there_are_documents(self, opened: list[tuple[Engine, Engine]]) -> None:
        for tested, _ in opened:
            for k in (len(tested) - 1, len(tested), _EVERYTHING):
                for hits in tested.search_vectors(_queries(2), k=k):
                    assert len({*_ids(hits)}) == min(k, len(tested))

    def test_a_query_of_zeros_finds_k_documents(self, opened: list[tuple[Engine, Engine]]) -> None:
        for tested, _ in opened:
            for k in (3, 200):
                (hits,) = tested.search_vectors(np.zeros((1, _DIM)), k=k)
                assert len({*_ids(hits)}) == k
                assert {hit.score for hit in hits} == {0.0}

    def test_batches_are_single_queries(self, opened: list[tuple[Engine, Engine]]) -> None:
        for tested, _ in opened:
            single = [tested.search_vectors(query[None], k=_K)[0] for query in _queries()]
            assert _search(tested) == single
            assert tested.search_vectors(np.empty((0, _DIM))) == []

    def test_searches_at_once_answer_as_each_alone(self, opened: list[tuple[Engine, Engine]]) -> None:
        for tested, _ in opened:
            batches = [_queries(n, seed) for n, seed in ((1, 21), (7, 22), (30, 24))]
            with ThreadPoolExecutor(2) as pool:
                at_once = list(pool.map(lambda batch: tested.search_vectors(batch, k=7), batches * 2))  # noqa: B023
            assert at_once == [tested.search_vectors(batch, k=7) for batch in batches] * 2

    def test_candidates_keep_the_contract(self, backend: str | BackendType, folders: dict[str, Path]) -> None:
        """Candidates are numerous, distinct, live and allowed."""
        options = OpenOptions(backend=backend, device=self.device, thresholds=_SMALL)
        for path in folders.values():
            snapshot = Snapshot(Directory(path))
            segment = snapshot.segments[0]
            (choice,) = choose_backends([segment], options)
            made = choice.adapter.open(choice.backend, segment, Resources(device=Device(self.device)))
            assert made.resident_bytes >= 0
            assert made.device_bytes >= 0
            live = np.ones(segment.record.n_docs, bool) if segment.deleted is None else ~segment.deleted
            for allowed in (None, live & (np.arange(len(live)) % 3 == 0), np.zeros(len(live), bool)):
                findable = live if allowed is None else allowed
                for k, n in ((1, 1), (10, 100), (int(findable.sum()) + 1, _EVERYTHING)):
                    for candidates in made.candidates(_queries(3), SearchParameters(k, n, None, 2, allowed)):
                        assert candidates.docs.dtype == np.int64
                        assert len(np.unique(candidates.docs)) == len(candidates.docs)
                        assert len(candidates.docs) >= min(k, int(findable.sum()))
                        assert findable[candidates.docs].all()
            snapshot.close()


def _documents() -> list[dict[str, object]]:
    """Return documents of one to four vectors in clusters; every fiftieth is a copy of the one before."""
    generator = np.random.default_rng(3)
    centres = generator.standard_normal((30, _DIM))
    documents: list[dict[str, object]] = []
    for number in range(_N_DOCS + 100):
        rows = centres[generator.integers(0, 30, generator.integers(1, 5))]
        vectors = rows + 0.3 * generator.standard_normal(rows.shape)
        if number % 50 == 49:
            vectors = np.asarray(documents[-1]["vectors"])
        documents.append({"id": str(number), "vectors": vectors, "metadata": {"even": number % 2 == 0}})
    return documents


def _queries(n: int = 20, seed: int = 5) -> Float32Array:
    return np.random.default_rng(seed).standard_normal((n, _DIM)).astype(np.float32)


def _search(index: Engine, k: int = _K, **options: Any) -> list[Hits]:  # noqa: ANN401
    return index.search_vectors(_queries(), k=k, **options)


def _ids(hits: Hits) -> list[str]:
    return [hit.id for hit in hits]
