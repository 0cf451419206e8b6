"""Encodes with ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.bundle_encoder import (
    BundleEncoder,
    check_document,
    check_query,
    pooled_of_tokens,
    pooled_over_windows,
)
from engine.onnx_session import INPUT_NAMES, PerProcess, open_session
from engine.token_frame import token_frame
from engine.token_vectors import TokenVectors
from engine.tokenizer import Ids, Tokens, open_tokenizer, tokenise
from formats.bundle_folder import MODEL_NAME, QUERY_MODEL_NAME, TOKENIZER_NAME
from formats.encoder_bundle import EncoderBundle
from formats.errors import CorruptFile, InvalidQuery

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["OnnxEncoder"]

Vectors = npt.NDArray[np.float32]


class OnnxEncoder(BundleEncoder):
    """An `engine.encoder.Encoder` that runs a bundle's graph with ONNX Runtime.

    One text is run at a time, unpadded, on one thread: int8 graphs quantise activations per tensor, so that in a
    batch a text's vectors would change with its neighbours. To use several cores, call it from several threads:
    they share one session, and a run leaves the interpreter to the others.

    Sessions and tokenizer are made at first use, once in each process: after a fork the child makes its own. The
    digests of graphs and tokenizer are checked before. Queries are run by a graph of their own where there is one.

    Args:
        bundle: where graph and tokenizer are.
    """

    def __init__(self, bundle: EncoderBundle) -> None:
        super().__init__(bundle)
        self._runtimes = PerProcess(partial(_Runtime, bundle))

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Encode a document window after window, see `engine.encoder.Encoder.windows`."""
        check_document(text)
        runtime = self._runtimes.get()
        tokens = runtime.tokenise(text)
        for first, stop in self._bounds(text, tokens, runtime.document_frame):
            yield runtime.document_window(tokens, first, stop)

    def encode_query(self, text: str) -> Vectors:
        """Encode a query into (dim,) float32, see `engine.encoder.Encoder.encode_query`."""
        check_query(text)
        runtime = self._runtimes.get()
        tokens = runtime.tokenise(text)
        bounds = list(self._bounds(text, tokens, runtime.query_frame))
        if not bounds:
            raise InvalidQuery("the query has no token", actual=repr(text[:80]))
        pooled = [runtime.query_vector(tokens.ids[first:stop]) for first, stop in bounds]
        return pooled_over_windows(pooled, [stop - first for first, stop in bounds], self.normalise)


class _Runtime:
    """Sessions and tokenizer of one process."""

    def __init__(self, bundle: EncoderBundle) -> None:
        self._settings = settings = bundle.settings
        bundle.verify_files([TOKENIZER_NAME])
        self._tokenizer = open_tokenizer(bundle.tokenizer_path)
        self._documents = _Graph(bundle, MODEL_NAME, settings.token_vectors)
        queries = QUERY_MODEL_NAME in bundle.files
        self._queries = _Graph(bundle, QUERY_MODEL_NAME, token_vectors=False) if queries else self._documents
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
        ids = frame.around(tokens.ids[first:stop])
        if self._settings.token_vectors:
            vectors = self._documents.run("token_vectors", ids)
            text_mean = vectors.mean(axis=0)
            pooled = pooled_of_tokens(vectors, text_mean, self._settings)
        else:
            vectors = np.empty((len(ids), 0), np.float32)
            text_mean, pooled = vectors[0], self._documents.run("pooled", ids)
        n_before = len(frame.before)
        return TokenVectors(
            values=vectors[n_before : n_before + stop - first],
            starts=tokens.starts[first:stop],
            ends=tokens.ends[first:stop],
            text_mean=text_mean,
            first=vectors[0],
            pooled=pooled,
        )

    def query_vector(self, ids: Ids) -> Vectors:
        """Encode the tokens of one window of a query into its (dim,) pooled vector."""
        return self._queries.run("pooled", self.query_frame.around(ids))


class _Graph:
    """One graph of a bundle, ready to run."""

    def __init__(self, bundle: EncoderBundle, name: str, token_vectors: bool) -> None:
        bundle.verify_files([name])
        path = bundle.path / name
        self._session = open_session(path)
        outputs = ("token_vectors", "pooled") if token_vectors else ("pooled",)
        _check_interface(self._session, path, dict.fromkeys(outputs, bundle.settings.dim))
        self._input_names = [node.name for node in self._session.get_inputs()]

    def run(self, output: str, ids: Ids) -> Vectors:
        """Return one output for the (n_tokens,) ids of one text."""
        ids = ids[np.newaxis]
        inputs = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        found: list[Any] = self._session.run([output], {name: inputs[name] for name in self._input_names})
        vectors: Vectors = found[0][0]
        return vectors


def _check_interface(session: InferenceSession, path: Path, wanted: dict[str, int]) -> None:
    """Refuse a graph that does not take token ids and give vectors of the bundle's length."""
    inputs = {node.name for node in session.get_inputs()}
    dims = {node.name: node.shape[-1] for node in session.get_outputs() if node.shape}
    if "input_ids" not in inputs or not inputs <= INPUT_NAMES or not wanted.items() <= dims.items():
        raise CorruptFile(
            "the graph has other inputs or outputs than an encoder's",
            path=path,
            expected=f"{sorted(INPUT_NAMES)} -> {wanted}",
            actual=f"{sorted(inputs)} -> {dims}",
        )
