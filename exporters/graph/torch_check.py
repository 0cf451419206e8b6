"""Compares a traced graph with the torch network that it was traced from."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import onnx

from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
from quarry.engine.encoding.tokenizer import Ids, TextTokenizer
from quarry.exporters.checkpoint.checkpoint import Checkpoint
from quarry.exporters.parity.encoder import compute_cosines
from quarry.exporters.parity.sample_texts import sample_texts
from quarry.formats.errors import InvalidSetting

__all__ = ["check_traced"]

Vectors = npt.NDArray[np.float32]
RunNetwork = Callable[[Ids, Ids], Vectors]

_LEAST_COSINE = 0.9999
_KEPT = 0.7  # share of random tokens that the mask keeps
_LONGEST = 2048  # random tokens: torch's memory grows with the square of the length
_N_TEXTS = 8


def check_traced(graph: onnx.ModelProto, run: RunNetwork, checkpoint: Checkpoint, n_words: int) -> None:
    """Refuse a graph whose token vectors or mean vectors differ from torch's.

    They are compared on random tokens with random masks, at lengths from 1 to the window, and on real texts.

    Args:
        graph: computes ``last_hidden_state`` from ``input_ids`` and ``attention_mask``.
        run: the network: (batch, length) int64 ids and mask to (batch, length, dim) float32 hidden states.
        checkpoint: the network's checkpoint.
        n_words: size of the vocabulary.

    Raises:
        InvalidSetting: a vector differs; the message has the largest difference and its text.
    """
    session = import_onnxruntime().InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    cosines: dict[str, float] = {}
    for what, ids, mask in (*_make_random_inputs(n_words, checkpoint.window), *_tokenize_texts(checkpoint)):
        (found,) = session.run(["last_hidden_state"], {"input_ids": ids, "attention_mask": mask})
        cosines[what] = _find_least_cosine(found, run(ids, mask), mask)
    worst = min(cosines, key=lambda what: np.nan_to_num(cosines[what], nan=-np.inf))
    if not cosines[worst] >= _LEAST_COSINE:
        raise InvalidSetting(
            f"the traced graph computes other vectors than torch; the largest difference is in {worst}",
            path=checkpoint.path,
            expected=f"cosines of at least {_LEAST_COSINE}",
            actual=f"{cosines[worst]:.6f}",
        )


def _make_random_inputs(n_words: int, window: int) -> Iterator[tuple[str, Ids, Ids]]:
    rng = np.random.default_rng(1)
    for shape in ((1, 1), (3, 5), (2, min(window, _LONGEST))):
        mask = (rng.random(shape) < _KEPT).astype(np.int64)
        mask[:, rng.integers(shape[1])] = 1  # at least one token
        yield f"one of {shape} random tokens", rng.integers(0, n_words, shape), mask


def _tokenize_texts(checkpoint: Checkpoint) -> Iterator[tuple[str, Ids, Ids]]:
    tokenizer = TextTokenizer(checkpoint.path / "tokenizer.json")
    for text in sample_texts(_N_TEXTS):
        ids = np.array([tokenizer.encode_with_special_tokens(text).ids[: checkpoint.window]], np.int64)
        yield repr(text[:200]), ids, np.ones_like(ids)


def _find_least_cosine(found: Vectors, expected: Vectors, mask: Ids) -> float:
    """Return the smallest cosine of token vectors and of texts' means; NaN if a vector is not finite."""
    means = [(vectors * mask[..., np.newaxis]).sum(axis=1) for vectors in (found, expected)]
    pairs = [(found[mask == 1], expected[mask == 1]), means]
    return float(np.concatenate([compute_cosines(*pair) for pair in pairs]).min())
