"""The simulation of latency over many shards."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.__main__ import main
from bench.system.tail import Tail, simulate, simulate_shard

FIXED = {"p50_ms": 4.0, "p95_ms": 4.0 + 1e-9, "n_queries": 1500}


def test_without_load_one_shard_has_its_service_times():
    found = simulate(Tail(n_shards=1, n_replicas=1, is_hedged=False, load=1e-6, p95_ms=6.0, slow_share=0))
    assert found["p50_ms"] == pytest.approx(4.38, rel=0.05)
    assert found["p95_ms"] == pytest.approx(6.0, rel=0.05)


def test_a_queue_waits_as_the_formula_of_pollaczek_and_khinchine_says():
    """The mean time in an M/D/1 queue is service * (1 + load
    (2 (1 - load))).
    """
    case = Tail(n_shards=1, n_replicas=1, is_hedged=False, load=0.5, slow_share=0, **FIXED | {"n_queries": 40_000})
    arrivals = np.cumsum(np.random.default_rng(1).exponential(8.0, case.n_queries))
    took, _ = simulate_shard(case, arrivals, 0)
    assert took.mean() == pytest.approx(6.0, rel=0.05)


def test_rare_delays_are_usual_over_many_shards():
    """With 1 % of slow requests, 1 - .99 ** 100 = 63 % of queries over 100 shards have at least one."""
    case = {"n_replicas": 1, "is_hedged": False, "load": 1e-6, "slow_share": 0.01, **FIXED}
    assert simulate(Tail(n_shards=1, **case))["p95_ms"] == pytest.approx(4.0)
    assert simulate(Tail(n_shards=100, **case))["p50_ms"] == pytest.approx(40.0)


def test_hedging_bounds_the_tail_at_the_price_of_some_requests():
    case = {"n_shards": 30, "n_replicas": 2, "slow_share": 0.01, "load": 0.05, **FIXED | {"p95_ms": 5.0}}
    plain, hedged = (simulate(Tail(is_hedged=is_hedged, **case)) for is_hedged in (False, True))
    assert plain["hedged_share"] == 0
    assert 0.01 <= hedged["hedged_share"] < 0.02  # 1 % are slow, and few others wait
    assert hedged["p95_ms"] < plain["p95_ms"] / 2


def test_the_same_seed_gives_the_same_figures(tmp_path, capsys):
    words = [
        "tail",
        "--shards",
        "1",
        "4",
        "--replicas",
        "1",
        "2",
        "--queries",
        "200",
        "--out",
        str(tmp_path / "t"),
    ]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert main(words) == 0
    assert capsys.readouterr().out == first
    lines = (tmp_path / "t").read_text().splitlines()
    assert len(lines) == 2 * 6
    assert json.loads(lines[0])["n_shards"] == 1
