"""Simulates the latency of queries over many shards: ``python -m bench tail``.

A query waits for the slowest of its shards, so a delay that is rare in one shard is usual in many (J. Dean and L.
Barroso, The tail at scale, CACM 2013). Here every shard has some copies, each of which works on one request at a
time, in the order of arrival; a request goes to the less busy of two random copies. With hedging, one that was not
answered after twice the 95th percentile of an unloaded shard is sent to another copy too, and the first answer
counts; a request that has not begun by then is cancelled.

Service times are log-normal with the median and 95th percentile of measured queries (``bench/results``,
hybrid_latency.jsonl), and with a small probability ten times as long: a pause, a page fault, a noisy neighbor. The
simulation is seeded and exact to repeat; queues take hedged requests in the order of their queries, which is an
approximation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.harness.records import Record, add_out, append_result

__all__ = ["Tail", "add_arguments", "run", "simulate", "simulate_shard"]

_Z95 = 1.6448536269514722  # of the standard normal distribution


@dataclass(frozen=True, kw_only=True)
class Tail:
    """A simulated system.

    Attributes:
        n_shards: shards that every query searches.
        n_replicas: copies of each shard.
        is_hedged: whether late requests are sent to a second copy.
        load: share of the time that copies are busy, without hedging.
        n_queries: number of queries.
        p50_ms: median service time of a shard.
        p95_ms: 95th percentile of it.
        slow_share: share of requests that take `slow_factor` times as long.
        slow_factor: how much longer.
        seed: the seed of the random numbers.
    """

    n_shards: int
    n_replicas: int
    is_hedged: bool
    load: float = 0.3
    n_queries: int = 4000
    p50_ms: float = 4.38
    p95_ms: float = 5.30
    slow_share: float = 0.005
    slow_factor: float = 10.0
    seed: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench tail``."""
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 8, 64, 200], help="numbers of shards")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 3], help="numbers of copies of a shard")
    parser.add_argument("--load", type=float, default=0.3, help="share of the time that copies are busy")
    parser.add_argument("--queries", type=int, default=4000, help="number of queries")
    parser.add_argument("--p50-ms", type=float, default=4.38, help="median service time of a shard")
    parser.add_argument("--p95-ms", type=float, default=5.30, help="95th percentile of it")
    parser.add_argument("--slow-share", type=float, default=0.005, help="share of slow requests")
    add_out(parser, "tail")


def run(args: argparse.Namespace) -> int:
    """Simulate all combinations, print a table and append the results."""
    print("shards  copies  hedged     p50     p95     p99   p99.9  extra requests")
    for case in _cases(args):
        record = simulate(case)
        shown = "  ".join(f"{record[name]:6.1f}" for name in ("p50_ms", "p95_ms", "p99_ms", "p999_ms"))
        hedged = "yes" if case.is_hedged else "no"
        print(f"{case.n_shards:6}  {case.n_replicas:6}  {hedged:>6}  {shown}  {record['hedged_share']:14.1%}")
        append_result(
            args.out,
            {
                "n_shards": case.n_shards,
                "n_replicas": case.n_replicas,
                "is_hedged": case.is_hedged,
                "load": case.load,
                "n_queries": case.n_queries,
                "service_p50_ms": case.p50_ms,
                "service_p95_ms": case.p95_ms,
                "slow_share": case.slow_share,
                **record,
            },
        )
    return 0


def _cases(args: argparse.Namespace) -> Iterator[Tail]:
    for n_shards in args.shards:
        for n_replicas in args.replicas:
            for is_hedged in (False, True) if n_replicas > 1 else (False,):
                yield Tail(
                    n_shards=n_shards,
                    n_replicas=n_replicas,
                    is_hedged=is_hedged,
                    load=args.load,
                    n_queries=args.queries,
                    p50_ms=args.p50_ms,
                    p95_ms=args.p95_ms,
                    slow_share=args.slow_share,
                )


def simulate(case: Tail) -> Record:
    """Return percentiles of the latency of queries, in ms, and the share of requests that were sent twice."""
    mean_ms = float(np.mean(_service_times(case, np.random.default_rng(case.seed), 100_000)))
    gap_ms = mean_ms / (case.load * case.n_replicas)
    arrivals = np.cumsum(np.random.default_rng(case.seed).exponential(gap_ms, case.n_queries))
    latency = np.zeros(case.n_queries)
    n_hedged = 0
    for shard in range(case.n_shards):
        times, n_sent_twice = simulate_shard(case, arrivals, shard)
        latency = np.maximum(latency, times)
        n_hedged += n_sent_twice
    record: Record = {
        f"p{name}_ms": float(np.percentile(latency, share))
        for name, share in (("50", 50), ("95", 95), ("99", 99), ("999", 99.9))
    }
    return {**record, "hedged_share": n_hedged / (case.n_queries * case.n_shards)}


def _service_times(case: Tail, generator: np.random.Generator, n: int) -> npt.NDArray[np.float64]:
    sigma = np.log(case.p95_ms / case.p50_ms) / _Z95
    times: npt.NDArray[np.float64] = case.p50_ms * np.exp(sigma * generator.standard_normal(n))
    times[generator.random(n) < case.slow_share] *= case.slow_factor
    return times


def simulate_shard(
    case: Tail, arrivals: npt.NDArray[np.float64], shard: int
) -> tuple[npt.NDArray[np.float64], int]:
    """Return for each query how long this shard took to answer, and how many requests were sent twice."""
    generator = np.random.default_rng([case.seed, shard])
    times = _service_times(case, generator, 2 * len(arrivals)).reshape(-1, 2).tolist()
    choices = generator.integers(0, case.n_replicas, (len(arrivals), 2)).tolist()
    free = [0.0] * case.n_replicas  # when each copy has done all that it has to do
    took, n_hedged = np.empty(len(arrivals)), 0
    for number, arrival in enumerate(arrivals.tolist()):
        first, other = choices[number]
        copy = first if free[first] <= free[other] else other
        begin = max(arrival, free[copy])
        end = begin + times[number][0]
        again = arrival + 2 * case.p95_ms
        if case.is_hedged and end > again:
            n_hedged += 1
            second = min((each for each in range(case.n_replicas) if each != copy), key=free.__getitem__)
            begin_again = max(again, free[second])
            end_again = begin_again + times[number][1]
            if begin_again < end:  # otherwise it is cancelled before it begins
                free[second] = end_again
            if end_again > begin:  # the same for the first request
                free[copy] = end
            end = min(end, end_again)
        else:
            free[copy] = end
        took[number] = end - arrival
    return took, n_hedged
