"""Compares the records of a run of `bench.gpu.command` with targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from bench.harness.records import Record

__all__ = ["compare_with_targets"]

_MAX_READS = 2.0  # time of a query in reads of all centroids
_MIN_SHARE = 0.5  # of the measured rate of matrix products, for a batch
_SPEED_UPS = {"MiniLM": 2.0, "BERT-base": 1.3}  # of an encoder over torch in float16, eager
_RUNTIMES = ("torch", "onnx", "tensorrt")


def compare_with_targets(records: list[Record]) -> Iterator[Record]:
    """Yield a record for each figure: value, target and whether it is met, or which record is missing.

    Args:
        records: all records of one run.
    """
    yield _compare_reads(records)
    yield _compare_share(records)
    yield from _compare_peers(records)
    for shape, target in _SPEED_UPS.items():
        for runtime in _RUNTIMES:
            yield _compare_encoder(records, shape, runtime, target)


def _compare_reads(records: list[Record]) -> Record:
    """Return the time of a query over all float16 centroids, in reads of them at the rate of a copy."""
    name = "one query, in reads of all centroids at the speed of a copy"
    copy, stage = _find(records, what="copy"), _fastest(records, 1)
    if copy is None or stage is None:
        return _missing_figure(name, "copy and both stages")
    return _figure(name, _number(copy, "gb_s") / _number(stage, "gb_s"), _MAX_READS, at_most=True)


def _compare_share(records: list[Record]) -> Record:
    name = "both stages of a batch, share of the rate of a matrix product"
    product, stage = _find(records, what="matrix product"), _fastest(records, _largest_batch(records))
    if product is None or stage is None:
        return _missing_figure(name, "matrix product and both stages")
    return _figure(name, _number(stage, "tflop_s") / _number(product, "tflop_s"), _MIN_SHARE)


def _compare_peers(records: list[Record]) -> Iterator[Record]:
    """Yield the queries per second of a scan, relative to each other library."""
    for peer in (each for each in records if str(each.get("what")).startswith("peer ")):
        name = f"queries per second over those of {str(peer['what'])[5:]}"
        if "queries_s" not in peer:
            yield _missing_figure(name, str(peer["what"]))
            continue
        batch = cast("int", peer["batch"])
        ours = _fastest(records, batch)
        if ours:
            ratio = _number(ours, "queries_s") / _number(peer, "queries_s")
            yield {"what": "figure", "name": name, "batch": batch, "value": ratio}


def _compare_encoder(records: list[Record], shape: str, runtime: str, target: float) -> Record:
    name = f"{shape} with {runtime}, passages of 128 tokens, over torch in float16"
    rows = [
        _find(records, what="encoder", shape=shape, runtime=each, kind="passages") for each in (runtime, "eager")
    ]
    if rows[0] is None or rows[1] is None:
        return _missing_figure(name, f"encoder {runtime} and eager")
    return _figure(name, _number(rows[0], "tokens_s") / _number(rows[1], "tokens_s"), target)


def _fastest(records: list[Record], batch: int) -> Record | None:
    """Return the fastest record of float16, with or without kernels, with any aggregation."""
    same = {"what": "both stages", "batch": batch, "stored": "float16"}
    found = [each for each in records if same.items() <= each.items() and "ms" in each]
    return min(found, key=lambda each: _number(each, "ms"), default=None)


def _largest_batch(records: list[Record]) -> int:
    return max((cast("int", each["batch"]) for each in records if each.get("what") == "both stages"), default=0)


def _find(records: list[Record], **same: object) -> Record | None:
    found = (each for each in records if same.items() <= each.items() and "ms" in each)
    return next(found, None)


def _number(record: Record, name: str) -> float:
    return cast("float", record[name])


def _figure(name: str, value: float, target: float, *, at_most: bool = False) -> Record:
    met = value <= target if at_most else value >= target
    return {"what": "figure", "name": name, "value": value, "target": target, "met": met}


def _missing_figure(name: str, what: str) -> Record:
    return {"what": "figure", "name": name, "missing": f"no record of {what}"}
