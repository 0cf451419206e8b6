"""The exported fp32 graphs are compared with an implementation of BERT in plain numpy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from support.models.tiny_checkpoint import (
    DIM,
    EPSILON,
    N_HEADS,
    N_LAYERS,
    N_POSITIONS,
    WORDS,
    Weights,
    random_weights,
    reranker_weights,
    write_checkpoint,
    write_reranker_checkpoint,
)

from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
from quarry.engine.search.reranker import open_reranker
from quarry.exporters.export import export, export_reranker

Array = npt.NDArray[np.float64]

MASKS = {
    "none": [[1] * 6, [1] * 6],
    "right padding": [[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]],
    "left padding": [[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]],
    "holes": [[1, 0, 1, 0, 0, 1], [0, 1, 1, 0, 1, 0]],
    "one token": [[1]],
    "one token among padding": [[0, 0, 1, 0]],
    "longest": [[1] * N_POSITIONS],
}


def reference(weights: Weights, ids: Array, mask: Array, types: Array) -> Array:
    """Return (batch, length, dim) hidden states, computed one text, head and layer at a time as in the paper."""
    return np.stack([_one_text(weights, *rows) for rows in zip(ids, mask, types, strict=True)])


def _one_text(weights: Weights, ids: Array, mask: Array, types: Array) -> Array:
    w = {name: values.astype(np.float64) for name, values in weights.items()}

    def linear(x: Array, name: str) -> Array:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    tables = {kind: w[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")}
    x = tables["word"][ids] + tables["position"][: len(ids)] + tables["token_type"][types]
    x = norm(x, "embeddings.LayerNorm")
    size = DIM // N_HEADS
    for number in range(N_LAYERS):
        layer = f"encoder.layer.{number}"
        q, k, v = (linear(x, f"{layer}.attention.self.{part}") for part in ("query", "key", "value"))
        heads = []
        for low in range(0, DIM, size):
            part = slice(low, low + size)
            logits = q[:, part] @ k[:, part].T / math.sqrt(size)
            weight = np.exp(logits - logits.max()) * mask
            heads.append(weight / weight.sum(-1, keepdims=True) @ v[:, part])
        attended = linear(np.concatenate(heads, -1), f"{layer}.attention.output.dense")
        x = norm(x + attended, f"{layer}.attention.output.LayerNorm")
        inner = linear(x, f"{layer}.intermediate.dense")
        inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = norm(x + linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return x


def reference_scores(weights: Weights, ids: Array, mask: Array, types: Array) -> Array:
    """Return (batch,) scores of a cross-encoder's head, from the first token's vector."""
    w = {name.removeprefix("bert."): values.astype(np.float64) for name, values in weights.items()}
    first = reference(w, ids, mask, types)[:, 0]
    pooled = np.tanh(first @ w["pooler.dense.weight"].T + w["pooler.dense.bias"])
    return (pooled @ w["classifier.weight"].T + w["classifier.bias"])[:, 0]


def run(bundle_path: Path, ids: Array, mask: Array, types: Array) -> tuple[Array, Array]:
    session = import_onnxruntime().InferenceSession(bundle_path / "model.onnx", providers=["CPUExecutionProvider"])
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    tokens, pooled = session.run(["token_vectors", "pooled"], inputs)
    return tokens, pooled


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Path]:
    root = tmp_path_factory.mktemp("graphs")
    paths = {}
    for pooling in ("mean_tokens", "cls_token"):
        for normalize in (True, False):
            name = f"{pooling}-{normalize}"
            checkpoint = write_checkpoint(root / name, pooling=pooling, normalize=normalize)
            paths[pooling, normalize] = export(checkpoint, root / f"{name}.bundle", "fp32").path
    return paths


def inputs_for(mask: list[list[int]]) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(len(mask[0]))
    shape = np.shape(mask)
    return rng.integers(0, len(WORDS), shape), np.array(mask, np.int64), rng.integers(0, 2, shape)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_token_vectors_equal_the_reference(bundles: dict[tuple[str, bool], Path], mask: list[list[int]]) -> None:
    ids, attention, types = inputs_for(mask)
    tokens, _ = run(bundles["mean_tokens", True], ids, attention, types)
    expected = reference(random_weights(), ids, attention, types)
    assert tokens.dtype == np.float32
    np.testing.assert_allclose(tokens, expected, atol=2e-5)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
@pytest.mark.parametrize("normalize", [True, False])
def test_pooled_equals_the_reference(
    bundles: dict[tuple[str, bool], Path], pooling: str, normalize: bool, mask: list[list[int]]
) -> None:
    ids, attention, types = inputs_for(mask)
    _, pooled = run(bundles[pooling, normalize], ids, attention, types)
    vectors = reference(random_weights(), ids, attention, types)
    if pooling == "mean_tokens":
        expected = np.stack([rows[kept == 1].mean(0) for rows, kept in zip(vectors, attention, strict=True)])
    else:
        expected = vectors[:, 0]
    if normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(pooled, expected, atol=2e-5)


def test_padding_does_not_change_the_tokens(bundles: dict[tuple[str, bool], Path]) -> None:
    ids, attention, types = inputs_for([[1, 1, 1, 0, 0]])
    padded, _ = run(bundles["mean_tokens", True], ids, attention, types)
    alone, _ = run(bundles["mean_tokens", True], ids[:, :3], attention[:, :3], types[:, :3])
    np.testing.assert_allclose(padded[:, :3], alone, atol=2e-5)


@pytest.fixture(scope="module")
def reranker_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("reranker")
    return export_reranker(write_reranker_checkpoint(root / "checkpoint"), root / "bundle", "fp32").path


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_scores_equal_the_reference(reranker_path: Path, mask: list[list[int]]) -> None:
    ids, attention, types = inputs_for(mask)
    path = reranker_path / "model.onnx"
    session = import_onnxruntime().InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = {"input_ids": ids, "attention_mask": attention, "token_type_ids": types}
    (scores,) = session.run(["scores"], inputs)
    assert scores.dtype == np.float32
    assert scores.shape == (len(mask),)
    np.testing.assert_allclose(scores, reference_scores(reranker_weights(), ids, attention, types), atol=2e-5)


def pair_score(query: str, text: str) -> float:
    """Return the reference's score of ``[CLS] query [SEP] text [SEP]``, for words of letters."""

    def ids(part: str) -> list[int]:
        pieces = [f"##{letter}" if i else letter for word in part.split() for i, letter in enumerate(word)]
        return [WORDS.index(piece) for piece in pieces]

    cls, sep = WORDS.index("[CLS]"), WORDS.index("[SEP]")
    one, two = [cls, *ids(query), sep], [*ids(text), sep]
    row = np.array([one + two])
    types = np.array([[0] * len(one) + [1] * len(two)])
    return float(reference_scores(reranker_weights(), row, np.ones_like(row), types)[0])


def test_pairs_are_framed_and_typed_as_the_model_was_trained(reranker_path: Path) -> None:
    texts = ["dog", "a cat sat", "x", "cat and mouse"]
    expected = [pair_score("the cat", text) for text in texts]
    np.testing.assert_allclose(open_reranker(reranker_path).scores("the cat", texts), expected, atol=2e-5)
    assert np.ptp(expected) > 0.1


def test_a_long_query_is_cut_at_half_the_window(reranker_path: Path) -> None:
    (score,) = open_reranker(reranker_path).scores("abcdefghijklmnopqrstuvwxyz", ["cat"])
    assert score == pytest.approx(pair_score("abcdefghijkl", "cat"), abs=2e-5)
    assert abs(score - pair_score("abcdefghijklm", "cat")) > 1e-3


@pytest.mark.parametrize(
    ("windows", "best"),  # of 16 tokens, the query has 5 and special tokens take 3
    [
        (["abcdefghi jklmnop"], 0),
        (["f" * 16, "eee"], 0),
        (["z" * 16, "f" * 16, "eee"], 1),
        (["abcdefghi jklmno", "ddddd"], 1),  # cut at the end of a word in the last quarter
    ],
)
def test_a_long_text_scores_like_its_best_window(reranker_path: Path, windows: list[str], best: int) -> None:
    expected = [pair_score("query", window) for window in windows]
    assert np.argmax(expected) == best
    (score,) = open_reranker(reranker_path).scores("query", [" ".join(windows)])
    assert score == pytest.approx(expected[best], abs=2e-5)
