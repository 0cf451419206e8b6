"""One vector for each document: the dual encoder."""

from __future__ import annotations

import torch

from quarry.training.model.tokens import TokenBatch
from quarry.training.objectives.pooling import pool
from quarry.training.objectives.ranking import RankingObjective
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["SingleVector"]


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
