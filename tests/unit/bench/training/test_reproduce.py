"""The reproductions in small: bootstrap, table, and a run of every method on a tiny collection."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder
from support.training.tiny_run import tiny_encoder, write_collection

torch = pytest.importorskip("torch", reason="training is made of torch")
pytest.importorskip("transformers", reason="transformers runs the networks that are trained")
pytest.importorskip("matplotlib", reason="curves are drawn by matplotlib")

from bench.__main__ import main  # noqa: E402
from bench.data.collections import Collection, read_collection  # noqa: E402
from bench.harness.records import read_records  # noqa: E402
from bench.training.collections import join_documents  # noqa: E402
from bench.training.reproduction.bootstrap import paired_difference, seed_means  # noqa: E402
from bench.training.reproduction.first_vectors import LexicalScores  # noqa: E402
from bench.training.reproduction.ranks import pack_ranks, rank_relevant, reciprocals, unpack_ranks  # noqa: E402
from quarry.engine import Engine, build  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")


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
    # The interval is that of the normal approximation, here.
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


def test_every_method_is_trained_and_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, out = _arguments("compression", tmp_path, monkeypatch)
    arguments += ["--code-bytes", "4", "--frozen-layers", "0", "--seeds", "0", "1"]
    assert main([*arguments, "--methods", "opq", "dpq", "clustering", "repconc", "jpq", "repconc+jpq"]) == 0
    records = read_records(out)
    assert len(records) == 12
    for record in records:
        ranks = unpack_ranks(record["ranks"])
        assert len(ranks) == 48
        assert float(str(record["rr_10"])) == pytest.approx(reciprocals(ranks).mean(), abs=1e-5)
        assert 1 <= float(str(record["effective_codewords"])) <= 16
    opq, dpq = ([each["ranks"] for each in records if each["method"] == method] for method in ("opq", "dpq"))
    assert opq != dpq
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 4 |")]
    assert [line.split(" | ")[1] for line in table] == [
        "opq",
        "dpq",
        "clustering",
        "repconc",
        "jpq",
        "repconc+jpq",
    ]
    before = out.read_bytes()
    assert main([*arguments, "--methods", "opq"]) == 0
    assert out.read_bytes() == before
    assert json.loads(before.splitlines()[0])["collection"] == "letters"


def test_centroids_are_compared_with_one_vector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, out = _arguments("pseudo_queries", tmp_path, monkeypatch)
    assert main([*arguments, "--centroids", "1", "3", "--seeds", "0"]) == 0
    one, three = read_records(out)
    assert set(one["ms"]) == {"one vector", "late interaction"}
    assert set(three["ms"]) == {"all documents", "two steps"}
    # The 24 documents of the collection are fewer than the candidates, so nothing is lost by the first step.
    assert three["ranks_two_steps"] == three["ranks"] != one["ranks"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines if line.startswith(("| 1 ", "| 3 "))] == ["| 1", "| 3"]


def test_first_vectors_are_compared_by_length_and_with_both_parts_of_a_hybrid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, out = _arguments("first_vectors", tmp_path, monkeypatch)
    arguments[arguments.index("--held-out") + 1] = "2"
    assert main([*arguments, "--vectors", "1", "3", "--joined", "1", "2", "--seeds", "0"]) == 0
    records = read_records(out)
    assert len(records) == 10
    quality = {(each["paragraphs"], each["vectors"], each["search"]): each["rr_10"] for each in records}
    assert quality[1, 0, "bm25"] > 0.8
    assert all("weight" in each for each in records if each["search"] == "hybrid")
    assert sum(line.startswith(("| 1 |", "| 2 |")) for line in capsys.readouterr().out.splitlines()) == 10


def test_parts_of_aggretriever_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, out = _arguments("aggregation", tmp_path, monkeypatch)
    _give_it_a_predictor(tmp_path / "checkpoint")
    assert main([*arguments, "--seeds", "0"]) == 0
    records = read_records(out)
    assert len(records) == 11
    of_model = [each["ranks"] for each in records if each["model"] == "agg*"]
    assert len(set(map(str, of_model))) == 3
    assert sum(line.startswith("| agg") for line in capsys.readouterr().out.splitlines()) == 9


def _arguments(experiment: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Path]:
    """Arguments for a run of seconds, and its file of results."""
    monkeypatch.setenv("QUARRY_DATA", str(folder))
    collection = write_collection(folder / "letters")
    qrels = (collection / "qrels" / "train.tsv").read_text("utf-8")
    (collection / "qrels" / "dev.tsv").write_text(qrels, "utf-8")
    out = folder / "out.jsonl"
    arguments = ["reproduce", experiment, str(tiny_encoder(folder / "checkpoint")), "--collection", "letters"]
    arguments += ["--steps", "2", "--batch-size", "8", "--held-out", "0", "--precision", "fp32", "--out", str(out)]
    arguments += ["--search-tokens", "20", "--tokens", "32", "--runs", str(folder / "runs")]
    return arguments, out


def _give_it_a_predictor(folder: Path) -> None:
    """Replace the weights by random ones with a masked-language-model head."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    BertForMaskedLM(BertConfig.from_pretrained(folder)).save_pretrained(folder)
