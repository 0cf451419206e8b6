"""Draws the Pareto fronts of a sweep from its raw results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from bench.harness.records import Record, read_results
from bench.sweep.comparison import vector_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_tradeoff", "pareto_front"]

_DPI = 100
_FEW_DECADES = 500  # ratio of the limits of an axis
_PEER_MARKS = "xP*Xdv^<>s1234+"
_TITLES = {"ndcg_10": "nDCG@10 (linear gain)", "recall_10": "recall of the exact first 10"}
_DEFAULT = "default"


@dataclass(frozen=True)
class _Cost:
    """The x axis of a panel.

    Attributes:
        label: the quantity and its unit.
        of_setting: value of a result of the sweep.
        of_peer: value of a result of `bench.peers`.
        more_is_better: whether a larger value is better.
    """

    label: str
    of_setting: Callable[[Record], float]
    of_peer: Callable[[Record], float]
    more_is_better: bool


_COSTS = (
    _Cost(
        "bytes per document: vectors and ids",
        vector_bytes,
        lambda record: _number(record, "vectors_disk_bytes") / _number(record, "n_documents"),
        more_is_better=False,
    ),
    _Cost(
        "queries per second: one thread, vector to 10 hits, 1 / p50",
        lambda record: 1e3 / _number(record, "p50_ms"),
        lambda record: 1e3 / _number(record, "vector_p50_ms"),
        more_is_better=True,
    ),
)


def pareto_front(points: Sequence[tuple[float, float]], *, more_is_better: bool) -> list[tuple[float, float]]:
    """Return the Pareto-optimal points (cost, value), sorted by cost.

    Args:
        points: costs and values; a larger value is better.
        more_is_better: whether a larger cost is better too (queries per second) or a smaller one (bytes).
    """
    front: list[tuple[float, float]] = []
    for cost, value in sorted(
        set(points), key=lambda point: (-point[0] if more_is_better else point[0], -point[1])
    ):
        if not front or value > front[-1][1]:
            front.append((cost, value))
    return sorted(front)


def draw_tradeoff(folder: Path, prepared: str) -> Path | None:
    """Draw nDCG@10 and recall against bytes and speed, one image, into the folder of the results.

    Other libraries are shown in the row of nDCG if they were measured on the same documents and queries on the
    same kind of machine; their recall is of other vectors and not comparable.

    Args:
        folder: folder with the results of `bench.sweep.tradeoff` and optionally of `bench.peers`.
        prepared: the collection, a value of the records' field ``prepared``.

    Returns:
        The path of the image, without a row for nDCG if there are no judgments; None without results.
    """
    records = [each for each in _read_of(folder, "tradeoff", prepared) if "recall_10" in each]
    if not records:
        return None
    machines = {each["machine"] for each in records}
    peers = [
        each
        for each in _read_of(folder, "peers", prepared)
        if _is_comparable(each) and each["machine"] in machines
    ]
    path = folder / f"tradeoff_{prepared}.png"
    figure = _draw(records, peers)
    figure.savefig(path, dpi=_DPI)
    return path


def _read_of(folder: Path, name: str, prepared: str) -> list[Record]:
    return [record for record in read_results(folder, name) if record["prepared"] == prepared]


def _is_comparable(record: Record) -> bool:
    wanted = ("vectors_disk_bytes", "vector_p50_ms", "ndcg_10")
    return all(name in record for name in wanted) and record["module"] != "quarry_index"


def _draw(records: list[Record], peers: list[Record]) -> Figure:
    from matplotlib.figure import Figure

    names = [name for name in _TITLES if any(name in record for record in records)]
    figure = Figure(figsize=(11.5, 0.7 + 3.2 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), len(_COSTS), sharey="row", sharex="col", squeeze=False)
    for row, name in zip(panels, names, strict=True):
        for panel, cost in zip(row, _COSTS, strict=True):
            _draw_panel(panel, [each for each in records if name in each], cost, name)
            for peer, mark in zip(peers if name == "ndcg_10" else [], _PEER_MARKS * len(peers), strict=False):
                point = (cost.of_peer(peer), _number(peer, name))
                panel.scatter(*point, marker=mark, s=26, color="black", linewidths=0.9, label=str(peer["name"]))
        row[0].set_ylabel(_TITLES[name])
    for panel, cost in zip(panels[-1], _COSTS, strict=True):
        panel.set_xlabel(cost.label)
        _set_ticks(panel)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=7.5)
    figure.suptitle(_heading(records[0]), fontsize=10)
    return figure


def _heading(record: Record) -> str:
    sizes = f"{record['n_documents']} documents, {record['n_queries']} queries"
    return f"{record['collection']}: {sizes}, {record['encoder']}\n{record['machine']}"


def _draw_panel(panel: Axes, records: list[Record], cost: _Cost, name: str) -> None:
    """Draw the points of each axis of the sweep and the Pareto front."""
    by_axis: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        by_axis.setdefault(str(record["axis"]), []).append((cost.of_setting(record), _number(record, name)))
    for axis, points in by_axis.items():
        costs, values = zip(*points, strict=True)
        plain = axis == _DEFAULT
        style = {"s": 70, "facecolors": "none", "edgecolors": "red"} if plain else {"s": 15, "linewidths": 0}
        panel.scatter(costs, values, label=f"Quarry: {axis}", alpha=0.75, **style)
    front = pareto_front(
        [point for points in by_axis.values() for point in points], more_is_better=cost.more_is_better
    )
    costs, values = zip(*front, strict=True)
    where: Literal["pre", "post"] = "pre" if cost.more_is_better else "post"
    panel.step(costs, values, where=where, color="black", linewidth=0.8, label="Quarry: front")
    panel.set_xscale("log")
    panel.grid(visible=True, which="major", alpha=0.25)


def _set_ticks(panel: Axes) -> None:
    """Set ticks at 1, 2 and 5 if there is room for them, otherwise at powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = panel.get_xlim()
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < _FEW_DECADES * low else (1,)))
    panel.xaxis.set_major_formatter("{x:,g}")
    panel.xaxis.set_minor_formatter(NullFormatter())


def _number(record: Record, name: str) -> float:
    return cast(float, record[name])
