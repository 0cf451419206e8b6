"""The reranker bundle: its graph computes a score from the token ids of a pair of texts.

The graph takes ``input_ids``, ``attention_mask`` and ``token_type_ids``, (batch, length) int64, and returns
``scores``, (batch,) float32, larger if the second text answers the first one better.
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
    compute_identity,
    read_manifest,
    read_source,
    write_folder,
)
from quarry.formats.container.fields import Fields

__all__ = [
    "RerankerBundle",
    "RerankerParity",
    "RerankerSettings",
    "compute_reranker_identity",
    "load_reranker_bundle",
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
    """The settings of a reranker, beside its graph and tokenizer.

    Attributes:
        name: for display, e.g. ``ms-marco-MiniLM-L6-v2``.
        precision: of the graph's weights: ``fp32``, ``int8``, ...
        window: maximum number of tokens of a pair, special tokens included.
        source: the trained weights.
        license: of the weights, as stated in their folder, or ``unknown``.
        parity: closeness to fp32, None if the graph is fp32 itself.
    """

    name: str
    precision: str
    window: int
    source: SourceRecord
    license: str
    parity: RerankerParity | None


@dataclass(frozen=True, slots=True)
class RerankerBundle(BundleFolder):
    """A bundle whose manifest was checked and whose files exist with the right sizes.

    Its identity is `compute_reranker_identity`.

    Attributes:
        settings: of the reranker, from the manifest.
    """

    settings: RerankerSettings


def compute_reranker_identity(settings: RerankerSettings, tokenizer_sha256: str) -> str:
    """Compute the identity of a reranker: bundles of the same identity give the same scores, up to precision.

    It is the first 32 hexadecimal digits of the SHA-256 of a JSON object (keys sorted, no spaces, ASCII) with the
    kind (``reranker``), the source weights' digest, the tokenizer's digest and the window.
    """
    parts = {
        "kind": "reranker",
        "source": settings.source.sha256,
        "tokenizer": tokenizer_sha256,
        "window": settings.window,
    }
    return compute_identity(parts)


def load_reranker_bundle(path: str | Path) -> RerankerBundle:
    """Read and check the manifest of a bundle; sizes of files are checked, contents are checked by `verify_files`.

    Raises:
        InvalidSetting: there is no bundle at the path, or it contains no reranker.
        FormatTooNew: a later version wrote it.
        CorruptFile: the manifest is not valid, or a file is missing or a link.
        TruncatedFile: a file has another size than in the manifest.
    """
    folder, fields = read_manifest(path, "reranker")
    settings = _parse_settings(fields)
    folder.check(compute_reranker_identity(settings, folder.files[TOKENIZER_NAME].sha256))
    return RerankerBundle(folder.path, folder.identity, folder.files, settings)


def write_reranker_bundle(
    path: str | Path, settings: RerankerSettings, files: Mapping[str, bytes | Path]
) -> RerankerBundle:
    """Write a bundle to a new folder: first under a temporary name, which is then renamed.

    Args:
        path: the new folder.
        settings: for the manifest.
        files: contents, or files to copy, by name; ``model.onnx`` and ``tokenizer.json`` among them.

    Returns:
        The bundle, read back.

    Raises:
        InvalidSetting: the folder exists already.
        CorruptFile: the settings or file names are not valid; nothing is left behind.
    """
    members = {
        "kind": "reranker",
        "name": settings.name,
        "precision": settings.precision,
        "window": settings.window,
        "source": asdict(settings.source),
        "licence": settings.license,
        "parity": asdict(settings.parity) if settings.parity else None,
    }
    return write_folder(
        path, members, lambda digest: compute_reranker_identity(settings, digest), files, load_reranker_bundle
    )


def _parse_settings(fields: Fields) -> RerankerSettings:
    parity = fields.optional_child("parity")
    settings = RerankerSettings(
        name=fields.text("name"),
        precision=fields.text("precision", pattern=PRECISION),
        window=fields.integer("window", 3, MAX_WINDOW),
        source=read_source(fields.child("source")),
        license=fields.text("licence"),
        parity=_parse_parity(parity) if parity else None,
    )
    fields.refuse_unknown()
    return settings


def _parse_parity(fields: Fields) -> RerankerParity:
    n_pairs = fields.integer("n_pairs", 1, 2**31)
    differences = [fields.number(name, 0.0, 1e9) for name in ("difference_mean", "difference_max")]
    correlations = [fields.number(name, -1.0, 1.0) for name in ("correlation", "rank_correlation")]
    fields.refuse_unknown()
    return RerankerParity(n_pairs, *differences, *correlations)
