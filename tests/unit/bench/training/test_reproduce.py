"""The reproductions on a tiny collection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.training.tiny_run import tiny_encoder, write_collection

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("transformers", reason="training needs transformers")
pytest.importorskip("matplotlib", reason="plots need matplotlib")

from bench.__main__ import main  # noqa: E402
from bench.data.collections import read_collection  # noqa: E402
from bench.harness.records import read_records  # noqa: E402
from bench.training.reproduction.ranks import reciprocals, unpack_ranks  # noqa: E402
from quarry.training.data.beir import draw_held_out_titles  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")


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
    # The collection has fewer documents (24) than there are candidates, so the first step loses none.
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


def test_models_are_trained_on_joined_paragraphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, out = _arguments("first_vectors", tmp_path, monkeypatch)
    arguments[arguments.index("--held-out") + 1] = "2"
    arguments[arguments.index("--tokens") + 1] = "16"
    arguments += ["--vectors", "1", "--joined", "2", "--seeds", "0"]
    assert main(arguments) == 0
    assert main([*arguments, "--trained-on", "2"]) == 0
    single, joined = (each for each in read_records(out) if each["search"] == "dense")
    assert single["trained_on"] == 1
    assert joined["trained_on"] == 2
    assert joined["ranks"] != single["ranks"]
    (folder,) = (tmp_path / "runs").glob("*/joined-2/letters")
    whole = read_collection(tmp_path / "letters", "train")
    trained = read_collection(folder, "train")
    assert 2 * len(trained.documents) < len(whole.documents) + 2  # in twos, without two articles
    assert {title for title, _, _ in (text.partition("\n") for text in trained.documents.values())} == (
        {text.partition("\n")[0] for text in whole.documents.values()}
        - draw_held_out_titles(tmp_path / "letters", 2)
    )
    for query, judged in trained.qrels.items():
        paragraphs = [whole.documents[name].partition("\n")[2] for name in whole.qrels[query]]
        texts = [trained.documents[name] for name in judged]
        assert all(any(paragraph in text for text in texts) for paragraph in paragraphs)


def test_parts_of_aggretriever_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, out = _arguments("aggregation", tmp_path, monkeypatch)
    _give_it_a_predictor(tmp_path / "checkpoint")
    assert main([*arguments, "--seeds", "0"]) == 0
    records = read_records(out)
    assert len(records) == 11
    of_model = [each["ranks"] for each in records if each["model"] == "agg"]
    assert len(set(map(str, of_model))) == 3
    assert sum(line.startswith("| agg") for line in capsys.readouterr().out.splitlines()) == 9


def test_codes_start_from_a_checkpoint_trained_for_one_vector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, out = _arguments("compression", tmp_path, monkeypatch)
    arguments += ["--code-bytes", "4", "--frozen-layers", "0", "--seeds", "0", "--methods", "opq"]
    assert main(arguments) == 0
    assert main([*arguments, "--first-steps", "3", "--first-rate", "1e-3"]) == 0
    plain, trained = read_records(out)
    assert (plain["first_steps"], trained["first_steps"]) == (0, 3)
    assert plain["quantization_error"] != trained["quantization_error"]


def _arguments(experiment: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Path]:
    """Return arguments for a run of seconds, and its file of results."""
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
