"""Base class of the encoders that run a bundle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np

from quarry.engine.encoding.encoder import TokenVectors, VectorKind
from quarry.engine.encoding.tokenizer import BundleTokenizer, Ids, TokenFrame, Tokens, check_query
from quarry.engine.encoding.windows import piece_starts, sentence_end_flags, window_bounds
from quarry.formats.arrays import Float32Array
from quarry.formats.bundle.encoder import EncoderBundle, EncoderSettings
from quarry.formats.bundle.relevance import RELEVANCE_NAME, RelevanceModels, read_relevance
from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile, InvalidQuery
from quarry.formats.vectors.quantizer import Quantizer, open_quantizer

__all__ = ["BundleEncoder", "PreparedQuery", "document_window", "pool_tokens"]


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """The windows of a query, tokenized.

    Attributes:
        rows: (n,) int64 tokens of each window with its frame; at least one window.
        n_tokens: number of tokens of each window without its frame.
    """

    rows: list[Ids]
    n_tokens: list[int]


class BundleEncoder(ABC):
    """The attributes of an `Encoder`, read from a bundle.

    Attributes:
        path: folder of the bundle.
        name: the name of the bundle.
        identity: the identity of the bundle's vectors, 32 hexadecimal digits.
        pooling: how the vector of a text is made of token vectors.
        representation_settings: the settings of the representation that the encoder was trained for.
        is_multilingual: whether it is for texts of many languages.
    """

    def __init__(self, bundle: EncoderBundle) -> None:
        settings = bundle.settings
        self._bundle = bundle
        self.path = bundle.path
        self.name = settings.name
        self.identity = bundle.vector_identity
        self.dim = settings.dim
        self.normalize = settings.normalize
        self.pooling = settings.pooling
        self.beta = settings.beta
        self.vector_kinds: frozenset[VectorKind] = frozenset(
            {"token", "pooled"} if settings.token_vectors else {"pooled"}
        )
        self.is_multilingual = settings.multilingual
        self.trained_representation = settings.trained_representation
        self.representation_settings = settings.representation_settings
        self._passage_tokens: int | None = None

    def in_passages(self, n_tokens: int) -> Self:
        """Return the same encoder with shorter windows of documents, as a `PassageEncoder`."""
        encoder = object.__new__(type(self))  # copy.copy would open the bundle again, as unpickling does
        encoder.__dict__.update(self.__dict__)
        encoder._passage_tokens = n_tokens
        return encoder

    @cached_property
    def relevance(self) -> RelevanceModels | None:
        """The calibration of relevance, None if the bundle has none; read and verified at first use.

        Raises:
            FormatError: the file is damaged, or of an unknown version.
        """
        if RELEVANCE_NAME not in self._bundle.files:
            return None
        self._bundle.verify_files([RELEVANCE_NAME])
        return read_relevance(self._bundle.path / RELEVANCE_NAME)

    @cached_property
    def quantizer(self) -> Quantizer | None:
        """The quantizer that the encoder was trained with, or None; read at the first access.

        Raises:
            FormatError: it is damaged, or it is for vectors of another length.
        """
        return _read_quantizer(self._bundle)

    def __repr__(self) -> str:
        settings = self._bundle.settings
        return f"{type(self).__name__}({settings.name!r}, {settings.precision}, identity={self.identity})"

    @property
    def _output(self) -> str:
        """The output of the documents' graph that is used."""
        return "token_vectors" if self._bundle.settings.token_vectors else "pooled"

    def prepare_query(self, text: str) -> PreparedQuery:
        """Tokenize a query and cut it into windows.

        Raises:
            InvalidQuery: the text has no token, or holds a lone surrogate.
        """
        check_query(text)
        tokenizer = self._tokenizer()
        frame = tokenizer.query_frame
        tokens = tokenizer.tokenize(text, frame)
        bounds = list(self._bounds(text, tokens, frame))
        if len(bounds) > 1 and self._bundle.settings.cut_queries:
            bounds = [(0, self._bundle.settings.window - frame.n_tokens)]
        if not bounds:
            raise InvalidQuery("the query has no token", actual=repr(text[:80]))
        rows = [frame.around(tokens.ids[slice(*each)]) for each in bounds]
        return PreparedQuery(rows, [stop - first for first, stop in bounds])

    @abstractmethod
    def _tokenizer(self) -> BundleTokenizer:
        """The tokenizer of this process."""

    def _document_bounds(self, text: str, tokens: Tokens, frame: TokenFrame) -> Iterator[tuple[int, int]]:
        """The windows of a document: those of any text, or pieces of them."""
        for first, stop in self._bounds(text, tokens, frame):
            if self._passage_tokens is None:
                yield first, stop
                continue
            flags = sentence_end_flags(text, tokens.starts[first:stop], tokens.ends[first:stop])
            cuts = [*(first + piece_starts(flags, self._passage_tokens)).tolist(), stop]
            yield from pairwise(cuts)

    def _bounds(self, text: str, tokens: Tokens, frame: TokenFrame) -> Iterator[tuple[int, int]]:
        """The windows of a text: (first, stop) token positions."""
        room = self._bundle.settings.window - frame.n_tokens
        return window_bounds(text, tokens.starts, tokens.ends, room)


def _read_quantizer(bundle: EncoderBundle) -> Quantizer | None:
    name = bundle.settings.quantizer
    if name is None:
        return None
    try:
        quantizer = open_quantizer(Directory(bundle.path), name).quantizer
    except FileNotFoundError as error:  # deleted after the bundle was opened
        raise CorruptFile("a file of the bundle is missing", path=bundle.path / name) from error
    if quantizer.input_dim != bundle.settings.dim:
        raise CorruptFile(
            "the quantizer is for vectors of another length",
            path=bundle.path / name,
            expected=bundle.settings.dim,
            actual=quantizer.input_dim,
        )
    return quantizer


def document_window(
    tokens: Tokens, bounds: tuple[int, int], frame: TokenFrame, vectors: Float32Array, settings: EncoderSettings
) -> TokenVectors:
    """Return one window of a document.

    Args:
        tokens: tokens of the document.
        bounds: (first, stop) token positions of the window.
        frame: the tokens that were added around the window.
        vectors: (n_tokens, dim) float32, vectors of the window's tokens and the frame's; or (dim,) float32, the
            pooled vector, if the bundle returns no token vectors.
        settings: settings of the bundle.
    """
    if not settings.token_vectors:
        return _pooled_window(tokens, bounds, vectors)
    first, stop = bounds
    n_before = len(frame.before)
    pooled = frame.pooled_part(vectors)
    return TokenVectors(
        values=vectors[n_before : n_before + stop - first],
        starts=tokens.starts[first:stop],
        ends=tokens.ends[first:stop],
        text_mean=pooled.mean(axis=0),
        first=pooled[0],
        pooled=pool_tokens(pooled, settings),
    )


def _pooled_window(tokens: Tokens, bounds: tuple[int, int], pooled: Float32Array) -> TokenVectors:
    """Return a window of an encoder that returns a (dim,) pooled vector and no token vectors."""
    first, stop = bounds
    none = np.empty((stop - first, 0), np.float32)
    return TokenVectors(
        values=none,
        starts=tokens.starts[first:stop],
        ends=tokens.ends[first:stop],
        text_mean=none[0],
        first=none[0],
        pooled=pooled,
    )


_POOLINGS: Mapping[str, Callable[[Float32Array], Float32Array]] = {
    "mean": lambda vectors: vectors.mean(axis=0),
    "weightedmean": lambda vectors: np.average(vectors, axis=0, weights=np.arange(1, len(vectors) + 1)),
    "cls": lambda vectors: vectors[0],
    "lasttoken": lambda vectors: vectors[-1],
    "max": lambda vectors: vectors.max(axis=0),
}


def pool_tokens(vectors: Float32Array, settings: EncoderSettings) -> Float32Array:
    """Pool the (n_tokens, dim) vectors of the tokens of a window, as the graph would."""
    pooled = _POOLINGS[settings.pooling](vectors).astype(np.float32)
    if settings.normalize:
        pooled = (pooled / max(float(np.linalg.norm(pooled.astype(np.float64))), 1e-12)).astype(np.float32)
    return pooled
