"""The comparison of hits before and after a reranker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import write_reranker_checkpoint

from bench.__main__ import COMMANDS, main
from bench.data.collections import Collection
from bench.harness.records import read_records
from bench.training import rerankers
from bench.training.rerankers import first_hits, measure_reranker
from quarry.engine import Engine, build
from quarry.exporters.export import export_reranker


class LengthReranker:
    """Scores a text by its length."""

    name = "length"

    def scores(self, query: str, texts: Sequence[str]) -> np.ndarray:
        del query
        return np.array([len(text) for text in texts], np.float32)


def small(corpus: list[dict[str, object]]) -> Collection:
    documents = {str(each["id"]): str(each["text"]) for each in corpus}
    name = max(documents, key=lambda key: len(documents[key]))
    queries = {"q": documents[name][:60], "unjudged": "text"}
    return Collection("small", "test", documents, queries, {"q": {name: 1}})


def test_the_first_hits_are_reordered_and_the_rest_stays(small_corpus: list[dict[str, object]]) -> None:
    collection = small(small_corpus)
    (relevant,) = collection.qrels["q"]
    others = [name for name in collection.documents if name != relevant]
    hits = {"q": [*others[:2], relevant, *others[2:]]}
    found = {
        depth: quality for depth, quality, _ in measure_reranker(collection, hits, LengthReranker(), (2, 3, 50))
    }
    assert found[2].rr_10 == pytest.approx(1 / 3)
    assert found[3].rr_10 == found[50].rr_10 == 1


def test_reranked_hits_are_those_of_the_engine(small_corpus: list[dict[str, object]], tmp_path: Path) -> None:
    collection = small(small_corpus)
    hits = first_hits(collection, 10)
    assert list(hits) == ["q"]
    build(
        ({"id": key, "text": text} for key, text in collection.documents.items()), tmp_path / "i", progress=False
    )
    with Engine.open(tmp_path / "i", reranker=LengthReranker()) as opened:
        expected = [hit.id for hit in opened.search(collection.queries["q"], 5, rerank=5)]
    texts = [collection.documents[name] for name in hits["q"][:5]]
    scores = LengthReranker().scores("", texts).tolist()
    assert rerankers._reranked(hits["q"], scores)[:5] == expected


def test_the_command_records_every_depth(
    small_corpus: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in COMMANDS["rerankers"].needs:
        pytest.importorskip(module, reason=f"the measurement needs {module}")
    pytest.importorskip("onnx", reason="the export needs onnx")
    bundle = export_reranker(write_reranker_checkpoint(tmp_path / "checkpoint"), tmp_path / "bundle", "fp32")
    monkeypatch.setitem(rerankers.COLLECTIONS, "cranfield", lambda: small(small_corpus))
    out = tmp_path / "results.jsonl"
    arguments = ["rerankers", str(bundle.path), "--on", "cranfield", "--depths", "2", "4", "--out", str(out)]
    assert main(arguments) == 0
    assert [each["depth"] for each in read_records(out)] == [2, 4]
