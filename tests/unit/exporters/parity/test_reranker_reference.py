"""A reranker's bundle is checked with the scores that its export recorded."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from support.models.tiny_checkpoint import reranker_weights, write_reranker_checkpoint

from quarry.engine.search.reranker import open_reranker
from quarry.exporters import command
from quarry.exporters.export import PRECISIONS, export_reranker
from quarry.exporters.parity.reranker import check_reranker_bundle
from quarry.formats.bundle.reranker import RerankerBundle, write_reranker_bundle
from quarry.formats.errors import ChecksumMismatch, CorruptFile, FormatTooNew, InvalidSetting

PAIRS = [("cat", "the cat sat."), ("cat", "a dog"), ("abc?", "abc def ghi jkl mno pqr stu vwx yz"), ("z", "ddd")]


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RerankerBundle]:
    root = tmp_path_factory.mktemp("rerankers")
    checkpoint = write_reranker_checkpoint(root / "checkpoint")
    return {name: export_reranker(checkpoint, root / name, name, pairs=PAIRS) for name in PRECISIONS}


def rewritten(bundle: RerankerBundle, folder: Path, **files: bytes | None) -> Path:
    contents: dict[str, bytes | Path | None] = {name: bundle.path / name for name in bundle.files}
    contents |= {name.replace("_", "."): content for name, content in files.items()}
    kept = {name: content for name, content in contents.items() if content is not None}
    return write_reranker_bundle(folder, bundle.settings, kept).path


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_bundle_can_be_checked_alone(variants: dict[str, RerankerBundle], precision: str) -> None:
    record = check_reranker_bundle(variants[precision].path)
    assert record.n_pairs == len(PAIRS)
    assert record.correlation >= 0.98
    if precision == "fp32":
        assert record.difference_max == 0


def test_scores_of_the_exact_graph_are_recorded(variants: dict[str, RerankerBundle]) -> None:
    recorded = {name: (bundle.path / "reference.json").read_bytes() for name, bundle in variants.items()}
    assert len(set(recorded.values())) == 1
    reranker = open_reranker(variants["fp32"].path)
    for entry, (query, text) in zip(json.loads(recorded["int8"]), PAIRS, strict=True):
        assert (entry["query"], entry["text"]) == (query, text)
        assert entry["score"] == reranker.scores(query, [text])[0]


def test_long_texts_and_many_pairs_are_cut(tmp_path: Path) -> None:
    checkpoint = write_reranker_checkpoint(tmp_path / "checkpoint")
    pairs = [("cat " * 300, f" dog {number}" * 300) for number in range(50)]
    bundle = export_reranker(checkpoint, tmp_path / "out", "fp32", pairs=pairs)
    assert bundle.files["reference.json"].n_bytes < 50_000
    assert len(json.loads((bundle.path / "reference.json").read_bytes())) == 40
    assert check_reranker_bundle(bundle.path).correlation == 1


def test_a_graph_with_other_scores_is_found(variants: dict[str, RerankerBundle], tmp_path: Path) -> None:
    weights = reranker_weights()
    weights["classifier.weight"] *= -1
    checkpoint = write_reranker_checkpoint(tmp_path / "checkpoint", weights=weights)
    other = export_reranker(checkpoint, tmp_path / "other", "fp32").model_path.read_bytes()
    path = rewritten(variants["fp32"], tmp_path / "bundle", model_onnx=other)
    with pytest.raises(InvalidSetting, match=r"most .* in the score of '.*' with '.*at least 0\.9999"):
        check_reranker_bundle(path)


def test_an_older_bundle_says_that_nothing_was_recorded(
    variants: dict[str, RerankerBundle], tmp_path: Path
) -> None:
    path = rewritten(variants["int8"], tmp_path / "bundle", reference_json=None)
    with pytest.raises(InvalidSetting, match=r"no recorded scores; .*exported again; expected reference\.json"):
        check_reranker_bundle(path)


def test_a_damaged_bundle_is_not_checked(variants: dict[str, RerankerBundle], tmp_path: Path) -> None:
    path = rewritten(variants["fp32"], tmp_path / "bundle")
    content = (path / "reference.json").read_bytes()
    (path / "reference.json").write_bytes(content[:-1] + b" ")
    with pytest.raises(ChecksumMismatch, match="reference"):
        check_reranker_bundle(path)


RECORDS = [
    b"3", b"[3]", b"{}", b"[", b'[{"query": "a"}]', b'[{"query": "a", "text": "b", "score": "high"}]',
    b'[{"query": "a", "text": "b", "score": 1e400}]', b'[{"query": "a", "text": "b", "score": 1, "more": 2}]',
    b'[{"query": ["a"], "text": "b", "score": 1.0}]',
]  # fmt: skip


@pytest.mark.parametrize("content", RECORDS)
def test_a_bad_record_is_refused(variants: dict[str, RerankerBundle], tmp_path: Path, content: bytes) -> None:
    path = rewritten(variants["fp32"], tmp_path / "bundle", reference_json=content)
    with pytest.raises(CorruptFile, match=r"reference\.json"):
        check_reranker_bundle(path)


@pytest.mark.parametrize("content", [b"[]", b'[{"query": "a", "text": "b", "score": 1.0}]'])
def test_a_record_of_too_little_is_refused(
    variants: dict[str, RerankerBundle], tmp_path: Path, content: bytes
) -> None:
    path = rewritten(variants["fp32"], tmp_path / "bundle", reference_json=content)
    with pytest.raises(InvalidSetting, match="pairs with different scores"):
        check_reranker_bundle(path)


def check(path: Path) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(path), "--check"]))


def test_the_command_checks_rerankers_too(
    variants: dict[str, RerankerBundle], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(variants["int8"].path) == 0
    assert (
        f"{variants['int8'].path}: as recorded (n_pairs {len(PAIRS)}, difference_mean" in capsys.readouterr().out
    )
    with pytest.raises(InvalidSetting, match="there is no bundle"):
        check(tmp_path)


def test_the_command_names_what_it_cannot_check(variants: dict[str, RerankerBundle], tmp_path: Path) -> None:
    path = rewritten(variants["fp32"], tmp_path / "bundle")
    manifest = json.loads((path / "bundle.json").read_bytes())
    (path / "bundle.json").write_text(json.dumps({**manifest, "kind": "oracle"}))
    with pytest.raises(InvalidSetting, match="contains no encoder; expected kind encoder; found kind oracle"):
        check(path)
    (path / "bundle.json").write_text(json.dumps({**manifest, "format": 2}))
    with pytest.raises(FormatTooNew):
        check(path)
