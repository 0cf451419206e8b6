from __future__ import annotations

import os
from dataclasses import fields

import numpy as np
import pytest

from quarry.engine.options import BuildKeywords, BuildOptions, OpenOptions, SearchKeywords, SearchOptions
from quarry.formats.errors import InvalidSetting


def test_numbers_of_numpy_become_plain_ones():
    found = SearchOptions(k=np.int64(5), candidates=np.uint16(7), dense_weight=np.float32(0.5))
    assert [(type(value), value) for value in (found.k, found.candidates, found.dense_weight)] == [
        (int, 5),
        (int, 7),
        (float, 0.5),
    ]
    assert type(BuildOptions(seed=np.int32(1)).seed) is int
    for wrong in (np.float64(5), np.True_, np.int64(0), np.array(5)):
        with pytest.raises(InvalidSetting, match="k is out of range"):
            SearchOptions(k=wrong)


@pytest.mark.parametrize(
    ("options", "keywords", "given_apart"),
    [(BuildOptions, BuildKeywords, set()), (SearchOptions, SearchKeywords, {"k"})],
)
def test_keywords_are_the_fields(options, keywords, given_apart):
    """The fields of the options have the types of the keywords, so that type checkers know the keywords."""
    known = {each.name: each.type for each in fields(options) if each.name not in given_apart}
    assert {name: hint.__forward_arg__ for name, hint in keywords.__annotations__.items()} == known


class TestBuildOptions:
    @pytest.mark.parametrize(
        ("dim", "expected"),
        [
            (384, 48),
            (768, 48),
            (1024, 32),
            (32, 16),
            (2, 1),
            (96, 48),
            (100, 25),
            (10, 5),
            (62, 31),
            (194, 1),
            (3, 0),
            (1, 0),
        ],
    )
    def test_code_bytes_by_default(self, dim, expected):
        assert BuildOptions().code_bytes_for(dim) == expected

    @pytest.mark.parametrize("code_bytes", [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 48, 96, 192])
    def test_code_bytes_that_fit(self, code_bytes):
        assert BuildOptions(code_bytes=code_bytes).code_bytes_for(384) == code_bytes

    @pytest.mark.parametrize("code_bytes", [5, 7, 9, 100, 193, 384, -1, 1 << 70, True, 8.0, "8"])
    def test_code_bytes_that_do_not(self, code_bytes):
        with pytest.raises(InvalidSetting, match="code_bytes"):
            BuildOptions(code_bytes=code_bytes).code_bytes_for(384)

    @pytest.mark.parametrize("centroids", ["int4", "INT8", "", None, 8, ["int8"]])
    def test_centroids(self, centroids):
        with pytest.raises(InvalidSetting, match="int8 or float16 or none"):
            BuildOptions(centroids=centroids)

    def test_neither_centroids_nor_codes(self):
        with pytest.raises(InvalidSetting, match="must store centroids or codes"):
            BuildOptions(centroids="none", code_bytes=0)

    def test_codes_alone_of_vectors_that_can_have_none(self):
        with pytest.raises(InvalidSetting, match="even dim; found 33"):
            BuildOptions(centroids="none").code_bytes_for(33)

    @pytest.mark.parametrize("seed", [-1, 1 << 63, 1.0, "1", None, True])
    def test_seed(self, seed):
        with pytest.raises(InvalidSetting, match="seed is out of range"):
            BuildOptions(seed=seed)
        assert BuildOptions(seed=(1 << 63) - 1).seed == (1 << 63) - 1


class TestSearchOptions:
    @pytest.mark.parametrize("k", [0, -1, (1 << 20) + 1, 1.0, "1", None, True])
    def test_k(self, k):
        with pytest.raises(InvalidSetting, match="k is out of range; expected an integer from 1 to 1048576"):
            SearchOptions(k=k)

    def test_a_context_is_one_of_passages(self):
        with pytest.raises(InvalidSetting, match="only passages have a context; expected unit 'passage'"):
            SearchOptions(context=1)

    @pytest.mark.parametrize("candidates", [9, 0, -1, (1 << 20) + 1, 20.0, "20", True])
    def test_candidates_are_at_least_k(self, candidates):
        with pytest.raises(InvalidSetting, match="candidates is out of range; expected an integer from 10 to"):
            SearchOptions(k=10, candidates=candidates)
        assert SearchOptions(k=10, candidates=10).candidates == 10

    @pytest.mark.parametrize("size", [np.array([1, 2]), np.array([]), 0, True, "1", None])
    def test_group_size(self, size):
        with pytest.raises(InvalidSetting, match="group_size is out of range"):
            SearchOptions(group_by="brand", group_size=size)
        with pytest.raises(InvalidSetting, match="group_size is out of range"):
            SearchOptions(group_size=size)

    def test_synonyms_are_a_mapping(self):
        with pytest.raises(InvalidSetting, match="synonyms are no mapping"):
            BuildOptions(synonyms=np.array([1, 2]))

    @pytest.mark.parametrize("nprobe", [0, -1, 1.0, "1", True])
    def test_nprobe(self, nprobe):
        with pytest.raises(InvalidSetting, match="nprobe is out of range"):
            SearchOptions(nprobe=nprobe)


class TestOpenOptions:
    @pytest.mark.parametrize("threads", [0, -1, 1025, 1.0, "1", True])
    def test_threads(self, threads):
        with pytest.raises(InvalidSetting, match="threads is out of range"):
            OpenOptions(threads=threads)

    def test_number_of_threads(self):
        assert OpenOptions(threads=3).n_threads == 3
        assert 1 <= OpenOptions().n_threads <= (os.cpu_count() or 1)

    @pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no CPU affinity on this system")
    def test_only_the_cpus_that_this_process_may_use(self):
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(before)})
        try:
            assert OpenOptions().n_threads == 1
        finally:
            os.sched_setaffinity(0, before)
