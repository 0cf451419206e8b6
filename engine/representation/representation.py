"""How the token vectors of a document become its centroids.

Every representation is a small frozen dataclass: its fields are the settings that an index stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.token_vectors import TokenVectors, VectorKind
from quarry.engine.representation.kmeans import kmeans
from quarry.engine.representation.pieces import TextPieces, piece_sums, text_pieces
from quarry.formats.errors import InvalidDocument, InvalidSetting

__all__ = [
    "Cls",
    "DocumentVectors",
    "FirstM",
    "KMeans",
    "Mean",
    "Pieces",
    "Pooled",
    "Representation",
    "Spans",
    "check_readable",
    "cluster_spans",
    "representation_for",
    "representation_from",
]

Spans = tuple[tuple[int, int], ...]
"""Character (code point) spans (start, end) of a text: ascending, disjoint, ``end`` exclusive."""

_MAX_SETTING = 4096


@dataclass(frozen=True, eq=False)
class DocumentVectors:
    """The centroids of one document.

    Attributes:
        values: (n_centroids, dim) float32, n_centroids >= 1.
        spans: for each centroid the parts of the document's text whose tokens formed it.
    """

    values: npt.NDArray[np.float32]
    spans: tuple[Spans, ...]


class Representation(Protocol):
    """A way to make a document's centroids out of its token vectors.

    Attributes:
        name: what an index calls it.
        reads: which vectors of a window it is made of.
    """

    name: ClassVar[str]
    reads: ClassVar[VectorKind]

    def represent(self, text: str, windows: Iterable[TokenVectors], normalise: bool) -> DocumentVectors:
        """Make the centroids of a document.

        Args:
            text: the document's text, which the offsets of its tokens refer to.
            windows: the document's tokens, window after window, each read once.
            normalise: whether to scale every centroid to length 1.

        Raises:
            InvalidDocument: no window has a token.
        """

    def settings(self) -> dict[str, int]:
        """Return what an index stores, so that ``representation_from`` can make this again."""


@dataclass(frozen=True)
class _Settings:
    """What the fields of a representation have in common: whole numbers from 1 to 4096."""

    name: ClassVar[str]
    reads: ClassVar[VectorKind] = "token"

    def __post_init__(self) -> None:
        for setting, value in self.settings().items():
            if type(value) is not int or not 1 <= value <= _MAX_SETTING:
                raise InvalidSetting(
                    f"{setting} of the representation {self.name!r} is out of range",
                    expected=f"a whole number from 1 to {_MAX_SETTING}",
                    actual=repr(value),
                )

    def settings(self) -> dict[str, int]:
        """Return the fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class Pieces(_Settings):
    """Means of contiguous pieces of the text, cut at sentence ends, and the mean of the whole document.

    For encoders that were not trained for clustering. Each window is cut into pieces of about equal length
    (``quarry.engine.representation.pieces``). A document of more than one piece has one centroid more, the last:
    the mean over all tokens of the document. Special tokens take no part. Memory: one window and the centroids.

    Attributes:
        tokens_per_piece: how long a piece is on average, 1 to 4096.
    """

    name: ClassVar[str] = "pieces"
    tokens_per_piece: int = 24

    def represent(self, text: str, windows: Iterable[TokenVectors], normalise: bool) -> DocumentVectors:
        """Make the centroids of a document; see ``Representation.represent``."""
        sums: list[npt.NDArray[np.float32]] = []
        sizes: list[npt.NDArray[np.int64]] = []
        spans: list[tuple[int, int]] = []
        for window in _with_tokens(windows):
            whole = [(0, len(window.values))]
            pieces = text_pieces(text, window.starts, window.ends, whole, self.tokens_per_piece)
            sums.append(piece_sums(window.values, np.cumsum(pieces.sizes) - pieces.sizes))
            sizes.append(pieces.sizes)
            spans += pieces.spans
        found = TextPieces(np.concatenate(sizes), spans)
        counts = found.sizes.astype(np.float32)
        if len(spans) > 1:
            sums.append(np.concatenate(sums).sum(axis=0, keepdims=True))
            counts = np.append(counts, counts.sum())
        means = np.concatenate(sums) / counts[:, np.newaxis]
        return DocumentVectors(_scaled(means, normalise), tuple((span,) for span in found.spans_with_whole()))


@dataclass(frozen=True)
class KMeans(_Settings):
    """Plain k-means over the token vectors of the whole document (Tang et al. 2021, Eq. 1-2, section 4.2).

    For encoders trained for it. A document has at most as many centroids as tokens, and fewer where clusters
    end up empty (``quarry.engine.representation.kmeans``). Special tokens take no part. Memory: the token
    vectors of a document.

    Attributes:
        n_centroids: the k of k-means, 1 to 4096; 8 for documents and 4 for passages in the paper.
    """

    name: ClassVar[str] = "kmeans"
    n_centroids: int = 8

    def represent(self, text: str, windows: Iterable[TokenVectors], normalise: bool) -> DocumentVectors:
        """Make the centroids of a document; see ``Representation.represent``."""
        del text
        kept = list(_with_tokens(windows))
        values, labels = kmeans(np.concatenate([window.values for window in kept]), self.n_centroids)
        starts = np.concatenate([window.starts for window in kept])
        ends = np.concatenate([window.ends for window in kept])
        return DocumentVectors(_scaled(values, normalise), cluster_spans(labels, starts, ends, len(values)))


@dataclass(frozen=True)
class FirstM(_Settings):
    """The first m token vectors, [CLS] the first of them: ME-BERT (Luan et al. 2021, section 3).

    For encoders trained for it. A document of fewer tokens has fewer centroids. The span of the [CLS] vector
    is the whole first window. Reads no window beyond the one that holds the m-th token.

    Attributes:
        n_vectors: m, 1 to 4096; 3, 4 or 8 in the paper.
    """

    name: ClassVar[str] = "first_m"
    n_vectors: int = 8

    def represent(self, text: str, windows: Iterable[TokenVectors], normalise: bool) -> DocumentVectors:
        """Make the centroids of a document; see ``Representation.represent``."""
        del text
        values: list[npt.NDArray[np.float32]] = []
        spans: list[tuple[int, int]] = []
        for window in _with_tokens(windows):
            if not values:
                values.append(window.first[np.newaxis])
                spans.append(_extent(window))
            missing = self.n_vectors - len(spans)
            values.append(window.values[:missing])
            spans += zip(window.starts[:missing].tolist(), window.ends[:missing].tolist(), strict=True)
            if len(spans) == self.n_vectors:
                break
        return DocumentVectors(_scaled(np.concatenate(values), normalise), tuple((span,) for span in spans))


@dataclass(frozen=True)
class Mean(_Settings):
    """One vector: the encoder's own mean pooling, special tokens included, over all windows.

    Windows are weighted by their tokens. Memory: one window.
    """

    name: ClassVar[str] = "mean"

    def represent(self, text: str, windows: Iterable[TokenVectors], normalise: bool) -> DocumentVectors:
        """Make the centroid of a document; see ``Representation.represent``."""
        del text
        total = np.zeros(1)
        n_tokens = 0
        extents: list[tuple[int, int]] = []
        for window in _with_tokens(windows):
            total = total + window.text_mean * np.float64(len(window.values))
            n_tokens += len(window.values)
            extents.append(_extent(window))
        mean = (total / n_tokens).astype(np.float32)[np.newaxis]
        return DocumentVectors(_scaled(mean, normalise), (((extents[0][0], extents[-1][1]),),))


@dataclass(frozen=True)
class Cls(_Settings):
    """One vector: the [CLS] vector of the first window (section 4.1 of Luan et al. 2021, with m = 1).

    Reads no other window.
    """

    name: ClassVar[str] = "cls"

    def represent(self, text: str, windows: Iterable[TokenVectors], normalise: bool) -> DocumentVectors:
        """Make the centroid of a document; see ``Representation.represent``."""
        return FirstM(1).represent(text, windows, normalise)


@dataclass(frozen=True)
class Pooled(_Settings):
    """One vector: what the encoder's own pooling gives, whatever that is, averaged over all windows.

    Windows are weighted by their tokens, as those of a long query are. The only one for encoders whose vectors are
    not made of token vectors (Aggretriever: Lin et al. 2022, section 3). Memory: one window.
    """

    name: ClassVar[str] = "pooled"
    reads: ClassVar[VectorKind] = "pooled"

    def represent(self, text: str, windows: Iterable[TokenVectors], normalise: bool) -> DocumentVectors:
        """Make the centroid of a document; see ``Representation.represent``.

        Raises:
            InvalidDocument: a window has no pooled vector, too.
        """
        del text
        sizes: list[int] = []
        vectors: list[npt.NDArray[np.float32]] = []
        extents: list[tuple[int, int]] = []
        for window in _with_tokens(windows):
            if window.pooled is None:
                raise InvalidDocument("the encoder gave no pooled vector")
            sizes.append(len(window.values))
            vectors.append(window.pooled)
            extents.append(_extent(window))
        mean = np.average(np.stack(vectors).astype(np.float64), axis=0, weights=sizes).astype(np.float32)
        return DocumentVectors(_scaled(mean[np.newaxis], normalise), (((extents[0][0], extents[-1][1]),),))


_BY_NAME: dict[str, type[Pieces | KMeans | FirstM | Mean | Cls | Pooled]] = {
    each.name: each for each in (Pieces, KMeans, FirstM, Mean, Cls, Pooled)
}


def representation_from(
    source: str | Representation, settings: Mapping[str, object] | None = None
) -> Representation:
    """Make a representation from what an index stores or an application asks for.

    Args:
        source: ``pieces``, ``kmeans``, ``first_m``, ``mean``, ``cls`` or ``pooled``, or a representation, which
            is returned as it is.
        settings: values for the fields of the one that is named; those left out have their defaults.

    Raises:
        InvalidSetting: an unknown name, an unknown field, a value out of range, settings beside a
            representation, or a source that is neither.
    """
    if isinstance(source, str):
        return _from_name(source, settings or {})
    if not isinstance(source, tuple(_BY_NAME.values())):
        raise InvalidSetting("not a representation", expected=_names(), actual=repr(source))
    if settings:
        raise InvalidSetting(
            "settings go with the name of a representation, not with a representation that has its own",
            actual=repr(dict(settings)),
        )
    return source


def representation_for(encoder_kinds: frozenset[VectorKind], trained_for: str | None) -> Representation:
    """Choose for an encoder: what it was trained for, else pieces where it gives token vectors, else pooled.

    Raises:
        InvalidSetting: it was trained for something unknown here.
    """
    return representation_from(trained_for or ("pieces" if "token" in encoder_kinds else "pooled"))


def check_readable(representation: Representation, encoder_kinds: frozenset[VectorKind]) -> None:
    """Refuse a representation of vectors that the encoder does not give.

    Raises:
        InvalidSetting: it reads others; the message names those that would do.
    """
    if representation.reads not in encoder_kinds:
        fitting = [name for name, each in _BY_NAME.items() if each.reads in encoder_kinds]
        raise InvalidSetting(
            f"the representation {representation.name!r} reads {representation.reads} vectors, "
            "which this encoder does not give",
            expected=" or ".join(fitting),
            actual=representation.name,
        )


def _from_name(name: str, settings: Mapping[str, object]) -> Representation:
    chosen = _BY_NAME.get(name)
    if chosen is None:
        raise InvalidSetting("unknown representation", expected=_names(), actual=repr(name))
    known = chosen().settings()
    unknown = sorted(map(str, settings.keys() - known.keys()))
    if unknown:
        raise InvalidSetting(
            f"unknown setting of the representation {name!r}",
            expected=", ".join(known) or "no setting",
            actual=", ".join(unknown),
        )
    return chosen(**settings)  # type: ignore[arg-type]


def _names() -> str:
    return f"one of {', '.join(_BY_NAME)}, or an instance of one of their classes"


def _with_tokens(windows: Iterable[TokenVectors]) -> Iterator[TokenVectors]:
    """Pass on the windows that have tokens.

    Raises:
        InvalidDocument: there is none.
    """
    n_windows = 0
    for window in windows:
        if len(window.values):
            n_windows += 1
            yield window
    if n_windows == 0:
        raise InvalidDocument("the document has no token, so it has no vector")


def _scaled(values: npt.NDArray[np.float32], normalise: bool) -> npt.NDArray[np.float32]:
    """Scale rows to length 1 where asked; a row of zeros stays one."""
    if not normalise:
        return values
    lengths = np.sqrt(np.einsum("ij,ij->i", values, values))
    scaled: npt.NDArray[np.float32] = values / np.maximum(lengths, np.finfo(np.float32).tiny)[:, np.newaxis]
    return scaled


def _extent(window: TokenVectors) -> tuple[int, int]:
    return int(window.starts[0]), int(window.ends[-1])


def cluster_spans(
    labels: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    n_clusters: int,
) -> tuple[Spans, ...]:
    """Collect for each cluster its runs of consecutive tokens, as spans of the text.

    Args:
        labels: (n_tokens,) int64, the cluster of each token.
        starts: (n_tokens,) int64, first character of each token, ascending.
        ends: (n_tokens,) int64, one past the last character of each.
        n_clusters: more than any label.
    """
    first = np.flatnonzero(np.diff(labels, prepend=-1))
    last = np.append(first[1:], len(labels)) - 1
    spans: list[list[tuple[int, int]]] = [[] for _ in range(n_clusters)]
    runs = zip(labels[first].tolist(), starts[first].tolist(), ends[last].tolist(), strict=True)
    for label, start, end in runs:
        before = spans[label]
        # Tokens can share a character (byte-level vocabularies): spans of one centroid stay disjoint.
        if before and start <= before[-1][1]:
            before[-1] = (before[-1][0], end)
        else:
            before.append((start, end))
    return tuple(map(tuple, spans))
