"""The command that calibrates relevance between languages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.harness.records import read_records
from bench.training import between_languages
from quarry.engine import InvalidSetting, open_encoder
from quarry.engine.bundled import default_bundle_path
from quarry.formats.bundle.relevance import BETWEEN_LANGUAGES, RELEVANCE_NAME, read_relevance

LANGUAGES = ("en", "es", "ar", "zh", "ru", "tr", "de", "el", "hi", "ro", "th", "vi")  # six are fitted on


@pytest.fixture
def folders(small_corpus: list[dict[str, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Collections of "languages", every second of which has the words in reversed order, in BEIR's layout."""
    for number, language in enumerate(LANGUAGES):
        folder = tmp_path / "xquad" / language
        (folder / "qrels").mkdir(parents=True)
        texts = [str(each["text"]).split() for each in small_corpus[:12]]
        rows = [
            {"_id": f"d{place}", "title": "", "text": " ".join(words[:: 1 if number % 2 else -1])}
            for place, words in enumerate(texts)
        ]
        (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
        rows = [{"_id": f"q{place}", "text": " ".join(words[:8])} for place, words in enumerate(texts)]
        (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, rows)))
        lines = [f"q{place}\td{place}\t1" for place in range(len(texts))]
        (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]))
    monkeypatch.setenv("QUARRY_DATA", str(tmp_path))
    return tmp_path


def test_a_bundle_is_calibrated_and_measured(folders: Path) -> None:
    bundle, out = folders / "bundle", folders / "results.jsonl"
    shutil.copytree(default_bundle_path(), bundle)
    arguments = ["between_languages", "--encoder", str(bundle), "--indexes", str(folders / "indexes")]
    before = read_relevance(bundle / RELEVANCE_NAME)
    assert main([*arguments, "--write", str(bundle)]) == 0
    after = read_relevance(bundle / RELEVANCE_NAME)
    assert after.collections == (*before.collections, "xquad")
    assert {name: after.models[name] for name in before.models} == before.models
    assert after.models[BETWEEN_LANGUAGES].weights["dense"] > 0
    assert main([*arguments, "--out", str(out)]) == 0
    records = read_records(out)
    groups = ["same language", "other, none fitted on", "other, one fitted on"]
    assert [(each["first_hits"], each["mode"]) for each in records] == [
        (group, mode) for mode in ("hybrid", "dense") for group in groups
    ]
    for record in records:
        assert record["right"] > record["none"]
        assert record["auc"] > 0.9
        assert (
            sum(n for n, _ in record["bins"])
            == 12
            * {
                "same language": 12,
                "other, none fitted on": 6 * 5,
                "other, one fitted on": 2 * 6 * 6,
            }[record["first_hits"]]
        )


def test_an_encoder_without_a_calibration_is_refused(folders: Path) -> None:
    bundle = folders / "bundle"
    shutil.copytree(default_bundle_path(), bundle)
    manifest = json.loads((bundle / "bundle.json").read_bytes())
    del manifest["files"][RELEVANCE_NAME]
    (bundle / "bundle.json").write_text(json.dumps(manifest))
    (bundle / RELEVANCE_NAME).unlink()
    with pytest.raises(InvalidSetting, match="has no calibration"):
        between_languages.shipped_models(open_encoder(bundle))
