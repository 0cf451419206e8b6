"""The protocols of encoders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from quarry.engine.bundled import INSTALLABLE
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.manifest import EncoderRecord
from quarry.formats.vectors.quantizer import Quantizer

__all__ = [
    "Encoder",
    "PassageEncoder",
    "TokenVectors",
    "TrainedEncoder",
    "VectorKind",
    "describe_encoder",
    "describe_record",
    "encoder_pooling",
    "trained_quantizer",
    "trained_settings",
]

VectorKind = Literal["token", "pooled"]
"""The input of a representation: token vectors, or one pooled vector for each window."""


@dataclass(frozen=True)
class TokenVectors:
    """The tokens of one window of a text, without special tokens.

    Attributes:
        values: (n_tokens, dim) float32, the encoder's last hidden states; (n_tokens, 0), like `text_mean` and
            `first`, if the encoder returns pooled vectors only.
        starts: (n_tokens,) int64, first character (code point) of each token in the document's text.
        ends: (n_tokens,) int64, one past its last character.
        text_mean: (dim,) float32, the mean over *all* tokens of the window, including special tokens:
            the encoder's own mean pooling before normalization.
        first: (dim,) float32, the vector of the first special token ([CLS]).
        pooled: (dim,) float32, the window's vector by the encoder's own pooling; None if the encoder has none for
            documents.
    """

    values: Float32Array
    starts: Int64Array
    ends: Int64Array
    text_mean: Float32Array
    first: Float32Array
    pooled: Float32Array | None = None


@runtime_checkable
class Encoder(Protocol):
    """Turns text into vectors; safe to use from several threads at once.

    The vectors of a text depend on that text only: not on other texts, their order, or the number of threads.

    Attributes:
        name: name for messages and `stats`.
        identity: identity of the vectors; only vectors of encoders with the same identity may be compared.
        dim: length of a vector.
        normalize: whether query vectors have L2 norm 1, and centroids of documents are scaled to it.
        beta: inverse temperature of the softmax aggregation that it was trained with; None: the maximum is taken.
        vector_kinds: "token" if windows have token vectors (`TokenVectors.values`), "pooled" if they have a pooled
            vector (`TokenVectors.pooled`); at least one of the two.
        trained_representation: name of the representation that it was trained for, or None.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def identity(self) -> str: ...  # noqa: D102
    @property
    def dim(self) -> int: ...  # noqa: D102
    @property
    def normalize(self) -> bool: ...  # noqa: D102
    @property
    def beta(self) -> float | None: ...  # noqa: D102
    @property
    def vector_kinds(self) -> frozenset[VectorKind]: ...  # noqa: D102
    @property
    def trained_representation(self) -> str | None: ...  # noqa: D102

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Encode a document one window at a time, so that memory holds the vectors of one window.

        Windows do not share arrays, because some representations keep all windows of a document.

        Offsets are code points of ``text``. A text without tokens (empty, blank, only control characters) has
        no windows, which is not an error here.

        Raises:
            InvalidDocument: the text holds a lone surrogate; the message names its position.
        """
        ...

    def encode_query(self, text: str) -> Float32Array:
        """Encode a query: (dim,) float32, with L2 norm 1 if `normalize`.

        The vector of a query longer than the encoder's window is the mean over its windows, weighted by their
        number of tokens, unless the encoder was trained with queries that are cut there.

        Raises:
            InvalidQuery: the text has no token, or holds a lone surrogate.
        """
        ...


@runtime_checkable
class TrainedEncoder(Encoder, Protocol):
    """An encoder that states which representation and quantizer it was trained with; others do not.

    Attributes:
        representation_settings: settings of the representation that it was trained for.
        quantizer: quantizer of its vectors, or None.
    """

    @property
    def representation_settings(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def quantizer(self) -> Quantizer | None: ...  # noqa: D102


@runtime_checkable
class PassageEncoder(Encoder, Protocol):
    """An encoder that can cut documents into shorter windows than it could read at once."""

    def in_passages(self, n_tokens: int) -> Encoder:
        """Return the same encoder with windows of about `n_tokens` tokens, cut at sentence ends if possible."""
        ...


def describe_encoder(encoder: Encoder) -> str:
    """Return name and identity of an encoder for messages; of a bundle also the folder that it was opened from."""
    path = getattr(encoder, "path", None)
    return f"{encoder.name} ({encoder.identity})" + ("" if path is None else f" from {path}")


def describe_record(record: EncoderRecord) -> str:
    """Return name and identity of an index's encoder for messages, and the distribution that brings it, if any."""
    places = {each.identity: f" of {each.distribution}" for each in INSTALLABLE.values()}
    return f"{record.name} ({record.identity}){places.get(record.identity, '')}"


def encoder_pooling(encoder: Encoder) -> str | None:
    """Return how an encoder makes the vector of a text of token vectors; None if it does not state it."""
    pooling = getattr(encoder, "pooling", None)
    return pooling if isinstance(pooling, str) else None


def trained_settings(encoder: Encoder) -> Mapping[str, int]:
    """Return the settings of the representation that an encoder was trained for; none if it states none."""
    return encoder.representation_settings if isinstance(encoder, TrainedEncoder) else {}


def trained_quantizer(encoder: Encoder | None, code_bytes: int | None = None) -> Quantizer | None:
    """Return the quantizer that an encoder was trained with.

    Args:
        encoder: the encoder; None: there is none.
        code_bytes: size of the codes that are wanted; a quantizer of other codes is not returned. None: any size.

    Raises:
        FormatError: the quantizer of a bundle is damaged.
    """
    quantizer = encoder.quantizer if isinstance(encoder, TrainedEncoder) else None
    if quantizer is None or code_bytes not in (None, quantizer.code_bytes):
        return None
    return quantizer
