"""History of every step of a run: JSON Lines that survive a kill, and a plot of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

__all__ = ["History", "plot_curves"]


class History:
    """The records of a run, one line for each step or validation.

    Args:
        path: the path of the file; made at the first record.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, record: Mapping[str, object]) -> None:
        """Add a record, which has the member ``step``."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def records(self) -> list[dict[str, object]]:
        """All records in order; a last line that was cut off is left out."""
        if not self._path.is_file():
            return []
        return [json.loads(line) for line in self._path.read_text("utf-8").split("\n")[:-1]]

    def rewind(self, step: int) -> None:
        """Drop the records of a step and those after it: they are done again."""
        kept = [record for record in self.records() if int(str(record["step"])) < step]
        partial = self._path.with_suffix(".partial")
        partial.write_text("".join(json.dumps(record) + "\n" for record in kept), "utf-8")
        partial.replace(self._path)


_SMOOTHED_OVER = 20  # steps


def plot_curves(history: History, path: Path) -> None:
    """Draw the terms of the loss (running means over 20 steps of all sources) and nDCG@10.

    Args:
        history: the history of the run; without records nothing is drawn.
        path: the path of the image; its ending is the format.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    losses: dict[str, list[tuple[int, float]]] = {}
    validated: list[tuple[int, float]] = []
    for record in history.records():
        step = int(str(record["step"]))
        if "ndcg_10" in record:
            validated.append((step, float(str(record["ndcg_10"]))))
        terms = record.get("terms")
        for name, value in (terms if isinstance(terms, dict) else {}).items():
            losses.setdefault(name, []).append((step, value))
    if not losses and not validated:
        return
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, points in losses.items():
        steps, values = np.array(points).T
        left.plot(steps, _smoothed(values), label=name)
    left.set(xlabel="step", ylabel="loss")
    if losses:
        left.legend()
    right.plot(*zip(*validated, strict=True), marker="o") if validated else None
    right.set(xlabel="step", ylabel="nDCG@10, held-out queries")
    figure.savefig(path)


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Means of the last values at each place."""
    sums = np.cumsum(np.insert(values, 0, 0.0))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - _SMOOTHED_OVER)
    smoothed: np.ndarray = (sums[ends] - sums[starts]) / (ends - starts)
    return smoothed
