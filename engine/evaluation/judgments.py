"""Judged queries: read from the files that collections come with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from quarry.formats.errors import InvalidQuery
from quarry.formats.system_errors import access_failed, checked_path

__all__ = ["JudgedQueries", "read_judged_queries", "read_qrels"]


@dataclass(frozen=True)
class JudgedQueries:
    """Queries with judgments, in the order of their file.

    Attributes:
        texts: the texts of the queries.
        judged: for each query the score of each judged document by its id; at least one is 1 or higher.
        n_without: number of queries without a document of score 1 or higher, which were left out.
    """

    texts: tuple[str, ...]
    judged: tuple[dict[str, int], ...]
    n_without: int


def read_judged_queries(queries: str | os.PathLike[str], qrels: str | os.PathLike[str]) -> JudgedQueries:
    """Read queries and judgments.

    Args:
        queries: JSON Lines with ``_id`` (or ``id``) and ``text``, as in BEIR, or lines of an id, a tab and a text.
        qrels: lines of query, document and score, separated by tabs, with or without a heading, as in BEIR; or of
            four columns separated by white space, as in TREC (query, ignored, document, score).

    Raises:
        InvalidQuery: a line is not valid, a document has two scores for a query, or no query has a relevant
            document; the message names the line.
        AccessFailed: a file cannot be read.
    """
    texts = dict(_read_queries(checked_path(queries, "queries")))
    path = checked_path(qrels, "qrels")
    scores = read_qrels(path)
    known = [query for query in texts if any(score >= 1 for score in scores.get(query, {}).values())]
    if not known:
        raise InvalidQuery(
            "no query has a relevant document", path=path, expected="ids of the queries, and scores of 1 or higher"
        )
    return JudgedQueries(
        tuple(texts[query] for query in known), tuple(scores[query] for query in known), len(texts) - len(known)
    )


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Read judgments: for each query, by its id, the score of each judged document.

    Raises:
        InvalidQuery: a line is not valid, or a document has two scores for a query.
        AccessFailed: the file cannot be read.
    """
    scores: dict[str, dict[str, int]] = {}
    for query, document, score in _read_judgments(path):
        if scores.setdefault(query, {}).setdefault(document, score) != score:
            raise InvalidQuery(
                f"query {query!r} has two judgments of document {document!r}",
                path=path,
                expected="one score",
                actual=f"{scores[query][document]} and {score}",
            )
    return scores


def _read_queries(path: Path) -> Iterator[tuple[str, str]]:
    for where, line in _read_lines(path):
        if line.startswith("{"):
            yield _parse_object(line, where, path)
            continue
        query, tab, text = line.partition("\t")
        if not tab:
            raise InvalidQuery(f"{where}: not a query", path=path, expected="JSON, or an id, a tab and a text")
        yield query, text


def _parse_object(line: str, where: str, path: Path) -> tuple[str, str]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidQuery(f"{where}: not JSON", path=path, actual=str(error)) from error
    query, text = entry.get("_id", entry.get("id")), entry.get("text")
    if not isinstance(query, str | int) or not isinstance(text, str):
        raise InvalidQuery(f"{where}: not a query", path=path, expected="the fields _id and text")
    return str(query), text


def _read_judgments(path: Path) -> Iterator[tuple[str, str, int]]:
    for number, (where, line) in enumerate(_read_lines(path)):
        cells = line.split("\t") if line.count("\t") == 2 else line.split()
        if len(cells) == 4:  # the second column of TREC's format has no meaning
            del cells[1]
        try:
            query, document, score = cells
            yield query, document, int(score)
        except ValueError as error:
            if number == 0 and len(cells) == 3:  # a heading
                continue
            raise InvalidQuery(
                f"{where}: not a judgment", path=path, expected="query, document and an integer score"
            ) from error


def _read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines that are not blank, each with its place for messages."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield f"line {number}", line.strip("\r\n")
    except UnicodeDecodeError as error:
        raise InvalidQuery("not UTF-8", path=path, actual=f"byte {error.start}") from error
    except OSError as error:
        raise access_failed(error, "read", path) from error
