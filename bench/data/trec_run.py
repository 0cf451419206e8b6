"""Run files of TREC: ``query Q0 document rank score tag``, one line for each document found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Run", "read_run", "write_run"]

Run = dict[str, dict[str, float]]
"""For each query id the documents found and their scores, larger is better."""


def write_run(path: Path, run: Mapping[str, Mapping[str, float]], tag: str) -> None:
    """Write a run, each query's documents in the order they have in the mapping.

    trec_eval ranks by score and breaks ties by document id; so a score that is not below the one before it is
    written as the next smaller double, and the order stays.

    Raises:
        ValueError: an id is empty or has white space in it, which the format cannot hold.
    """
    lines = []
    for query, found in run.items():
        before = math.inf
        for rank, (document, score) in enumerate(found.items(), 1):
            before = min(score, math.nextafter(before, -math.inf))
            for name in (query, document, tag):
                if name.split() != [name]:
                    raise ValueError(f"{path}: a run file cannot hold the name {name!r}")
            lines.append(f"{query} Q0 {document} {rank} {before!r} {tag}\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


def read_run(path: Path) -> Run:
    """Read a run file; the documents of a query best first.

    Raises:
        ValueError: a line has not six fields, its score is no number, or a query has a document twice.
    """
    run: Run = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split()
        if len(fields) != 6:
            raise ValueError(f"{path}, line {number}: {len(fields)} fields, expected 6")
        query, _, document, _, score, _ = fields
        if document in run.setdefault(query, {}):
            raise ValueError(f"{path}, line {number}: {document} is there twice for query {query}")
        run[query][document] = _number(score, path, number)
    return {query: dict(sorted(found.items(), key=lambda item: -item[1])) for query, found in run.items()}


def _number(text: str, path: Path, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{path}, line {line}: the score is {text!r}, expected a number")
    return value
