"""Documents as one pooled vector, or as their first m token vectors (ME-BERT; DE-BERT with m = 1)."""

from __future__ import annotations

import torch

from quarry.formats.errors import InvalidSetting
from quarry.training.model.tokens import TokenBatch
from quarry.training.objectives.ranking import RankingObjective, RankingSettings, pool
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["FirstVectors", "SingleVector"]


class SingleVector(RankingObjective):
    """Documents are pooled as queries are (Tang et al. 2021, section 3.1; Karpukhin et al. 2020 with ``cls``)."""

    @property
    def representation(self) -> str:
        """``mean`` or ``cls``."""
        return self.settings.pooling

    def document_rows(self, hidden: torch.Tensor, tokens: TokenBatch, step: int | None) -> DocumentRows:
        """One row for each document; see `RankingObjective.document_rows`."""
        del step
        values = pool(hidden, tokens.mask.to(hidden.device), self.settings.pooling)
        return DocumentRows(values, (1,) * len(tokens))


class FirstVectors(RankingObjective):
    """Documents are the top-layer vectors of their first m tokens, [CLS] the first (Luan et al. 2021, section 3).

    The score is the largest inner product (section 3), so `beta` is None in the paper; queries are pooled by [CLS]
    there. With m = 1 it is DE-BERT (section 4.1). A document of fewer tokens has fewer rows, as in
    the engine's `FirstM`: neither padding nor [SEP] is a row.

    Args:
        settings: see `RankingSettings`.
        n_vectors: m, 1 to 4096; 3, 4 or 8 in the paper.

    Raises:
        InvalidSetting: m is out of range.
    """

    def __init__(self, settings: RankingSettings, n_vectors: int) -> None:
        super().__init__(settings)
        if not 1 <= n_vectors <= 4096:
            raise InvalidSetting("n_vectors is out of range", expected="1 to 4096", actual=n_vectors)
        self._n_vectors = n_vectors

    @property
    def representation(self) -> str:
        """``first_m``, and ``cls`` for m = 1."""
        return "cls" if self._n_vectors == 1 else "first_m"

    @property
    def representation_settings(self) -> dict[str, int]:
        """The number of vectors, unless it is 1."""
        return {} if self._n_vectors == 1 else {"n_vectors": self._n_vectors}

    def document_rows(self, hidden: torch.Tensor, tokens: TokenBatch, step: int | None) -> DocumentRows:
        """[CLS] and the first m - 1 tokens; see `RankingObjective.document_rows`."""
        del step
        rows = []
        for states, text in zip(hidden, tokens.texts, strict=True):
            low, n_tokens = tokens.n_before, min(self._n_vectors - 1, len(text.ids))
            rows += [states[:1], states[low : low + n_tokens]]
        counts = tuple(1 + min(self._n_vectors - 1, len(text.ids)) for text in tokens.texts)
        return DocumentRows(torch.cat(rows), counts)
