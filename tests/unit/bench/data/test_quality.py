from __future__ import annotations

import gzip
import math
import os

import numpy as np
import pytest

from bench.data.collections import Collection, data_folder, read_collection
from bench.data.quality import measure_quality
from quarry.formats.errors import AccessFailed

CORPUS = b"""{"_id": "d1", "title": "A title", "text": "caf\xc3\xa9"}
{"_id": "d2", "title": "", "text": "no title"}
{"_id": "d3", "text": "none at all"}
"""
QUERIES = b'{"_id": "q1", "text": "one"}\n{"_id": "q2", "text": "two"}\n{"_id": "q3", "text": "three"}\n'
QRELS = "query-id\tcorpus-id\tscore\nq2\td3\t2\nq2\td1\t1\nq1\td1\t4\n"


def dcg(gains):
    return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains))


class TestQuality:
    def test_graded_judgments(self):
        """Graded judgments: of three relevant documents the second is found first and the best second."""
        qrels = {"q": {"best": 4, "fair": 1, "good": 2, "bad": 0}}
        found = measure_quality(qrels, {"q": {"fair": 3.0, "best": 2.0, "new": 1.0}})
        assert found.ndcg_10 == pytest.approx(dcg([1, 4]) / dcg([4, 2, 1]))
        assert found.ndcg_exp_10 == pytest.approx(dcg([1, 15]) / dcg([15, 3, 1]))
        assert found.recall_100 == pytest.approx(2 / 3)
        assert found.rr_10 == 1

    def test_one_relevant_document(self):
        run = {"q": {f"d{rank}": 1.0 / rank for rank in range(1, 200)}}
        first, tenth, eleventh, last = (
            measure_quality({"q": {name: 1}}, run) for name in ("d1", "d10", "d11", "d101")
        )
        assert (first.ndcg_10, first.ndcg_exp_10, first.recall_100, first.rr_10) == (1, 1, 1, 1)
        assert tenth.ndcg_10 == pytest.approx(1 / math.log2(11))
        assert tenth.rr_10 == pytest.approx(0.1)
        assert (eleventh.ndcg_10, eleventh.recall_100, eleventh.rr_10) == (0, 1, 0)
        assert (last.ndcg_10, last.recall_100, last.rr_10) == (0, 0, 0)

    def test_a_query_without_an_answer_counts_as_nothing_found(self):
        found = measure_quality({"a": {"d": 1}, "b": {"d": 1}}, {"a": {"d": 1.0}})
        assert (found.ndcg_10, found.recall_100, found.rr_10) == (0.5, 0.5, 0.5)

    def test_negative_scores_rank_too(self):
        found = measure_quality({"q": {"d": 1}}, {"q": {"d": -0.5, "e": -0.25}})
        assert found.rr_10 == 0.5

    def test_no_judgments(self):
        with pytest.raises(ValueError, match="no judgments"):
            measure_quality({}, {"q": {"d": 1.0}})


@pytest.fixture(params=[False, True], ids=["plain", "gzip"])
def folder(request, tmp_path):
    corpus = gzip.compress(CORPUS) if request.param else CORPUS
    (tmp_path / ("corpus.jsonl.gz" if request.param else "corpus.jsonl")).write_bytes(corpus)
    (tmp_path / "queries.jsonl").write_bytes(QUERIES)
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text(QRELS, encoding="utf-8")
    return tmp_path


class TestReadCollection:
    def test_reads_what_the_split_judges(self, folder):
        found = read_collection(folder, "test")
        assert (found.name, found.split) == (folder.name, "test")
        assert found.documents == {"d1": "A title\ncafé", "d2": "no title", "d3": "none at all"}
        assert found.queries == {"q1": "one", "q2": "two"}
        assert found.qrels == {"q2": {"d3": 2, "d1": 1}, "q1": {"d1": 4}}

    def test_missing_files(self, folder):
        with pytest.raises(AccessFailed, match=r"dev\.tsv: cannot be read; .*No such file"):
            read_collection(folder, "dev")
        (folder / "queries.jsonl").unlink()
        with pytest.raises(FileNotFoundError, match=r"queries\.jsonl"):
            read_collection(folder, "test")

    @pytest.mark.parametrize("line", ["q9\td1\t1\n", "q1\td9\t1\n"])
    def test_judgments_of_what_is_not_there(self, folder, line):
        (folder / "qrels" / "test.tsv").write_text(QRELS + line, encoding="utf-8")
        with pytest.raises(ValueError, match=r"[qd]9"):
            read_collection(folder, "test")


class TestSubset:
    @pytest.fixture
    def collection(self):
        qrels = {f"q{n}": {f"d{n * 10}": 1} for n in range(10)}
        return Collection(
            "made-up",
            "test",
            {f"d{n}": f"text {n}" for n in range(100)},
            {query: query for query in qrels},
            qrels,
        )

    def test_keeps_every_judged_document(self, collection):
        found = collection.subset(40, 5)
        assert list(found.queries) == list(found.qrels) == ["q0", "q2", "q4", "q6", "q8"]
        assert len(found.documents) == 40
        assert {f"d{n * 10}" for n in range(10)} <= found.documents.keys()
        order = [int(document[1:]) for document in found.documents]
        assert order == sorted(order)
        assert np.diff(order).max() <= 5

    def test_a_subset_without_limits_is_the_whole_collection(self, collection):
        assert collection.subset(None, None) == collection
        assert collection.subset(1000, 1000) == collection

    def test_fewer_documents_than_judged_ones_keeps_those(self, collection):
        assert len(collection.subset(3, None).documents) == 10


class TestDataFolder:
    def test_by_name_below_the_variable(self, tmp_path, monkeypatch):
        (tmp_path / "made-up").mkdir()
        monkeypatch.setenv("QUARRY_DATA", os.fspath(tmp_path))
        assert data_folder("made-up") == tmp_path / "made-up"

    def test_by_path(self, tmp_path, monkeypatch):
        monkeypatch.setenv("QUARRY_DATA", os.fspath(tmp_path / "elsewhere"))
        assert data_folder(os.fspath(tmp_path)) == tmp_path

    def test_neither(self, tmp_path, monkeypatch):
        monkeypatch.setenv("QUARRY_DATA", os.fspath(tmp_path))
        with pytest.raises(FileNotFoundError, match="no collection 'made-up'"):
            data_folder("made-up")
