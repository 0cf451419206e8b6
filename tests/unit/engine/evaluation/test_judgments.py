"""Queries and judgments in the formats of BEIR and TREC."""

from __future__ import annotations

import pytest

from quarry.engine import AccessFailed, InvalidQuery
from quarry.engine.evaluation.judgments import read_judged_queries

JSON_LINES = (
    '{"_id": "q1", "text": "one"}\n\n{"id": 2, "text": "é two", "metadata": {}}\n{"_id": "q3", "text": "x"}\n'
)


@pytest.fixture
def write(tmp_path):
    def made(queries, qrels):
        (tmp_path / "queries").write_bytes(queries if isinstance(queries, bytes) else queries.encode())
        (tmp_path / "qrels").write_text(qrels, encoding="utf-8")
        return tmp_path / "queries", tmp_path / "qrels"

    return made


@pytest.mark.parametrize(
    "queries", [JSON_LINES, "q1\tone\n2\té two\nq3\tx", "\ufeffq1\tone\r\n2\té two\r\nq3\tx\r\n"]
)
@pytest.mark.parametrize(
    "qrels",
    [
        "query-id\tcorpus-id\tscore\nq1\td 1\t1\nq1\td2\t0\n2\té\t2\nq3\td\t0\nelse\td\t1\n",
        "q1\td 1\t1\nq1\td2\t0\n2\té\t2\n",
    ],
)
def test_beir(write, queries, qrels):
    found = read_judged_queries(*write(queries, qrels))
    assert found.texts == ("one", "é two")
    assert found.judged == ({"d 1": 1, "d2": 0}, {"é": 2})
    assert found.n_without == 1


def test_trec(write):
    found = read_judged_queries(*write("q1\tone", "q1 0 d1 1\nq1 Q0 d2 -1\n"))
    assert (found.texts, found.judged) == (("one",), ({"d1": 1, "d2": -1},))


@pytest.mark.parametrize(
    ("queries", "qrels", "message"),
    [
        ("no tab", "q d 1", "line 1: not a query"),
        ("{", "q d 1", "line 1: not JSON"),
        ('{"_id": "q"}', "q d 1", "line 1: not a query"),
        ("q\tx", "q d 1\nq d one", "line 2: not a judgment"),
        ("q\tx", "q d", "line 1: not a judgment"),
        ("q\tx", "q d 0", "no query has a relevant document"),
        ("", "", "no query has a relevant document"),
        (b"q\t\xff", "q d 1", "not UTF-8"),
        (
            "q\tx",
            "q d 1\nq e 1\nq d 2",
            "query 'q' has two judgments of document 'd'; expected one score; found 1 and 2",
        ),
    ],
)
def test_what_is_not_valid(write, queries, qrels, message):
    with pytest.raises(InvalidQuery, match=message):
        read_judged_queries(*write(queries, qrels))


def test_a_missing_file(tmp_path):
    with pytest.raises(AccessFailed):
        read_judged_queries(tmp_path / "nothing", tmp_path / "nothing")
