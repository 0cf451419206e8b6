"""An encoder that calls a function of the application with lists of passages."""

from __future__ import annotations

import hashlib
import json
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from quarry.engine.arguments import checked_flag, is_masked, lone_surrogate, shown
from quarry.engine.encoding.batch_encoder import BatchLimits
from quarry.engine.encoding.encoder import TokenVectors, VectorKind
from quarry.engine.encoding.functions.sources import (
    Embed,
    EmbeddingSource,
    check_is_plain,
    embedding_source,
)
from quarry.engine.encoding.tokenizer import check_document, check_query
from quarry.engine.encoding.windows import sentence_end_flags, word_bounds
from quarry.engine.process.per_process import PerProcess
from quarry.engine.process.worker_pool import map_on_threads
from quarry.formats.arrays import BoolArray, Float32Array, Float64Array
from quarry.formats.errors import EncodingFailed, InvalidQuery, InvalidSetting
from quarry.formats.vectors.quantizer import MAX_DIM

__all__ = ["FunctionEncoder", "cut_passages", "is_invisible"]

_INVISIBLE = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})  # categories of characters that are not text


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of a document.

    Attributes:
        text: the part.
        start: its first character (code point) in the document.
        end: one past its last character.
    """

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PreparedPassages:
    """The passages of a document, see `quarry.engine.encoding.batch_encoder.PreparedInputs`.

    Attributes:
        passages: in their order; empty for a text without visible characters.
        n_tokens: number of words of the document.
    """

    passages: tuple[TextPart, ...]
    n_tokens: int

    @property
    def n_inputs(self) -> int:
        """Number of passages."""
        return len(self.passages)

    def part(self, first: int, stop: int) -> PreparedPassages:
        """Return the same document with only the passages from `first` to before `stop`."""
        return replace(self, passages=self.passages[first:stop])


def cut_passages(text: str, max_words: int) -> PreparedPassages:
    """Cut a text into passages of about equal length, without dropping a word.

    As few passages as possible are planned. Each cut is moved from the ideal place, which divides what remains
    equally, to the nearest sentence end between two thirds of a passage and `max_words`, if there is one.

    Args:
        text: the text.
        max_words: maximum number of words of a passage, at least 1. A word is a run without white space, or three
            characters of a script without spaces (Thai, Lao, kana, Han).
    """
    if is_invisible(text):
        return PreparedPassages((), 0)
    bounds = word_bounds(text)
    if len(bounds) <= max_words:
        start, end = bounds[0][0], bounds[-1][1]
        return PreparedPassages((TextPart(text[start:end], start, end),), len(bounds))
    starts, ends = np.ascontiguousarray(np.array(bounds, np.int64).T)
    passages = []
    for first, stop in _passage_bounds(sentence_end_flags(text, starts, ends), max_words):
        start, end = int(starts[first]), int(ends[stop - 1])
        passages.append(TextPart(text[start:end], start, end))
    return PreparedPassages(tuple(passages), len(starts))


def is_invisible(text: str) -> bool:
    """Return whether a text has no character but white space, control and format characters."""
    return all(unicodedata.category(character) in _INVISIBLE for character in text)


def _passage_bounds(sentence_ends: BoolArray, max_words: int) -> Iterator[tuple[int, int]]:
    """Yield the (first, stop) words of each passage."""
    n_words, first = len(sentence_ends), 0
    stops = np.flatnonzero(sentence_ends) + 1
    while n_words - first > max_words:
        remaining = n_words - first
        ideal = -(-remaining // -(-remaining // max_words))
        low, high = np.searchsorted(stops, [first + ideal - ideal // 3, first + max_words + 1])
        stop = first + ideal
        if low < high:
            near = stops[low:high]
            stop = int(near[np.abs(near - stop).argmin()])
        yield first, stop
        first = stop
    yield first, n_words


def checked_vectors(returned: object, n_texts: int, dim: int, call: str) -> Float64Array:
    """Return the vectors of a call as a new (n_texts, dim) float64 array; their numbers may be infinite or nan.

    Args:
        returned: what the function returned: an array, or rows of numbers.
        n_texts: number of texts that it was called with.
        dim: length of a vector.
        call: describes the call, for messages.

    Raises:
        EncodingFailed: it is something else, or has another shape.
    """
    if is_masked(returned):
        raise EncodingFailed(
            f"{call} returned masked numbers", expected=_expected(n_texts, dim), actual=_kind(returned)
        )
    try:
        given = np.asarray(returned)
    except Exception as error:  # rows of different lengths, a tensor on a device
        raise EncodingFailed(
            f"{call} returned what cannot be converted to an array",
            expected=_expected(n_texts, dim),
            actual=f"{_kind(returned)}: {error}",
        ) from error
    if given.dtype.kind not in "fiu":
        actual = f"{_kind(returned)} of {given.dtype}" if given.ndim else _kind(returned)
        raise EncodingFailed(f"{call} returned no numbers", expected=_expected(n_texts, dim), actual=actual)
    if given.shape != (n_texts, dim):
        raise EncodingFailed(
            f"{call} returned vectors of the wrong shape",
            expected=_expected(n_texts, dim),
            actual=f"shape {given.shape}",
        )
    return given.astype(np.float64)


def unit_rows(vectors: Float64Array) -> Float64Array:
    """Return (n, dim) vectors scaled to L2 norm 1; zeros stay zeros, and rows that are not finite become nan."""
    with np.errstate(invalid="ignore"):
        largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
        scaled = vectors / np.where(largest == 0, 1, largest)  # squares of large numbers would overflow
        norms = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, np.newaxis]
        unit: Float64Array = scaled / np.where(norms == 0, 1, norms)
    return unit


def _expected(n_texts: int, dim: int) -> str:
    return f"an array of shape {(n_texts, dim)}, a vector for each text"


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{name}, of an async function" if name == "coroutine" else name


def listed(value: object) -> object:
    """Return the items of an iterator as a list, and any other value unchanged."""
    return list(value) if isinstance(value, Iterator) else value


_MAX_NAME = 256  # characters
_MAX_BATCH = 1 << 20  # texts in a call
_MAX_IN_FLIGHT = 1024  # calls at once
_MAX_AHEAD = 256  # documents that are cut ahead of a call, and represented after it


class FunctionEncoder:
    """An `Encoder` that calls an embedding function; see docs/encoders.md for other libraries' models.

    A document is cut at sentence ends into passages, each of which has a vector, so that search finds passages.
    Passages of several documents are encoded by one call: adding n passages takes ceil(n / `batch_size`) calls.
    Once an index has so many vectors that inverted lists are made, these are calibrated with up to 512 short
    texts, encoded as queries.

    It can be pickled if the function or model can.

    Args:
        embed_documents: a function of a list of texts that returns an array-like of shape (n, dim); or a model:
            one with ``embed_documents`` and ``embed_query`` (LangChain's `Embeddings`), or one with ``encode``
            (sentence-transformers, Model2Vec).
        embed_queries: the same for queries; None: that of the model, or else `embed_documents`.
        dim: length of a vector; needed for a function. None: what the model states.
        name: name of the vectors, which an index stores; needed for a function. Another name is another encoder:
            an index opens only with one of the same name, `revision`, `dim` and `normalize`. None: the model's.
        revision: anything else that changes vectors, such as the version of a model, its prompts, your own code.
        batch_size: maximum number of texts in a call.
        passage_words: maximum number of words of a passage; not part of the identity.
        normalize: whether to scale vectors to L2 norm 1, so that texts are compared by cosine; otherwise by inner
            product. None: True, unless a model states that its vectors are compared by inner product.
        max_in_flight: maximum number of calls at once. With 1, documents are encoded on the thread that adds them;
            with more, the function must be safe to call from several threads.

    Raises:
        InvalidSetting: a value is out of range; `dim` or `name` are missing and the model does not state them; or
            it is neither a function nor a model, or a function is asynchronous.
        EncodingFailed: LangChain's model was called with one text, to find `dim`, and failed.
    """

    beta: ClassVar[None] = None
    vector_kinds: ClassVar[frozenset[VectorKind]] = frozenset({"token", "pooled"})
    trained_representation: ClassVar[None] = None

    def __init__(  # noqa: PLR0913  # keywords, each with a default
        self,
        embed_documents: object,
        embed_queries: Embed | None = None,
        *,
        dim: int | None = None,
        name: str | None = None,
        revision: str = "",
        batch_size: int = 64,
        passage_words: int = 100,
        normalize: bool | None = None,
        max_in_flight: int = 1,
    ) -> None:
        if embed_queries is not None and not callable(embed_queries):
            raise InvalidSetting("embed_queries is not a function", actual=shown(embed_queries))
        check_is_plain(embed_queries)
        source = embedding_source(embed_documents)
        self._embed_documents = source.embed_documents
        self._embed_queries = embed_queries or source.embed_queries or source.embed_documents
        self.name = _checked_name(source.name if name is None else name)
        self.dim = _checked_int(_stated(_found_dim(source) if dim is None else dim, "dim", "384"), "dim", MAX_DIM)
        self.normalize = source.is_cosine if normalize is None else checked_flag(normalize, "normalize")
        self._batch_size = _checked_int(batch_size, "batch_size", _MAX_BATCH)
        self._passage_words = _checked_int(passage_words, "passage_words", _MAX_BATCH)
        self._max_in_flight = _checked_int(max_in_flight, "max_in_flight", _MAX_IN_FLIGHT)
        self.identity = _identity(self.name, _checked_text(revision, "revision") or source.revision, self)
        self._slots = self._new_slots()

    def _new_slots(self) -> PerProcess[threading.BoundedSemaphore]:
        return PerProcess(partial(threading.BoundedSemaphore, self._max_in_flight))

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_slots"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._slots = self._new_slots()

    @property
    def batch_limits(self) -> BatchLimits:
        """Full batches of `batch_size` passages, `max_in_flight` of them at once."""
        documents = min(self._batch_size, _MAX_AHEAD)
        return BatchLimits(documents, inputs=self._batch_size, in_flight=self._max_in_flight)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, dim={self.dim}, identity={self.identity!r})"

    def prepare(self, text: str) -> PreparedPassages:
        """Cut a document into passages.

        Raises:
            InvalidDocument: the text holds a lone surrogate; the message names its position.
        """
        check_document(text)
        return cut_passages(text, self._passage_words)

    def run(self, prepared: Sequence[PreparedPassages]) -> list[list[TokenVectors]]:
        """Encode the passages of documents, or of parts of them; return a window for each passage.

        Raises:
            EncodingFailed: the function failed, or did not return a vector for each text.
        """
        passages = [passage for each in prepared for passage in each.passages]
        windows = iter(self._windows(passages))
        return [[next(windows) for _ in each.passages] for each in prepared]

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Encode a document, see `Encoder.windows`."""
        passages = self.prepare(text).passages
        for low in range(0, len(passages), self._batch_size):
            yield from self._windows(passages[low : low + self._batch_size])

    def encode_query(self, text: str) -> Float32Array:
        """Encode a query of any length by one call: (dim,) float32.

        Raises:
            InvalidQuery: the text has no visible character, or holds a lone surrogate.
            EncodingFailed: the function failed, or did not return a vector.
        """
        vector: Float32Array = self.run_queries([self.prepare_query(text)])[0]
        return vector

    def prepare_query(self, text: str) -> str:
        """Return a query, if it is valid.

        Raises:
            InvalidQuery: the text has no visible character, or holds a lone surrogate.
        """
        check_query(text)
        if is_invisible(text):
            raise InvalidQuery("the query has no token", actual=repr(text[:80]))
        return text

    def run_queries(self, prepared: Sequence[str]) -> Float32Array:
        """Encode queries, `batch_size` by one call: (n, dim) float32."""
        return self._embed(self._embed_queries, "embed_queries", list(prepared))

    def _windows(self, passages: Sequence[TextPart]) -> list[TokenVectors]:
        """Return a window for each passage, with one token: the passage."""
        vectors = self._embed(self._embed_documents, "embed_documents", [each.text for each in passages])
        starts = np.array([each.start for each in passages], np.int64)
        ends = np.array([each.end for each in passages], np.int64)
        return [
            TokenVectors(vectors[n : n + 1], starts[n : n + 1], ends[n : n + 1], vector, vector, vector)
            for n, vector in enumerate(vectors)
        ]

    def _embed(self, function: Embed, role: str, texts: list[str]) -> Float32Array:
        """Return (n, dim) float32 vectors of texts, in batches."""
        batches = [texts[low : low + self._batch_size] for low in range(0, len(texts), self._batch_size)]
        call: Callable[[list[str]], Float32Array] = partial(self._call, function, role)
        vectors = map_on_threads(call, batches, self._max_in_flight, "quarry-embed")
        return np.concatenate([np.empty((0, self.dim), np.float32), *vectors])

    def _call(self, function: Embed, role: str, texts: list[str]) -> Float32Array:
        call = f"{role} of encoder {self.name!r}, called with {len(texts)} texts,"
        with self._slots.get():
            try:
                returned = listed(function(list(texts)))
            except Exception as error:
                raise EncodingFailed(f"{call} failed", actual=f"{type(error).__name__}: {error}") from error
        vectors = checked_vectors(returned, len(texts), self.dim, call)
        with np.errstate(over="ignore"):  # infinite numbers are refused with the name of the document or query
            return (unit_rows(vectors) if self.normalize else vectors).astype(np.float32)


def _found_dim(source: EmbeddingSource) -> int | None:
    if source.dim is None and source.measure_dim is not None:
        return source.measure_dim()
    return source.dim


def _identity(name: str, revision: str, encoder: FunctionEncoder) -> str:
    digest = hashlib.blake2b(json.dumps([name, revision]).encode(), digest_size=16).hexdigest()
    return f"function {digest} dim={encoder.dim} {'cosine' if encoder.normalize else 'inner product'}"


def _checked_name(name: object) -> str:
    checked = _checked_text(_stated(name, "name", "'my-model'"), "name")
    if not checked.strip():
        raise InvalidSetting("name is blank", expected="the name of the model", actual=shown(name))
    return checked


def _stated(value: object, setting: str, example: str) -> object:
    if value is None:
        raise InvalidSetting(
            f"{setting} is missing, and a function does not state it, nor does this model",
            expected=f"FunctionEncoder(..., {setting}={example})",
        )
    return value


def _checked_text(value: object, setting: str) -> str:
    if not isinstance(value, str) or len(value) > _MAX_NAME or lone_surrogate(value) is not None:
        expected = f"a str of at most {_MAX_NAME} characters, without lone surrogates"
        raise InvalidSetting(f"{setting} is not a text", expected=expected, actual=shown(value))
    return value


def _checked_int(value: object, setting: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        expected = f"an integer from 1 to {most}"
        raise InvalidSetting(f"{setting} is out of range", expected=expected, actual=shown(value))
    return int(value)
