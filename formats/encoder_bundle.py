"""The encoder bundle: a folder whose graph turns token ids into token vectors and a pooled vector."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, cast

from formats.bundle_folder import (
    MAX_WINDOW,
    PRECISION,
    TOKENIZER_NAME,
    BundleFolder,
    SourceRecord,
    identity_of,
    read_manifest,
    source_from,
    write_folder,
)
from formats.json_fields import JsonFields

__all__ = [
    "EncoderBundle",
    "EncoderSettings",
    "ParityRecord",
    "Pooling",
    "encoder_identity",
    "load_bundle",
    "write_bundle",
]

_MAX_DIM: Final = 65536

Pooling = Literal["mean", "cls"]


@dataclass(frozen=True, slots=True)
class ParityRecord:
    """How close the graph is to the fp32 graph of the same weights, by cosine over real texts.

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
class EncoderSettings:
    """What must be known, beside graph and tokenizer, to encode with them.

    Attributes:
        name: for people, e.g. ``all-MiniLM-L6-v2``.
        precision: of the graph's weights: ``fp32``, ``int8``, ...
        dim: length of a vector.
        window: most tokens the encoder reads at once, special tokens included.
        pooling: ``mean`` over all tokens, or the vector of the first one (``cls``).
        normalise: whether pooled vectors have L2 norm 1.
        query_prefix: put before the text of a query.
        document_prefix: put before every window of a document.
        beta: inverse temperature of the softmax aggregation the encoder was trained with; None when it was not:
            a document's score is then the largest of its centroids' scores.
        trained_representation: name of the representation it was trained for, None when for none.
        source: the trained weights.
        licence: of the weights, as their folder names it, or ``unknown``.
        parity: closeness to fp32, None where the graph is fp32 itself.
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


@dataclass(frozen=True, slots=True)
class EncoderBundle(BundleFolder):
    """A bundle whose manifest has been read and checked, and whose files are there at their right sizes.

    Its identity is `encoder_identity`.

    Attributes:
        settings: what the manifest says about the encoder.
    """

    settings: EncoderSettings


def encoder_identity(settings: EncoderSettings, tokenizer_sha256: str) -> str:
    """Compute the identity of an encoder: vectors of one identity may be compared, others may not.

    It is the first 32 hexadecimal digits of the SHA-256 of a JSON object (keys sorted, no spaces, ASCII) with
    the source weights' digest, the tokenizer's digest, pooling, projection (null so far), normalisation,
    prefixes and window. Precision and runtime are variants of one identity and no part of it.
    """
    parts = {
        "source": settings.source.sha256,
        "tokenizer": tokenizer_sha256,
        "pooling": settings.pooling,
        "projection": None,
        "normalise": settings.normalise,
        "query_prefix": settings.query_prefix,
        "document_prefix": settings.document_prefix,
        "window": settings.window,
    }
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
    write_folder(path, asdict(settings), lambda digest: encoder_identity(settings, digest), files, load_bundle)
    return load_bundle(path)


def _settings_from(fields: JsonFields) -> EncoderSettings:
    settings = EncoderSettings(
        name=fields.text("name"),
        precision=fields.text("precision", PRECISION),
        dim=fields.integer("dim", 1, _MAX_DIM),
        window=fields.integer("window", 3, MAX_WINDOW),
        pooling=cast("Pooling", fields.text("pooling", re.compile("mean|cls"))),
        normalise=fields.flag("normalise"),
        query_prefix=fields.text("query_prefix"),
        document_prefix=fields.text("document_prefix"),
        beta=None if fields.take_null("beta") else fields.number("beta", math.ulp(0.0), 1e6),
        trained_representation=(
            None if fields.take_null("trained_representation") else fields.text("trained_representation")
        ),
        source=source_from(fields.inner("source")),
        licence=fields.text("licence"),
        parity=None if fields.take_null("parity") else _parity_from(fields.inner("parity")),
    )
    fields.done()
    return settings


def _parity_from(fields: JsonFields) -> ParityRecord:
    cosines = ("token_mean", "token_min", "pooled_mean", "pooled_min")
    record = ParityRecord(
        fields.integer("n_texts", 1, 2**31), *(fields.number(name, -1.0, 1.0) for name in cosines)
    )
    fields.done()
    return record
