"""Tools of the reproductions: ranks, bootstrap, joined documents, BM25."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder
from support.training.tiny_run import write_collection

torch = pytest.importorskip("torch", reason="training is made of torch")
pytest.importorskip("transformers", reason="transformers runs the networks that are trained")

from bench.data.collections import Collection, read_collection  # noqa: E402
from bench.training.collections import join_documents  # noqa: E402
from bench.training.reproduction.bootstrap import paired_difference, seed_means  # noqa: E402
from bench.training.reproduction.first_vectors import LexicalScores  # noqa: E402
from bench.training.reproduction.ranks import pack_ranks, rank_relevant, reciprocals, unpack_ranks  # noqa: E402
from quarry.engine import Engine, build  # noqa: E402


def test_a_difference_is_sure_when_most_queries_agree() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(400)
    noise = rng.normal(0, 0.1, 400)
    better, same = (
        paired_difference(base + 0.05 + noise, base),
        paired_difference(base + noise - noise.mean(), base),
    )
    assert better.mean == pytest.approx(0.05 + noise.mean())
    assert 0 < better.low < better.mean < better.high
    assert same.low < 0 < same.high
    # The interval is compared with the normal approximation.
    half = 1.96 * noise.std() / 20
    assert better.low == pytest.approx(better.mean - half, abs=0.15 * half)
    assert better.high == pytest.approx(better.mean + half, abs=0.15 * half)


def test_values_without_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        paired_difference(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match="no pairs"):
        paired_difference(np.ones(0), np.ones(0))


def test_runs_of_several_seeds_are_averaged_query_by_query() -> None:
    np.testing.assert_array_equal(seed_means([[1, 0, 0.5], [0, 0, 0.5]]), [0.5, 0, 0.5])


def test_ranks_are_those_of_the_first_relevant_document() -> None:
    scores = torch.tensor([[3.0, 1.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]])
    np.testing.assert_array_equal(rank_relevant(scores, [[1, 3], [2], []]), [3, 3, 0])
    many = torch.arange(12.0)[None, :]
    np.testing.assert_array_equal(rank_relevant(many, [[2]]), [10])
    np.testing.assert_array_equal(rank_relevant(many, [[1]]), [0])
    np.testing.assert_allclose(reciprocals(np.array([0, 1, 4], np.uint8)), [0, 1, 0.25])


def test_packed_ranks_are_read_again() -> None:
    ranks = np.random.default_rng(0).integers(0, 11, 1000).astype(np.uint8)
    np.testing.assert_array_equal(unpack_ranks(pack_ranks(ranks)), ranks)


def test_paragraphs_of_an_article_are_joined() -> None:
    documents = {"a": "one\nx", "b": "one\ny", "c": "one\nz", "d": "two\nu", "e": "one\nv"}
    qrels = {"q": {"b": 1, "c": 2}, "r": {"d": 1, "a": 0}}
    joined = join_documents(Collection("n", "dev", documents, {"q": "", "r": ""}, qrels), 2)
    assert joined.documents == {"a": "one\nx\ny", "c": "one\nz", "d": "two\nu", "e": "one\nv"}
    assert joined.qrels == {"q": {"a": 1, "c": 2}, "r": {"d": 1, "a": 0}}
    assert join_documents(joined, 1) == joined


def test_lexical_scores_are_those_of_the_engine(tmp_path: Path) -> None:
    collection = read_collection(write_collection(tmp_path / "letters"), "train")
    scores = LexicalScores(collection).scores(slice(0, None)).numpy()
    build(({"id": name, "text": text} for name, text in collection.documents.items()), tmp_path / "index",
          encoder=WordEncoder(), progress=False)  # fmt: skip
    with Engine.open(tmp_path / "index", encoder=WordEncoder()) as engine:
        answers = engine.search(list(collection.queries.values()), len(collection.documents), mode="lexical")
    names = list(collection.documents)
    for row, hits in zip(scores, answers, strict=True):
        assert len(hits) == np.count_nonzero(row)
        np.testing.assert_allclose(
            [hit.score for hit in hits], row[[names.index(hit.id) for hit in hits]], rtol=1e-5
        )
