"""How much a test of endurance does: a little every time, much more when it is asked for.

`QUARRY_TORTURE` in the environment is the share of the full figures to reach: 1 for all of them, 0.01 for a
hundredth (never less than without it). `make torture` sets it. Each test then adds a line to
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
    """How many of something: `usual`, or the share of `full` that is asked for."""
    return max(usual, round(full * SHARE))


@dataclass
class Tally:
    """What one test did.

    Attributes:
        test: its name.
        seed: of its random choices; None where it makes none, or others each time.
        counts: how many of what; a test adds to them.
    """

    test: str
    seed: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    def add(self, **counts: int) -> None:
        """Count."""
        for name, n in counts.items():
            self.counts[name] = self.counts.get(name, 0) + n

    def save(self) -> None:
        """Keep the result, at the torture level."""
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
