"""Encodes texts with ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from quarry.engine.encoding.encoder import TokenVectors
from quarry.engine.encoding.runtimes.bundle_encoder import BundleEncoder, document_window, pool_tokens
from quarry.engine.encoding.runtimes.onnx_session import INPUT_NAMES, open_session, run_session
from quarry.engine.encoding.tokenizer import BundleTokenizer, Ids, check_document
from quarry.engine.process.per_process import PerProcess, bundle_key, shared_models
from quarry.formats.arrays import Float32Array, Float64Array
from quarry.formats.bundle.encoder import EncoderBundle, load_bundle
from quarry.formats.bundle.folder import MODEL_NAME, QUERY_MODEL_NAME
from quarry.formats.errors import CorruptFile

if TYPE_CHECKING:
    from pathlib import Path

    from onnxruntime import InferenceSession

__all__ = ["OnnxEncoder", "check_encoder_graph", "shared_onnx_encoder"]


class OnnxEncoder(BundleEncoder):
    """An `Encoder` that runs a bundle's graph with ONNX Runtime.

    One text is run at a time, without padding, on one thread: int8 graphs quantize most activations per tensor, so
    in a batch a text's vectors would depend on its neighbors. To use several cores, call it from several threads:
    they share one session, and a run releases the interpreter lock.

    Sessions and tokenizer are created at first use, once per process: after a fork the child creates its own. The
    digests of graphs and tokenizer are verified first. Queries use a graph of their own if the bundle has one; a
    process that only searches then never loads that of documents.

    Args:
        bundle: the bundle, with graph and tokenizer.
        lean: see `quarry.engine.encoding.runtimes.onnx_session.open_session`.
    """

    def __init__(self, bundle: EncoderBundle, lean: bool = False) -> None:
        super().__init__(bundle)
        self._is_lean = lean
        self._tokenizers = PerProcess(partial(BundleTokenizer, bundle))
        self._documents = self._queries = PerProcess(partial(_Graph, bundle, MODEL_NAME, lean))
        if QUERY_MODEL_NAME in bundle.files:
            self._queries = PerProcess(partial(_Graph, bundle, QUERY_MODEL_NAME, lean))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as the folder of the bundle, which another process opens."""
        return _open_again, (self._bundle.path, self._is_lean)

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Encode a document window after window, see `quarry.engine.encoding.encoder.Encoder.windows`."""
        check_document(text)
        tokenizer, graph = self._tokenizer(), self._documents.get()
        frame = tokenizer.document_frame
        tokens = tokenizer.tokenize(text, frame)
        for bounds in self._document_bounds(text, tokens, frame):
            vectors = graph.run(self._output, frame.around(tokens.ids[slice(*bounds)]))
            yield document_window(tokens, bounds, frame, vectors, self._bundle.settings)

    def encode_query(self, text: str) -> Float32Array:
        """Encode a query into (dim,) float32, see `quarry.engine.encoding.encoder.Encoder.encode_query`."""
        prepared = self.prepare_query(text)
        graph = self._queries.get()
        frame = self._tokenizer().query_frame
        if frame.n_unpooled:  # the graph pools all tokens
            unpooled = (frame.pooled_part(graph.run("token_vectors", row)) for row in prepared.rows)
            pooled = [pool_tokens(vectors, self._bundle.settings) for vectors in unpooled]
        else:
            pooled = [graph.run("pooled", row) for row in prepared.rows]
        return _pooled_over_windows(pooled, prepared.n_tokens, self.normalize)

    def _tokenizer(self) -> BundleTokenizer:
        return self._tokenizers.get()


class _Graph:
    """The session of one graph of a bundle."""

    def __init__(self, bundle: EncoderBundle, name: str, lean: bool) -> None:
        bundle.verify_graph(name)
        self._session = open_session(bundle.path / name, lean)
        check_encoder_graph(self._session, bundle, name)
        self._input_names = [node.name for node in self._session.get_inputs()]
        self._path, self._dim = bundle.path / name, bundle.settings.dim

    def run(self, output: str, ids: Ids) -> Float32Array:
        """Return one output for the (n_tokens,) ids of one text: a vector, or one for each token."""
        ids = ids[np.newaxis]
        inputs = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        chosen = {name: inputs[name] for name in self._input_names}
        values = run_session(self._session, self._path, output, chosen)
        expected = (1, self._dim) if output == "pooled" else (*ids.shape, self._dim)
        if values.shape != expected:
            raise CorruptFile(
                f"the graph returns {output} of the wrong shape",
                path=self._path,
                expected=expected,
                actual=values.shape,
            )
        vectors: Float32Array = values[0]
        return vectors


def shared_onnx_encoder(bundle: EncoderBundle, lean: bool) -> OnnxEncoder:
    """Return the encoder of a bundle that is open in this process with the same settings, or open it."""
    return shared_models.get(("onnx-cpu", lean, bundle_key(bundle)), partial(OnnxEncoder, bundle, lean))


def _open_again(folder: Path, lean: bool) -> OnnxEncoder:
    return shared_onnx_encoder(load_bundle(folder), lean)


def check_encoder_graph(session: InferenceSession, bundle: EncoderBundle, name: str) -> None:
    """Raise unless a graph takes token ids and returns vectors of the bundle's dimension.

    Raises:
        CorruptFile: it has other inputs or outputs.
    """
    inputs = {node.name for node in session.get_inputs()}
    dims = {node.name: node.shape[-1] for node in session.get_outputs() if node.shape}
    tokens = name == MODEL_NAME and bundle.settings.token_vectors
    wanted = dict.fromkeys(("token_vectors", "pooled") if tokens else ("pooled",), bundle.settings.dim)
    if "input_ids" not in inputs or not inputs <= INPUT_NAMES or not wanted.items() <= dims.items():
        raise CorruptFile(
            "the graph has other inputs or outputs than an encoder's",
            path=bundle.path / name,
            expected=f"{sorted(INPUT_NAMES)} -> {wanted}",
            actual=f"{sorted(inputs)} -> {dims}",
        )


def _pooled_over_windows(pooled: list[Float32Array], n_tokens: list[int], normalize: bool) -> Float32Array:
    """Return the mean of the (dim,) vectors of a query's windows, weighted by their numbers of tokens."""
    if len(pooled) == 1:
        return pooled[0]
    weights = np.array(n_tokens, np.float64)
    mean: Float64Array = weights @ np.stack(pooled) / weights.sum()
    if normalize:
        mean /= max(float(np.linalg.norm(mean)), 1e-12)
    return mean.astype(np.float32)
