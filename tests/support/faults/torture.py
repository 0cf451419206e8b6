"""Sizes of stress tests: small by default, large on request.

The environment variable `QUARRY_TORTURE` is the share of the full numbers of cases: 1 for all, 0.01 for a
hundredth (never fewer than by default). `make torture` sets it. Each test then adds a line to
`bench/results/torture.jsonl`.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SHARE = float(os.environ.get("QUARRY_TORTURE", "0"))
RESULTS = Path(__file__).resolve().parents[3] / "bench" / "results" / "torture.jsonl"


def figure(usual: int, full: int) -> int:
    """Return a number of cases: `usual`, or the requested share of `full`."""
    return max(usual, round(full * SHARE))


def sample(kinds: Sequence[Hashable], usual: int, seed: str = "") -> list[int]:
    """Return numbers of steps, from 1: the first, the last, one of each kind, and `usual` evenly spaced ones.

    Args:
        kinds: the kind of each step.
        usual: how many evenly spaced steps are taken by default; at full figures these are all steps.
        seed: determines the first of the evenly spaced steps.
    """
    n = min(len(kinds), figure(usual, len(kinds)))
    start, distance = random.Random(seed).random(), len(kinds) / n
    chosen = {int((start + number) * distance) for number in range(n)}
    firsts = {kind: place for place, kind in reversed(list(enumerate(kinds)))}
    return sorted(place + 1 for place in chosen | {0, len(kinds) - 1} | set(firsts.values()))


@dataclass
class Tally:
    """The counts of one test.

    Attributes:
        test: its name.
        seed: of its random choices; None if it makes none, or different ones each time.
        counts: numbers by name.
    """

    test: str
    seed: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    def add(self, **counts: int) -> None:
        """Add to the counts."""
        for name, n in counts.items():
            self.counts[name] = self.counts.get(name, 0) + n

    def save(self) -> None:
        """Append the result to the file, if `QUARRY_TORTURE` is set."""
        if not SHARE or not self.counts:
            return
        from bench.harness.environment import describe_environment

        line = {
            "test": self.test,
            "share": SHARE,
            "seed": self.seed,
            **self.counts,
            "duration_s": round(time.perf_counter() - self.started, 1),
            **describe_environment(),
        }
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
