"""The reranker bundle: a folder whose graph turns the token ids of a pair of texts into a score.

The graph takes ``input_ids``, ``attention_mask`` and ``token_type_ids``, (batch, length) int64, and gives
``scores``, (batch,) float32, larger where the second text answers the first one better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from quarry.formats.bundle.folder import (
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
from quarry.formats.container.fields import Fields

__all__ = [
    "RerankerBundle",
    "RerankerParity",
    "RerankerSettings",
    "load_reranker_bundle",
    "reranker_identity",
    "write_reranker_bundle",
]


@dataclass(frozen=True, slots=True)
class RerankerParity:
    """How close the graph's scores are to those of the fp32 graph of the same weights, over pairs of real texts.

    Attributes:
        n_pairs: pairs compared.
        difference_mean: mean absolute difference of scores, in units of the score.
        difference_max: the largest.
        correlation: Pearson's, over all pairs.
        rank_correlation: Spearman's, over all pairs.
    """

    n_pairs: int
    difference_mean: float
    difference_max: float
    correlation: float
    rank_correlation: float


@dataclass(frozen=True, slots=True)
class RerankerSettings:
    """What must be known, beside graph and tokenizer, to score pairs with them.

    Attributes:
        name: for people, e.g. ``ms-marco-MiniLM-L6-v2``.
        precision: of the graph's weights: ``fp32``, ``int8``, ...
        window: most tokens of a pair, special tokens included.
        source: the trained weights.
        licence: of the weights, as their folder names it, or ``unknown``.
        parity: closeness to fp32, None where the graph is fp32 itself.
    """

    name: str
    precision: str
    window: int
    source: SourceRecord
    licence: str
    parity: RerankerParity | None


@dataclass(frozen=True, slots=True)
class RerankerBundle(BundleFolder):
    """A bundle whose manifest has been read and checked, and whose files are there at their right sizes.

    Its identity is `reranker_identity`.

    Attributes:
        settings: what the manifest says about the reranker.
    """

    settings: RerankerSettings


def reranker_identity(settings: RerankerSettings, tokenizer_sha256: str) -> str:
    """Compute the identity of a reranker: up to precision, the same identity gives the same scores.

    It is the first 32 hexadecimal digits of the SHA-256 of a JSON object (keys sorted, no spaces, ASCII) with the
    kind (``reranker``), the source weights' digest, the tokenizer's digest and the window.
    """
    parts = {
        "kind": "reranker",
        "source": settings.source.sha256,
        "tokenizer": tokenizer_sha256,
        "window": settings.window,
    }
    return identity_of(parts)


def load_reranker_bundle(path: str | Path) -> RerankerBundle:
    """Read and check the manifest of a bundle; sizes of files are checked, contents are not (`verify_files`).

    Raises:
        InvalidSetting: there is no bundle at the path, or it holds no reranker; the message says what it holds.
        FormatTooNew: a later version wrote it.
        CorruptFile: the manifest breaks its schema, contradicts itself, or a file is missing or a link.
        TruncatedFile: a file has another size than the manifest says.
    """
    folder, fields = read_manifest(path, "reranker")
    settings = _settings_from(fields)
    folder.check_identity(reranker_identity(settings, folder.files[TOKENIZER_NAME].sha256))
    folder.check_sizes()
    return RerankerBundle(folder.path, folder.identity, folder.files, settings)


def write_reranker_bundle(
    path: str | Path, settings: RerankerSettings, files: Mapping[str, bytes | Path]
) -> RerankerBundle:
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
    members = {"kind": "reranker", **asdict(settings)}
    write_folder(path, members, lambda digest: reranker_identity(settings, digest), files, load_reranker_bundle)
    return load_reranker_bundle(path)


def _settings_from(fields: Fields) -> RerankerSettings:
    parity = fields.optional_child("parity")
    settings = RerankerSettings(
        name=fields.text("name"),
        precision=fields.text("precision", pattern=PRECISION),
        window=fields.integer("window", 3, MAX_WINDOW),
        source=source_from(fields.child("source")),
        licence=fields.text("licence"),
        parity=_parity_from(parity) if parity else None,
    )
    fields.refuse_unknown()
    return settings


def _parity_from(fields: Fields) -> RerankerParity:
    n_pairs = fields.integer("n_pairs", 1, 2**31)
    differences = [fields.number(name, 0.0, 1e9) for name in ("difference_mean", "difference_max")]
    correlations = [fields.number(name, -1.0, 1.0) for name in ("correlation", "rank_correlation")]
    fields.refuse_unknown()
    return RerankerParity(n_pairs, *differences, *correlations)
