"""The encoder bundle: its graph computes token vectors and a pooled vector from token ids."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Literal, cast, get_args

from quarry.formats.bundle.folder import (
    MAX_WINDOW,
    MODEL_NAME,
    PRECISION,
    SHA256,
    BundleFolder,
    BundleType,
    SourceRecord,
    compute_identity,
    read_source,
)
from quarry.formats.container.fields import Fields
from quarry.formats.errors import CorruptFile

__all__ = [
    "LEAST_MEAN_COSINE",
    "EncoderBundle",
    "EncoderSettings",
    "ParityRecord",
    "Pooling",
    "RetrievalRecord",
    "compute_encoder_identity",
    "load_bundle",
    "read_representation_settings",
    "write_bundle",
]

_MAX_DIM: Final = 65536
_MAX_SETTING: Final = 65536  # of a representation
_QUANTIZER: Final = re.compile(r"[0-9a-f]{32}\.quant")

LEAST_MEAN_COSINE: Final = 0.98
"""Variants of an encoder share an index if their mean cosines to fp32 are at least this."""

Pooling = Literal["mean", "weightedmean", "cls", "lasttoken", "max", "aggretriever"]
_POOLINGS = re.compile("|".join(get_args(Pooling)))


@dataclass(frozen=True, slots=True)
class ParityRecord:
    """Closeness of the graph to the fp32 graph of the same weights: cosines over real texts.

    For an encoder without token vectors, the vectors of windows are compared instead.

    Attributes:
        n_texts: texts compared.
        token_mean: mean cosine over all tokens of all texts.
        token_min: smallest cosine of a token.
        pooled_mean: mean cosine of the texts' pooled vectors.
        pooled_min: smallest cosine of a pooled vector.
    """

    n_texts: int
    token_mean: float
    token_min: float
    pooled_mean: float
    pooled_min: float


@dataclass(frozen=True, slots=True)
class RetrievalRecord:
    """The effect of the graph's precision on a ranking: one vector per document, exhaustive search.

    Attributes:
        collection: name of the collection.
        n_queries: number of queries.
        ndcg_10: mean nDCG@10 (gain linear in the judgment) with this graph.
        ndcg_10_exact: the same with the fp32 graph.
    """

    collection: str
    n_queries: int
    ndcg_10: float
    ndcg_10_exact: float


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """The settings of an encoder, beside its graph and tokenizer.

    Attributes:
        name: for display, e.g. ``all-MiniLM-L6-v2``.
        precision: the precision of the graph's weights: ``fp32``, ``fp16``, ``int8``, ``int8-weights``.
        dim: dimensions of a vector.
        window: maximum number of tokens, special tokens included.
        pooling: ``mean`` or ``max`` over all tokens, the vector of the first one (``cls``), or ``aggretriever``:
            the first one's and aggregated weights of vocabulary entries (Lin et al. 2022).
        normalize: whether pooled vectors have L2 norm 1.
        query_prefix: prepended to the text of a query.
        document_prefix: prepended to every window of a document.
        beta: inverse temperature of the softmax aggregation that the encoder was trained with; None: the score of
            a document is the maximum of the scores of its centroids.
        trained_representation: name of the representation it was trained for, or None.
        representation_settings: settings of that representation; those left out have their defaults.
        quantizer: name of the bundle's file with the quantizer it was trained with, or None.
        include_prompt: whether the pooling includes the tokens of a prefix, and the special tokens before it.
        cut_queries: whether a query longer than the window is cut, as sentence-transformers does; otherwise its
            vector is the mean over its windows.
        multilingual: whether it is for texts of many languages.
        source: the trained weights.
        license: the license of the weights, as stated in their folder, or ``unknown``.
        parity: closeness to the weights' own precision; None if the graph was built from them in fp32.
        projection: SHA-256 of the layers between network and pooled vector, None if there are none.
        token_vectors: whether the graph outputs token vectors, in the space of its pooled vectors.
        query_source: the trained weights of the network for queries, None if it is the same network.
        retrieval: effect of the precision on a ranking, None if it was not measured.
    """

    name: str
    precision: str
    dim: int
    window: int
    pooling: Pooling
    normalize: bool
    query_prefix: str
    document_prefix: str
    beta: float | None
    trained_representation: str | None
    source: SourceRecord
    license: str
    parity: ParityRecord | None
    projection: str | None = None
    token_vectors: bool = True
    query_source: SourceRecord | None = None
    retrieval: RetrievalRecord | None = None
    representation_settings: Mapping[str, int] = field(default_factory=dict, hash=False)
    quantizer: str | None = None
    include_prompt: bool = True
    cut_queries: bool = False
    multilingual: bool = False

    @property
    def is_interchangeable(self) -> bool:
        """Whether the vectors may be compared with those of other variants, according to the export."""
        if self.parity is None:
            return self.precision == "fp32"
        return min(self.parity.token_mean, self.parity.pooled_mean) >= LEAST_MEAN_COSINE


@dataclass(frozen=True, slots=True)
class EncoderBundle(BundleFolder):
    """A bundle whose manifest was checked and whose files exist with the right sizes.

    Its identity is `compute_encoder_identity`.

    Attributes:
        settings: the settings of the encoder, from the manifest.
    """

    settings: EncoderSettings

    def __post_init__(self) -> None:
        quantizer = self.settings.quantizer
        if quantizer is not None and quantizer not in self.files:
            raise CorruptFile("the manifest names a file that it does not list", path=self.path, actual=quantizer)

    @property
    def vector_identity(self) -> str:
        """The identity of its vectors: that of the encoder, or another one for a variant too far from fp32."""
        if self.settings.is_interchangeable:
            return self.identity
        return compute_identity({"identity": self.identity, "model": self.files[MODEL_NAME].sha256})


def compute_encoder_identity(settings: EncoderSettings, tokenizer_sha256: str) -> str:
    """Compute the identity of an encoder: only vectors of the same identity may be compared.

    It is the first 32 hexadecimal digits of the SHA-256 of a JSON object (keys sorted, no spaces, ASCII) with
    the source weights' digest, the tokenizer's digest, pooling, projection, normalization, prefixes and window,
    and the digest of the weights for queries, if there are any, and ``include_prompt`` if it is false. Precision,
    runtime and `EncoderSettings.cut_queries`, which changes no vector of a document, are not part of the identity.
    """
    parts: dict[str, object] = {
        "source": settings.source.sha256,
        "tokenizer": tokenizer_sha256,
        "pooling": settings.pooling,
        "projection": settings.projection,
        "normalise": settings.normalize,
        "query_prefix": settings.query_prefix,
        "document_prefix": settings.document_prefix,
        "window": settings.window,
    }
    if settings.query_source is not None:
        parts["query_source"] = settings.query_source.sha256
    if not settings.include_prompt:
        parts["include_prompt"] = False
    return compute_identity(parts)


def _to_members(settings: EncoderSettings) -> dict[str, object]:
    """Return the members of the manifest; optional ones that have their default are left out."""
    members: dict[str, object] = {
        "name": settings.name,
        "precision": settings.precision,
        "dim": settings.dim,
        "window": settings.window,
        "pooling": settings.pooling,
        "normalise": settings.normalize,
        "query_prefix": settings.query_prefix,
        "document_prefix": settings.document_prefix,
        "beta": settings.beta,
        "trained_representation": settings.trained_representation,
        "source": asdict(settings.source),
        "licence": settings.license,
        "parity": asdict(settings.parity) if settings.parity else None,
    }
    if settings.projection is not None:
        members["projection"] = settings.projection
    if not settings.token_vectors:
        members["token_vectors"] = False
    if settings.query_source is not None:
        members["query_source"] = asdict(settings.query_source)
    if settings.retrieval is not None:
        members["retrieval"] = asdict(settings.retrieval)
    if settings.representation_settings:
        members["representation_settings"] = dict(settings.representation_settings)
    if settings.quantizer is not None:
        members["quantizer"] = settings.quantizer
    if not settings.include_prompt:
        members["include_prompt"] = False
    if settings.cut_queries:
        members["cut_queries"] = True
    if settings.multilingual:
        members["multilingual"] = True
    return members


def _parse_settings(fields: Fields) -> EncoderSettings:
    parity = fields.optional_child("parity")
    settings = EncoderSettings(
        name=fields.text("name"),
        precision=fields.text("precision", pattern=PRECISION),
        dim=fields.integer("dim", 1, _MAX_DIM),
        window=fields.integer("window", 3, MAX_WINDOW),
        pooling=cast("Pooling", fields.text("pooling", pattern=_POOLINGS)),
        normalize=fields.boolean("normalise"),
        query_prefix=fields.text("query_prefix"),
        document_prefix=fields.text("document_prefix"),
        beta=fields.optional_number("beta", math.ulp(0.0), 1e6),
        trained_representation=fields.optional_text("trained_representation"),
        source=read_source(fields.child("source")),
        license=fields.text("licence"),
        parity=_parse_parity(parity) if parity else None,
        projection=fields.text("projection", pattern=SHA256) if fields.has("projection") else None,
        token_vectors=fields.boolean("token_vectors") if fields.has("token_vectors") else True,
        query_source=read_source(fields.child("query_source")) if fields.has("query_source") else None,
        retrieval=_parse_retrieval(fields.child("retrieval")) if fields.has("retrieval") else None,
        representation_settings=(
            read_representation_settings(fields) if fields.has("representation_settings") else {}
        ),
        quantizer=fields.text("quantizer", pattern=_QUANTIZER) if fields.has("quantizer") else None,
        include_prompt=fields.boolean("include_prompt") if fields.has("include_prompt") else True,
        cut_queries=fields.boolean("cut_queries") if fields.has("cut_queries") else False,
        multilingual=fields.boolean("multilingual") if fields.has("multilingual") else False,
    )
    fields.refuse_unknown()
    if settings.pooling == "aggretriever" and settings.token_vectors:
        raise CorruptFile("the manifest contradicts itself: Aggretriever has no token vectors", path=fields.path)
    if not (settings.include_prompt or settings.token_vectors):
        raise CorruptFile("the manifest contradicts itself: include_prompt needs token vectors", path=fields.path)
    return settings


def read_representation_settings(fields: Fields) -> dict[str, int]:
    """Read the member ``representation_settings``: an object of positive integers.

    Raises:
        CorruptFile: it is not valid.
    """
    child = fields.child("representation_settings")
    return {name: child.integer(name, 1, _MAX_SETTING) for name in child.names()}


def _parse_retrieval(fields: Fields) -> RetrievalRecord:
    record = RetrievalRecord(
        fields.text("collection"),
        fields.integer("n_queries", 1, 2**31),
        *(fields.number(name, 0.0, 1.0) for name in ("ndcg_10", "ndcg_10_exact")),
    )
    fields.refuse_unknown()
    return record


def _parse_parity(fields: Fields) -> ParityRecord:
    cosines = ("token_mean", "token_min", "pooled_mean", "pooled_min")
    record = ParityRecord(
        fields.integer("n_texts", 1, 2**31), *(fields.number(name, -1.0, 1.0) for name in cosines)
    )
    fields.refuse_unknown()
    return record


_TYPE = BundleType("encoder", EncoderBundle, _parse_settings, _to_members, compute_encoder_identity)
load_bundle = _TYPE.load
write_bundle = _TYPE.write
