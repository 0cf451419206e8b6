"""Draws the Pareto fronts of a sweep from its raw results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bench.records import Record, read_records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_tradeoff", "pareto_front", "vector_bytes"]

_VECTOR_PARTS = ("centroids", "codes", "quantizers")
_DPI = 100
_COSTS = (("bytes of vectors a document", False), ("queries a second: 1 / p50, one thread, 10 hits", True))


def vector_bytes(record: Record) -> float:
    """Bytes a document that hold vectors: centroids, codes, and its share of the quantizer."""
    parts = cast(dict[str, int], record["bytes"])
    return sum(parts[part] for part in _VECTOR_PARTS) / cast(int, record["n_documents"])


def pareto_front(points: Sequence[tuple[float, float]], *, more_is_better: bool) -> list[tuple[float, float]]:
    """The points (cost, value) that no other one beats in both, in the order of cost.

    Args:
        points: cost and value; more value is better.
        more_is_better: whether a larger cost is better too (queries a second), or a smaller one (bytes).
    """
    front: list[tuple[float, float]] = []
    for cost, value in sorted(
        set(points), key=lambda point: (-point[0] if more_is_better else point[0], -point[1])
    ):
        if not front or value > front[-1][1]:
            front.append((cost, value))
    return sorted(front)


def draw_tradeoff(results: Path, prepared: str) -> list[Path]:
    """Draw nDCG@10 and recall@10 against bytes and speed, one image each, beside the results.

    Where peers were measured on the same documents and queries (``peers.jsonl`` beside the results), they are
    shown by their bytes; speeds of different runs are not shown together.

    Args:
        results: JSON lines of `bench.tradeoff`.
        prepared: of which collection, as the field of that name says.

    Returns:
        The images; none for nDCG where nothing was judged.
    """
    records = [record for record in read_records(results) if record["prepared"] == prepared]
    titles = {"ndcg_10": "nDCG@10 (linear gain)", "recall_10": "recall of the exact first 10"}
    drawn = []
    for name, title in titles.items():
        judged = [record for record in records if name in record]
        if judged:
            path = results.with_name(f"tradeoff_{prepared}_{name}.png")
            _draw(judged, _peers(results.with_name("peers.jsonl"), prepared, name), name, title, path)
            drawn.append(path)
    return drawn


def _peers(results: Path, prepared: str, name: str) -> list[tuple[float, float]]:
    """Bytes of vectors and ids a document, and quality, of peers measured on the same documents and queries."""
    records = [record for record in read_records(results) if record["prepared"] == prepared]
    return [
        (cast(float, record["vectors_disk_bytes"]) / cast(int, record["n_documents"]), cast(float, record[name]))
        for record in records
        if record["module"] != "quarry_index" and "vectors_disk_bytes" in record and name in record
    ]


def _draw(records: list[Record], peers: list[tuple[float, float]], name: str, title: str, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import LogLocator, NullFormatter

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
    for panel, (label, more_is_better) in zip(panels, _COSTS, strict=True):
        _scatter(panel, records, name, more_is_better=more_is_better)
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_xlabel(label)
        panel.grid(visible=True, which="both", alpha=0.2)
    if peers:
        panels[0].scatter(*zip(*peers, strict=True), marker="x", color="black", label="other libraries")
    panels[0].set_ylabel(title)
    panels[0].legend(fontsize=8, title="what is varied", title_fontsize=8)
    first = records[0]
    sizes = f"{first['n_documents']} documents, {first['n_queries']} queries"
    figure.suptitle(f"{first['collection']}: {sizes}, {first['encoder']}")
    figure.savefig(path, dpi=_DPI)
    pyplot.close(figure)


def _scatter(panel: Axes, records: list[Record], name: str, *, more_is_better: bool) -> None:
    """Points by what is varied, and the line that no other point beats."""
    by_axis: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        cost = 1e3 / cast(float, record["p50_ms"]) if more_is_better else vector_bytes(record)
        by_axis.setdefault(str(record["axis"]), []).append((cost, cast(float, record[name])))
    for axis, points in by_axis.items():
        costs, values = zip(*points, strict=True)
        panel.scatter(costs, values, s=18, label=axis, alpha=0.8)
    front = pareto_front([point for points in by_axis.values() for point in points], more_is_better=more_is_better)
    panel.plot(*zip(*front, strict=True), color="black", linewidth=0.8)
