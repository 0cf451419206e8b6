"""The number of lists and rows that searches read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quarry.engine.backends.probing import Probe, ProbingPolicy

POLICY = ProbingPolicy(
    nlist=1024, n_rows=10_000, n_docs=4000, default_nprobe=lambda _: 224, rows_per_candidate=2.5
)


def test_the_default_without_a_filter():
    assert POLICY.first_probe(10, 100, None, 1.0) == Probe(nprobe=224, n_rows=250)


@pytest.mark.parametrize(("share", "nprobe"), [(1 / 64, 448), (1e-6, 1024)])
def test_a_filter_reads_more_lists(share, nprobe):
    assert POLICY.first_probe(10, 1, None, share).nprobe == nprobe


def test_the_requested_number_of_lists_is_read_with_any_filter():
    assert POLICY.first_probe(10, 1, 7, 0.01).nprobe == 7
    assert POLICY.first_probe(10, 1, 5000, 0.01).nprobe == 1024


def test_more_hits_read_more_lists():
    policy = replace(POLICY, default_nprobe=lambda k: 3 if k <= 10 else 7)
    assert [policy.first_probe(k, 100, None, 1.0).nprobe for k in (1, 10, 100)] == [3, 3, 7]
    assert policy.n_docs_scored_directly(10) < policy.n_docs_scored_directly(100)


@pytest.mark.parametrize(("default", "nprobe"), [(224, 512), (600, 600)])
def test_a_filter_reads_no_more_lists_if_they_are_long(default, nprobe):
    policy = replace(POLICY, max_filtered_rows=5000, default_nprobe=lambda _: default)
    assert policy.first_probe(10, 1, None, 1e-6).nprobe == nprobe


def test_no_more_rows_are_collected_than_exist():
    assert POLICY.first_probe(10, 5000, None, 1.0).n_rows == 10_000


def test_widening_ends_with_everything():
    probe, extents = POLICY.first_probe(10, 10, 1, 1.0), []
    while not POLICY.is_exhaustive(probe):
        extents.append(probe)
        probe = POLICY.widen(probe)
    assert probe == Probe(1024, 10_000)
    assert extents[:2] == [Probe(1, 25), Probe(2, 100)]
    assert len(extents) == 10


def test_as_many_documents_are_scored_as_lists_take_time():
    """Few enough documents are scored directly: probing 224 of 1024 lists takes as long as scoring 87."""
    assert POLICY.n_docs_scored_directly(10) == 4000 * 224 // (1024 * 10)
