"""The reranker bundle: its graph computes a score from the token ids of a pair of texts.

The graph takes ``input_ids``, ``attention_mask`` and ``token_type_ids``, (batch, length) int64, and returns
``scores``, (batch,) float32, larger if the second text answers the first one better.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from quarry.formats.bundle.folder import (
    MAX_WINDOW,
    PRECISION,
    BundleFolder,
    BundleType,
    SourceRecord,
    compute_identity,
    read_source,
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
    """Closeness of the graph's scores to those of the fp32 graph of the same weights, over pairs of real texts.

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
        precision: the precision of the graph's weights: ``fp32``, ``int8``, ...
        window: maximum number of tokens of a pair, special tokens included.
        source: the trained weights.
        license: the license of the weights, as stated in their folder, or ``unknown``.
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
        settings: the settings of the reranker, from the manifest.
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


def _to_members(settings: RerankerSettings) -> dict[str, object]:
    """Return the members of the manifest."""
    return {
        "kind": "reranker",
        "name": settings.name,
        "precision": settings.precision,
        "window": settings.window,
        "source": asdict(settings.source),
        "licence": settings.license,
        "parity": asdict(settings.parity) if settings.parity else None,
    }


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


_TYPE = BundleType("reranker", RerankerBundle, _parse_settings, _to_members, compute_reranker_identity)
load_reranker_bundle = _TYPE.load
write_reranker_bundle = _TYPE.write
