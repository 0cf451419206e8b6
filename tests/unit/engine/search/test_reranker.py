"""Rerankers score pairs independently and raise typed errors; scores are tested in tests/differential."""

from __future__ import annotations

import json
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import write_checkpoint, write_reranker_checkpoint

from quarry.engine import open_encoder
from quarry.engine.bundled import default_bundle_path
from quarry.engine.search.reranker import OnnxReranker, Reranker, open_reranker
from quarry.exporters.export import export, export_reranker
from quarry.formats.bundle.reranker import RerankerBundle, write_reranker_bundle
from quarry.formats.errors import ChecksumMismatch, CorruptFile, InvalidDocument, InvalidQuery, InvalidSetting

QUERY = "the cat?"
TEXTS = (
    "The cat sat on the mat.",
    "a",
    "Ünïcödé, 北京 and 😀 emoji: ﬁne?",
    "One sentence here. Another one there! " * 5,
    "x" * 100,
    "A line\nand another line\n\nand a third one.",
    "3.14159 (pi) [see below] -- \"quoted\" 'text'",
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> RerankerBundle:
    root = tmp_path_factory.mktemp("tiny")
    return export_reranker(write_reranker_checkpoint(root / "checkpoint"), root / "fp32", "fp32")


@pytest.fixture(scope="module")
def small(tiny: RerankerBundle) -> RerankerBundle:
    pairs = [("cat", "the cat sat."), ("cat", "a dog"), ("abc?", "abc def ghi jkl"), ("z", "ddd")]
    return export_reranker(tiny.path.parent / "checkpoint", tiny.path.parent / "int8", "int8", pairs=pairs)


@pytest.fixture(params=["fp32", "int8"])
def bundle(request: pytest.FixtureRequest, tiny: RerankerBundle, small: RerankerBundle) -> RerankerBundle:
    return {"fp32": tiny, "int8": small}[request.param]


def rewritten(bundle: RerankerBundle, folder: Path, **changes: object) -> RerankerBundle:
    """Copy a bundle with other settings, or with other contents of files given by name."""
    contents = {name: bundle.path / name for name in bundle.files}
    for key in [key for key in changes if "." in key]:
        contents[key] = changes.pop(key)
    return write_reranker_bundle(folder, replace(bundle.settings, **changes), contents)


def test_a_bundles_folder_is_opened(tiny: RerankerBundle) -> None:
    reranker = open_reranker(tiny.path)
    assert isinstance(reranker, OnnxReranker)
    assert isinstance(reranker, Reranker)
    assert reranker.name == "checkpoint"
    assert open_reranker(str(tiny.path)).name == reranker.name
    assert open_reranker(reranker) is reranker
    assert "fp32" in repr(reranker)


@pytest.mark.parametrize("source", [3, b"bytes", object(), None])
def test_anything_else_is_no_reranker(source: object) -> None:
    with pytest.raises(InvalidSetting, match="not a reranker"):
        open_reranker(source)  # type: ignore[arg-type]


def test_encoders_and_rerankers_are_not_opened_as_each_other(tiny: RerankerBundle) -> None:
    with pytest.raises(InvalidSetting, match="contains no encoder; expected kind encoder; found kind reranker"):
        open_encoder(tiny.path)
    with pytest.raises(InvalidSetting, match="contains no reranker; expected kind reranker; found kind encoder"):
        open_reranker(default_bundle_path())


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_a_bad_number_of_threads_is_refused(tiny: RerankerBundle, threads: object) -> None:
    with pytest.raises(InvalidSetting, match="threads"):
        open_reranker(tiny.path, threads=threads)  # type: ignore[arg-type]


def test_scores_are_float32_in_the_order_of_texts(bundle: RerankerBundle) -> None:
    scores = open_reranker(bundle.path).scores(QUERY, TEXTS)
    assert scores.dtype == np.float32
    assert scores.shape == (len(TEXTS),)
    assert np.isfinite(scores).all()
    assert len(set(scores.tolist())) == len(TEXTS)


def test_no_texts_have_no_scores(tiny: RerankerBundle) -> None:
    scores = open_reranker(tiny.path).scores(QUERY, [])
    assert scores.shape == (0,)
    assert scores.dtype == np.float32


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_scores_do_not_depend_on_neighbors_order_or_threads(bundle: RerankerBundle, threads: int) -> None:
    lone = open_reranker(bundle.path)
    alone = {text: lone.scores(QUERY, [text]).tobytes() for text in TEXTS}
    shuffled = list(TEXTS) * 4
    random.Random(threads).shuffle(shuffled)
    together = open_reranker(bundle.path, threads=threads).scores(QUERY, shuffled)
    assert [score.tobytes() for score in together] == [alone[text] for text in shuffled]


def test_it_may_be_called_from_several_threads(bundle: RerankerBundle) -> None:
    reranker = open_reranker(bundle.path, threads=2)
    queries = ["cat", "dog?", "a mat", "pi"] * 3
    expected = [reranker.scores(query, TEXTS).tobytes() for query in queries]
    fresh = open_reranker(bundle.path, threads=2)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda query: fresh.scores(query, TEXTS).tobytes(), queries))
    assert found == expected


def test_the_order_within_a_pair_matters(tiny: RerankerBundle) -> None:
    reranker = open_reranker(tiny.path)
    assert abs(reranker.scores("cat", ["dog"])[0] - reranker.scores("dog", ["cat"])[0]) > 1e-3


@pytest.mark.parametrize("query", ["", " \n", "\x00", "\u00a0\u2003"])
def test_a_query_without_tokens_is_refused(tiny: RerankerBundle, query: str) -> None:
    with pytest.raises(InvalidQuery, match="no token"):
        open_reranker(tiny.path).scores(query, TEXTS)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("text", ["", " \n", "\x00", "\u00a0\u2003"])
def test_a_text_without_tokens_is_named(tiny: RerankerBundle, text: str, threads: int) -> None:
    with pytest.raises(InvalidDocument, match="text 2 has no token"):
        open_reranker(tiny.path, threads).scores(QUERY, ["a", "b", text, "c", text])


@pytest.mark.parametrize("text", ["\ud800", "fine until here \udfff and on"])
def test_lone_surrogates_are_refused(tiny: RerankerBundle, text: str) -> None:
    position = next(i for i, character in enumerate(text) if "\ud800" <= character <= "\udfff")
    with pytest.raises(InvalidQuery, match=f"lone surrogate at character {position}"):
        open_reranker(tiny.path).scores(text, TEXTS)
    with pytest.raises(InvalidDocument, match=f"text 1 holds a lone surrogate at character {position}"):
        open_reranker(tiny.path).scores(QUERY, ["a", text])


def test_values_that_are_not_strings_are_refused(tiny: RerankerBundle) -> None:
    reranker = open_reranker(tiny.path)
    with pytest.raises(InvalidQuery, match="not a str but bytes"):
        reranker.scores(b"cat", TEXTS)  # type: ignore[arg-type]
    with pytest.raises(InvalidDocument, match="text 1 is not a str but NoneType"):
        reranker.scores(QUERY, ["a", None])  # type: ignore[list-item]
    with pytest.raises(InvalidDocument, match="one string instead of a sequence"):
        reranker.scores(QUERY, "a text")


def test_a_changed_graph_is_not_run(tiny: RerankerBundle, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny.path, tmp_path / "bundle"))
    content = bytearray((folder / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "model.onnx").write_bytes(content)
    reranker = open_reranker(folder)
    with pytest.raises(ChecksumMismatch, match=r"model\.onnx"):
        reranker.scores(QUERY, TEXTS)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_invalid_files_with_correct_checksums_are_refused(tiny: RerankerBundle, tmp_path: Path, name: str) -> None:
    reranker = OnnxReranker(rewritten(tiny, tmp_path / "bundle", **{name: b"not this"}))
    with pytest.raises(CorruptFile, match=name):
        reranker.scores(QUERY, TEXTS)


def test_an_encoders_graph_in_a_rerankers_bundle_is_refused(tiny: RerankerBundle, tmp_path: Path) -> None:
    encoder = export(write_checkpoint(tmp_path / "checkpoint"), tmp_path / "encoder", "fp32")
    bundle = rewritten(tiny, tmp_path / "bundle", **{"model.onnx": encoder.model_path})
    with pytest.raises(CorruptFile, match="other inputs or outputs than a reranker's"):
        OnnxReranker(bundle).scores(QUERY, TEXTS)


def test_a_tokenizer_that_does_not_frame_pairs_is_refused(tiny: RerankerBundle, tmp_path: Path) -> None:
    tokenizer = json.loads(tiny.tokenizer_path.read_bytes())
    tokenizer["post_processor"]["pair"] = tokenizer["post_processor"]["single"]
    bundle = rewritten(tiny, tmp_path / "bundle", **{"tokenizer.json": json.dumps(tokenizer).encode()})
    with pytest.raises(CorruptFile, match="does not combine pairs"):
        OnnxReranker(bundle).scores(QUERY, TEXTS)


@pytest.mark.parametrize(("window", "fits"), [(6, False), (7, True), (8, True), (3, False)])
def test_a_window_needs_room_for_text(tiny: RerankerBundle, tmp_path: Path, window: int, fits: bool) -> None:
    reranker = OnnxReranker(rewritten(tiny, tmp_path / "bundle", window=window))
    if fits:
        assert np.isfinite(reranker.scores("a long query", ["some text"])).all()
    else:
        with pytest.raises(CorruptFile, match="no room for text"):
            reranker.scores(QUERY, TEXTS)
