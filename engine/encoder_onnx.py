"""Encodes with ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.onnx_session import INPUT_NAMES, PerProcess, open_session
from engine.token_frame import TokenFrame, token_frame
from engine.token_vectors import TokenVectors
from engine.tokenizer import Ids, Tokens, lone_surrogate, open_tokenizer, tokenise
from engine.windows import window_bounds
from formats.bundle_folder import MODEL_NAME, TOKENIZER_NAME
from formats.encoder_bundle import EncoderBundle
from formats.errors import CorruptFile, InvalidDocument, InvalidQuery

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["OnnxEncoder"]

Vectors = npt.NDArray[np.float32]


class OnnxEncoder:
    """An `engine.encoder.Encoder` that runs a bundle's graph with ONNX Runtime.

    One text is run at a time, unpadded, on one thread: int8 graphs quantise activations per tensor, so that in a
    batch a text's vectors would change with its neighbours. To use several cores, call it from several threads:
    they share one session, and a run leaves the interpreter to the others.

    Session and tokenizer are made at first use, once in each process: after a fork the child makes its own. The
    digests of model and tokenizer are checked before.

    Args:
        bundle: where graph and tokenizer are.
    """

    def __init__(self, bundle: EncoderBundle) -> None:
        self._bundle = bundle
        self._runtimes = PerProcess(partial(_Runtime, bundle))

    @property
    def name(self) -> str:
        """The bundle's name."""
        return self._bundle.settings.name

    @property
    def identity(self) -> str:
        """The bundle's identity, 32 hexadecimal digits."""
        return self._bundle.identity

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._bundle.settings.dim

    @property
    def normalise(self) -> bool:
        """Whether query vectors have L2 norm 1."""
        return self._bundle.settings.normalise

    @property
    def beta(self) -> float | None:
        """Inverse temperature of the softmax aggregation, None where the encoder was not trained for it."""
        return self._bundle.settings.beta

    def __repr__(self) -> str:
        return f"OnnxEncoder({self.name!r}, {self._bundle.settings.precision}, identity={self.identity})"

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Encode a document window after window, see `engine.encoder.Encoder.windows`."""
        position = lone_surrogate(text)
        if position is not None:
            raise InvalidDocument("the text holds a lone surrogate", actual=f"one at character {position}")
        runtime = self._runtimes.get()
        tokens = runtime.tokenise(text)
        for first, stop in self._bounds(text, tokens, runtime.document_frame):
            yield runtime.document_window(tokens, first, stop)

    def encode_query(self, text: str) -> Vectors:
        """Encode a query into (dim,) float32, see `engine.encoder.Encoder.encode_query`."""
        position = lone_surrogate(text)
        if position is not None:
            raise InvalidQuery("the query holds a lone surrogate", actual=f"one at character {position}")
        runtime = self._runtimes.get()
        tokens = runtime.tokenise(text)
        bounds = list(self._bounds(text, tokens, runtime.query_frame))
        if not bounds:
            raise InvalidQuery("the query has no token", actual=repr(text[:80]))
        pooled = [runtime.query_vector(tokens.ids[first:stop]) for first, stop in bounds]
        if len(pooled) == 1:
            return pooled[0]
        weights = np.array([stop - first for first, stop in bounds], np.float64)
        mean = weights @ np.stack(pooled) / weights.sum()
        return _normalised(mean) if self.normalise else mean.astype(np.float32)

    def _bounds(self, text: str, tokens: Tokens, frame: TokenFrame) -> Iterator[tuple[int, int]]:
        room = self._bundle.settings.window - frame.n_tokens
        return window_bounds(text, tokens.starts, tokens.ends, room)


class _Runtime:
    """Session and tokenizer of one process."""

    def __init__(self, bundle: EncoderBundle) -> None:
        bundle.verify_files([MODEL_NAME, TOKENIZER_NAME])
        self._tokenizer = open_tokenizer(bundle.tokenizer_path)
        self._session = open_session(bundle.model_path)
        _check_interface(self._session, bundle)
        self._input_names = [node.name for node in self._session.get_inputs()]
        settings = bundle.settings
        frames = [
            token_frame(self._tokenizer, prefix, settings.window, bundle.path)
            for prefix in (settings.document_prefix, settings.query_prefix)
        ]
        self.document_frame, self.query_frame = frames

    def tokenise(self, text: str) -> Tokens:
        """Return the tokens of a text."""
        return tokenise(self._tokenizer, text)

    def document_window(self, tokens: Tokens, first: int, stop: int) -> TokenVectors:
        """Encode the tokens from ``first`` to ``stop``."""
        frame = self.document_frame
        vectors = self._run("token_vectors", frame.around(tokens.ids[first:stop]))
        n_before = len(frame.before)
        return TokenVectors(
            values=vectors[n_before : n_before + stop - first],
            starts=tokens.starts[first:stop],
            ends=tokens.ends[first:stop],
            text_mean=vectors.mean(axis=0),
            first=vectors[0],
        )

    def query_vector(self, ids: Ids) -> Vectors:
        """Encode the tokens of one window of a query into its (dim,) pooled vector."""
        return self._run("pooled", self.query_frame.around(ids))

    def _run(self, output: str, ids: Ids) -> Vectors:
        """Return one output for one text."""
        ids = ids[np.newaxis]
        inputs = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        found: list[Any] = self._session.run([output], {name: inputs[name] for name in self._input_names})
        vectors: Vectors = found[0][0]
        return vectors


def _check_interface(session: InferenceSession, bundle: EncoderBundle) -> None:
    """Refuse a graph that does not take token ids and give vectors of the bundle's length."""
    inputs = {node.name for node in session.get_inputs()}
    dims = {node.name: node.shape[-1] for node in session.get_outputs() if node.shape}
    wanted = dict.fromkeys(("token_vectors", "pooled"), bundle.settings.dim)
    if "input_ids" not in inputs or not inputs <= INPUT_NAMES or not wanted.items() <= dims.items():
        raise CorruptFile(
            "the graph has other inputs or outputs than an encoder's",
            path=bundle.model_path,
            expected=f"{sorted(INPUT_NAMES)} -> {wanted}",
            actual=f"{sorted(inputs)} -> {dims}",
        )


def _normalised(vector: npt.NDArray[np.float64]) -> Vectors:
    return (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)
