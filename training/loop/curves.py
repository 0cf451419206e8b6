"""A plot of a run: loss and validation over steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from quarry.training.loop.history import History

__all__ = ["plot_curves"]

_SMOOTHED_OVER = 20


def plot_curves(history: History, path: Path) -> None:
    """Draw the terms of the loss (running means over 20 steps of all sources) and nDCG@10.

    Args:
        history: of the run; without records nothing is drawn.
        path: of the image; its ending is the format.
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
