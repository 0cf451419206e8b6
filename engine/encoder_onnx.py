"""Encodes with ONNX Runtime on the CPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from engine.token_vectors import TokenVectors
from engine.windows import window_bounds
from formats.encoder_bundle import MODEL_NAME, TOKENIZER_NAME, EncoderBundle
from formats.errors import CorruptFile, InvalidDocument, InvalidQuery

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

__all__ = ["OnnxEncoder", "import_onnxruntime"]

# ONNX Runtime's fused kernel (1.31) takes six times as long as the addition and normalisation it replaces, a
# quarter of the whole run.
_SLOW_FUSIONS = ["SkipLayerNormFusion"]

_INPUT_NAMES = {"input_ids", "attention_mask", "token_type_ids"}

Ids = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Tokens:
    """A text's tokens, special ones left out: ids and offsets, (n_tokens,) int64 each."""

    ids: Ids
    starts: Ids
    ends: Ids


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
        # By process id. A session inherited by a fork is kept and not used: destroying it is not safe where it
        # has threads. Nor is an inherited lock, which another thread of the parent may have held.
        self._runtimes: dict[int, _Runtime] = {}
        self._locks: dict[int, threading.Lock] = {}

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
        position = _lone_surrogate(text)
        if position is not None:
            raise InvalidDocument("the text holds a lone surrogate", actual=f"one at character {position}")
        runtime = self._runtime()
        tokens = runtime.tokenise(text)
        for first, stop in self._bounds(text, tokens, runtime.document_frame):
            yield runtime.document_window(tokens, first, stop)

    def encode_query(self, text: str) -> Vectors:
        """Encode a query into (dim,) float32, see `engine.encoder.Encoder.encode_query`."""
        position = _lone_surrogate(text)
        if position is not None:
            raise InvalidQuery("the query holds a lone surrogate", actual=f"one at character {position}")
        runtime = self._runtime()
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

    def _bounds(self, text: str, tokens: _Tokens, frame: _Frame) -> Iterator[tuple[int, int]]:
        room = self._bundle.settings.window - frame.n_tokens
        return window_bounds(text, tokens.starts, tokens.ends, room)

    def _runtime(self) -> _Runtime:
        process = os.getpid()
        runtime = self._runtimes.get(process)
        if runtime is None:
            with self._locks.setdefault(process, threading.Lock()):
                runtime = self._runtimes.get(process)
                if runtime is None:
                    runtime = self._runtimes[process] = _Runtime(self._bundle)
        return runtime


@dataclass(frozen=True, slots=True)
class _Frame:
    """The tokens put around those of a text: special ones and a prefix."""

    before: Ids
    after: Ids

    @property
    def n_tokens(self) -> int:
        return len(self.before) + len(self.after)

    def around(self, ids: Ids) -> Ids:
        """Return the (1, n_tokens) input of a text's tokens."""
        return np.concatenate((self.before, ids, self.after))[np.newaxis]


class _Runtime:
    """Session and tokenizer of one process."""

    def __init__(self, bundle: EncoderBundle) -> None:
        bundle.verify_files([MODEL_NAME, TOKENIZER_NAME])
        self._tokenizer = _open_tokenizer(bundle)
        self._session = _open_session(bundle)
        _check_interface(self._session, bundle)
        self._input_names = [node.name for node in self._session.get_inputs()]
        self._bundle = bundle
        self.document_frame = self._frame(bundle.settings.document_prefix)
        self.query_frame = self._frame(bundle.settings.query_prefix)

    def _frame(self, prefix: str) -> _Frame:
        """Find the special tokens before and after a text, and add a prefix's tokens to those before."""
        marked = self._tokenizer.encode("a")
        ids = np.array(marked.ids, np.int64)
        inside = np.flatnonzero(np.array(marked.special_tokens_mask) == 0)
        prefix_ids = self.tokenise(prefix).ids
        frame = _Frame(np.concatenate((ids[: inside[0]], prefix_ids)), ids[inside[-1] + 1 :])
        if frame.n_tokens >= self._bundle.settings.window:
            raise CorruptFile(
                "the bundle's window has no room for text beside prefix and special tokens",
                path=self._bundle.path,
                expected=f"more than {frame.n_tokens} tokens",
                actual=self._bundle.settings.window,
            )
        return frame

    def tokenise(self, text: str) -> _Tokens:
        """Return the tokens of a text; one call takes one core, whatever the tokenizer's own thread pool."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        starts, ends = np.ascontiguousarray(offsets.T)
        return _Tokens(np.array(encoding.ids, np.int64), starts, ends)

    def document_window(self, tokens: _Tokens, first: int, stop: int) -> TokenVectors:
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
        inputs = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        found: list[Any] = self._session.run([output], {name: inputs[name] for name in self._input_names})
        vectors: Vectors = found[0][0]
        return vectors


def _open_tokenizer(bundle: EncoderBundle) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(bundle.tokenizer_path))
    except Exception as error:  # the library raises bare Exception
        raise CorruptFile(f"the tokenizer cannot be read: {error}", path=bundle.tokenizer_path) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def import_onnxruntime() -> ModuleType:
    """Import ONNX Runtime with its telemetry off, as its Privacy.md describes.

    Otherwise the import starts a thread that sends usage events over the network, and a forked child that ends
    normally hangs or aborts waiting for that thread. Who wants it sets ``ORT_DISABLE_TELEMETRY=0``.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return cast("ModuleType", onnxruntime)


def _open_session(bundle: EncoderBundle) -> InferenceSession:
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    # Plans of past shapes save nothing measurable and cost 15 MB: nearly every text has a length of its own.
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(
            bundle.model_path,
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=_SLOW_FUSIONS,
        )
    except Exception as error:  # the library's errors have no public common class
        raise CorruptFile(f"the graph cannot be loaded: {error}", path=bundle.model_path) from error


def _check_interface(session: InferenceSession, bundle: EncoderBundle) -> None:
    """Refuse a graph that does not take token ids and give vectors of the bundle's length."""
    inputs = {node.name for node in session.get_inputs()}
    dims = {node.name: node.shape[-1] for node in session.get_outputs() if node.shape}
    wanted = dict.fromkeys(("token_vectors", "pooled"), bundle.settings.dim)
    if "input_ids" not in inputs or not inputs <= _INPUT_NAMES or not wanted.items() <= dims.items():
        raise CorruptFile(
            "the graph has other inputs or outputs than an encoder's",
            path=bundle.model_path,
            expected=f"{sorted(_INPUT_NAMES)} -> {wanted}",
            actual=f"{sorted(inputs)} -> {dims}",
        )


def _lone_surrogate(text: str) -> int | None:
    """Return the position of the first character that UTF-8 cannot hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None


def _normalised(vector: npt.NDArray[np.float64]) -> Vectors:
    return (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)
