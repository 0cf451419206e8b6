"""Sizes of stress tests: small by default, large on request.

The environment variable `QUARRY_TORTURE` is the share of the full numbers of cases: 1 for all, 0.01 for a
hundredth (never fewer than by default). `make torture` sets it. Each test then adds a line to
`bench/results/torture.jsonl`.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

SHARE = float(os.environ.get("QUARRY_TORTURE", "0"))
RESULTS = Path(__file__).resolve().parents[3] / "bench" / "results" / "torture.jsonl"


def figure(usual: int, full: int) -> int:
    """Return a number of cases: `usual`, or the requested share of `full`."""
    return max(usual, round(full * SHARE))


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
