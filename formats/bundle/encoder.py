"""The encoder bundle: a folder whose graph turns token ids into token vectors and a pooled vector."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Final, Literal, cast

from quarry.formats.bundle.folder import (
    MAX_WINDOW,
    MODEL_NAME,
    PRECISION,
    SHA256,
    TOKENIZER_NAME,
    BundleFolder,
    SourceRecord,
    identity_of,
    read_manifest,
    source_from,
    write_folder,
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
    "encoder_identity",
    "load_bundle",
    "write_bundle",
]

_MAX_DIM: Final = 65536

LEAST_MEAN_COSINE: Final = 0.98
"""Variants of an encoder answer from one index where their mean cosines to fp32 are at least this."""

Pooling = Literal["mean", "cls", "max", "aggretriever"]


@dataclass(frozen=True, slots=True)
class ParityRecord:
    """How close the graph is to the fp32 graph of the same weights, by cosine over real texts.

    Where an encoder gives no token vectors, the vectors of windows stand for them.

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
    """What the graph's precision does to a ranking: one vector a document, all documents compared.

    Attributes:
        collection: name of the judged texts.
        n_queries: how many queries it has.
        ndcg_10: mean nDCG@10 (gain linear in the judgment) with this graph.
        ndcg_10_exact: the same with the fp32 graph.
    """

    collection: str
    n_queries: int
    ndcg_10: float
    ndcg_10_exact: float


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """What must be known, beside graph and tokenizer, to encode with them.

    Attributes:
        name: for people, e.g. ``all-MiniLM-L6-v2``.
        precision: of the graph's weights: ``fp32``, ``fp16``, ``int8``, ``int8-weights``.
        dim: length of a vector.
        window: most tokens the encoder reads at once, special tokens included.
        pooling: ``mean`` or ``max`` over all tokens, the vector of the first one (``cls``), or ``aggretriever``:
            the first one's and aggregated weights of vocabulary entries (Lin et al. 2022).
        normalise: whether pooled vectors have L2 norm 1.
        query_prefix: put before the text of a query.
        document_prefix: put before every window of a document.
        beta: inverse temperature of the softmax aggregation the encoder was trained with; None when it was not:
            a document's score is then the largest of its centroids' scores.
        trained_representation: name of the representation it was trained for, None when for none.
        source: the trained weights.
        licence: of the weights, as their folder names it, or ``unknown``.
        parity: closeness to the weights' own precision; None where the graph was built from them in fp32.
        projection: SHA-256 that stands for the layers between network and pooled vector, None without any.
        token_vectors: whether the graph gives token vectors, in the space of its pooled ones.
        query_source: the trained weights of the network for queries, None where it is the same network.
        retrieval: effect of the precision on a ranking, None where it was not measured.
    """

    name: str
    precision: str
    dim: int
    window: int
    pooling: Pooling
    normalise: bool
    query_prefix: str
    document_prefix: str
    beta: float | None
    trained_representation: str | None
    source: SourceRecord
    licence: str
    parity: ParityRecord | None
    projection: str | None = None
    token_vectors: bool = True
    query_source: SourceRecord | None = None
    retrieval: RetrievalRecord | None = None

    @property
    def stands_in(self) -> bool:
        """Whether the vectors may be compared with those of other variants, by what the export recorded."""
        if self.parity is None:
            return self.precision == "fp32"
        return min(self.parity.token_mean, self.parity.pooled_mean) >= LEAST_MEAN_COSINE


@dataclass(frozen=True, slots=True)
class EncoderBundle(BundleFolder):
    """A bundle whose manifest has been read and checked, and whose files are there at their right sizes.

    Its identity is `encoder_identity`.

    Attributes:
        settings: what the manifest says about the encoder.
    """

    settings: EncoderSettings

    @property
    def vector_identity(self) -> str:
        """The identity of its vectors: the encoder's, or one of its own for a variant too far from fp32."""
        if self.settings.stands_in:
            return self.identity
        return identity_of({"identity": self.identity, "model": self.files[MODEL_NAME].sha256})


def encoder_identity(settings: EncoderSettings, tokenizer_sha256: str) -> str:
    """Compute the identity of an encoder: vectors of one identity may be compared, others may not.

    It is the first 32 hexadecimal digits of the SHA-256 of a JSON object (keys sorted, no spaces, ASCII) with
    the source weights' digest, the tokenizer's digest, pooling, projection, normalisation, prefixes and window,
    and the digest of the weights for queries where there are any. Precision and runtime are variants of one
    identity and no part of it.
    """
    parts: dict[str, object] = {
        "source": settings.source.sha256,
        "tokenizer": tokenizer_sha256,
        "pooling": settings.pooling,
        "projection": settings.projection,
        "normalise": settings.normalise,
        "query_prefix": settings.query_prefix,
        "document_prefix": settings.document_prefix,
        "window": settings.window,
    }
    if settings.query_source is not None:
        parts["query_source"] = settings.query_source.sha256
    return identity_of(parts)


def load_bundle(path: str | Path) -> EncoderBundle:
    """Read and check the manifest of a bundle; sizes of files are checked, contents are not (`verify_files`).

    Raises:
        InvalidSetting: there is no bundle at the path, or it holds no encoder; the message says what it holds.
        FormatTooNew: a later version wrote it.
        CorruptFile: the manifest breaks its schema, contradicts itself, or a file is missing or a link.
        TruncatedFile: a file has another size than the manifest says.
    """
    folder, fields = read_manifest(path, "encoder")
    settings = _settings_from(fields)
    folder.check_identity(encoder_identity(settings, folder.files[TOKENIZER_NAME].sha256))
    folder.check_sizes()
    return EncoderBundle(folder.path, folder.identity, folder.files, settings)


def write_bundle(path: str | Path, settings: EncoderSettings, files: Mapping[str, bytes | Path]) -> EncoderBundle:
    """Write a bundle into a new folder: in full beside it first, then moved to its name.

    Args:
        path: the folder to make.
        settings: goes into the manifest.
        files: contents, or files to copy, by name; ``model.onnx`` and ``tokenizer.json`` among them.

    Returns:
        The bundle, read back.

    Raises:
        InvalidSetting: the folder exists already.
        CorruptFile: settings or names that a reader would refuse; nothing is left behind then.
    """
    write_folder(path, _members(settings), lambda digest: encoder_identity(settings, digest), files, load_bundle)
    return load_bundle(path)


def _members(settings: EncoderSettings) -> dict[str, object]:
    """The manifest's members; those that most encoders lack are left out where they say nothing."""
    members = asdict(settings)
    for field in fields_of(settings):
        if field.default is not MISSING and members[field.name] == field.default:
            del members[field.name]
    return members


def _settings_from(fields: Fields) -> EncoderSettings:
    parity = fields.optional_child("parity")
    settings = EncoderSettings(
        name=fields.text("name"),
        precision=fields.text("precision", pattern=PRECISION),
        dim=fields.integer("dim", 1, _MAX_DIM),
        window=fields.integer("window", 3, MAX_WINDOW),
        pooling=cast("Pooling", fields.text("pooling", pattern=re.compile("mean|cls|max|aggretriever"))),
        normalise=fields.boolean("normalise"),
        query_prefix=fields.text("query_prefix"),
        document_prefix=fields.text("document_prefix"),
        beta=fields.optional_number("beta", math.ulp(0.0), 1e6),
        trained_representation=(fields.optional_text("trained_representation")),
        source=source_from(fields.child("source")),
        licence=fields.text("licence"),
        parity=_parity_from(parity) if parity else None,
        projection=fields.text("projection", pattern=SHA256) if fields.has("projection") else None,
        token_vectors=fields.boolean("token_vectors") if fields.has("token_vectors") else True,
        query_source=source_from(fields.child("query_source")) if fields.has("query_source") else None,
        retrieval=_retrieval_from(fields.child("retrieval")) if fields.has("retrieval") else None,
    )
    fields.refuse_unknown()
    if settings.pooling == "aggretriever" and settings.token_vectors:
        raise CorruptFile("the manifest contradicts itself: Aggretriever gives no token vectors", path=fields.path)
    return settings


def _retrieval_from(fields: Fields) -> RetrievalRecord:
    record = RetrievalRecord(
        fields.text("collection"),
        fields.integer("n_queries", 1, 2**31),
        *(fields.number(name, 0.0, 1.0) for name in ("ndcg_10", "ndcg_10_exact")),
    )
    fields.refuse_unknown()
    return record


def _parity_from(fields: Fields) -> ParityRecord:
    cosines = ("token_mean", "token_min", "pooled_mean", "pooled_min")
    record = ParityRecord(
        fields.integer("n_texts", 1, 2**31), *(fields.number(name, -1.0, 1.0) for name in cosines)
    )
    fields.refuse_unknown()
    return record
