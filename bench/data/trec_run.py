"""TREC run files: one line ``query Q0 document rank score tag`` for each retrieved document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Run", "read_run", "write_run"]

Run = dict[str, dict[str, float]]
"""Ids and scores of the retrieved documents by query id, larger is better."""


def write_run(path: Path, run: Mapping[str, Mapping[str, float]], tag: str) -> None:
    """Write a run, the documents of each query in the order of the mapping.

    trec_eval ranks by score and breaks ties by document id. To keep the order, a score that is not less than the
    previous one is written as the next smaller double.

    Raises:
        ValueError: an id is empty or contains white space, which the format cannot represent.
    """
    lines = []
    for query, scores in run.items():
        before = math.inf
        for rank, (document, score) in enumerate(scores.items(), 1):
            before = min(score, math.nextafter(before, -math.inf))
            for name in (query, document, tag):
                if name.split() != [name]:
                    raise ValueError(f"{path}: a run file cannot contain the id {name!r}")
            lines.append(f"{query} Q0 {document} {rank} {before!r} {tag}\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


def read_run(path: Path) -> Run:
    """Read a run file; the documents of each query are sorted by score, best first.

    Raises:
        ValueError: a line does not have six fields, a score is not a number, or a document is repeated.
    """
    run: Run = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split()
        if len(fields) != 6:
            raise ValueError(f"{path}, line {number}: {len(fields)} fields, expected 6")
        query, _, document, _, score, _ = fields
        if document in run.setdefault(query, {}):
            raise ValueError(f"{path}, line {number}: document {document} is repeated for query {query}")
        run[query][document] = _parse_score(score, path, number)
    return {query: dict(sorted(scores.items(), key=lambda item: -item[1])) for query, scores in run.items()}


def _parse_score(text: str, path: Path, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{path}, line {line}: score {text!r}, expected a finite number")
    return value
