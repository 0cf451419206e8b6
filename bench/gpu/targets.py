"""The figures of a run of `bench.gpu.command` that have a target, out of its records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from bench.harness.records import Record

__all__ = ["figures"]

_MOST_READS = 2.0  # that a query over all centroids may take
_LEAST_SHARE = 0.5  # of the measured rate of products, for a batch
_SPEED_UPS = {"MiniLM": 2.0, "BERT-base": 1.3}  # of an encoder over torch in float16, eager
_RUNTIMES = ("onnx", "tensorrt")


def figures(records: list[Record]) -> Iterator[Record]:
    """Yield a record for each figure: its value, its target, whether it is met; or which record it lacks.

    Args:
        records: of one run.
    """
    yield _reads(records)
    yield _share(records)
    yield from _beside_peers(records)
    for shape, target in _SPEED_UPS.items():
        for runtime in _RUNTIMES:
            yield _speed_up(records, shape, runtime, target)


def _reads(records: list[Record]) -> Record:
    """A query over all float16 centroids, both stages, in reads of them at the rate of a copy."""
    name = "one query, in reads of all centroids at the speed of a copy"
    copy, stage = _one(records, what="copy"), _fastest(records, 1)
    if copy is None or stage is None:
        return _lacking(name, "copy and both stages")
    return _figure(name, _number(copy, "gb_s") / _number(stage, "gb_s"), _MOST_READS, at_most=True)


def _share(records: list[Record]) -> Record:
    name = "both stages of a batch, share of the rate of a matrix product"
    product, stage = _one(records, what="matrix product"), _fastest(records, _largest_batch(records))
    if product is None or stage is None:
        return _lacking(name, "matrix product and both stages")
    return _figure(name, _number(stage, "tflop_s") / _number(product, "tflop_s"), _LEAST_SHARE)


def _beside_peers(records: list[Record]) -> Iterator[Record]:
    """How many times the queries per second of each peer, ours by all centroids and by lists of codes."""
    for peer in (each for each in records if str(each.get("what")).startswith("peer ")):
        name = f"queries per second over those of {str(peer['what'])[5:]}"
        if "queries_s" not in peer:
            yield _lacking(name, str(peer["what"]))
            continue
        batch = cast("int", peer["batch"])
        ways = {"all centroids": _fastest(records, batch), "lists": _fastest(records, batch, "lists", None)}
        for way, ours in ways.items():
            if ours:
                ratio = _number(ours, "queries_s") / _number(peer, "queries_s")
                yield {"what": "figure", "name": name, "batch": batch, "way": way, "value": ratio}


def _speed_up(records: list[Record], shape: str, runtime: str, target: float) -> Record:
    name = f"{shape} with {runtime}, passages of 128 tokens, over torch in float16"
    rows = [
        _one(records, what="encoder", shape=shape, runtime=each, kind="passages") for each in (runtime, "eager")
    ]
    if rows[0] is None or rows[1] is None:
        return _lacking(name, f"encoder {runtime} and eager")
    return _figure(name, _number(rows[0], "tokens_s") / _number(rows[1], "tokens_s"), target)


def _fastest(
    records: list[Record], batch: int, what: str = "both stages", stored: str | None = "float16"
) -> Record | None:
    """With kernels or without, with whatever aggregation."""
    same = {"what": what, "batch": batch} | ({} if stored is None else {"stored": stored})
    found = [each for each in records if same.items() <= each.items() and "ms" in each]
    return min(found, key=lambda each: _number(each, "ms"), default=None)


def _largest_batch(records: list[Record]) -> int:
    return max((cast("int", each["batch"]) for each in records if each.get("what") == "both stages"), default=0)


def _one(records: list[Record], **same: object) -> Record | None:
    found = (each for each in records if same.items() <= each.items() and "ms" in each)
    return next(found, None)


def _number(record: Record, name: str) -> float:
    return cast("float", record[name])


def _figure(name: str, value: float, target: float, *, at_most: bool = False) -> Record:
    met = value <= target if at_most else value >= target
    return {"what": "figure", "name": name, "value": value, "target": target, "met": met}


def _lacking(name: str, what: str) -> Record:
    return {"what": "figure", "name": name, "missing": f"no record of {what}"}
