"""Pseudo query embeddings: the centroids of a k-means over a document's token vectors, inside the graph."""

from __future__ import annotations

import numpy as np
import torch

from quarry.engine.representation.kmeans import kmeans
from quarry.formats.errors import InvalidSetting
from quarry.training.model.tokens import TokenBatch
from quarry.training.objectives.ranking import (
    RankingObjective,
    RankingSettings,
    average_groups,
    select_text_tokens,
)
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["PseudoQueries"]


class PseudoQueries(RankingObjective):
    """Documents are the k-means centroids of their token vectors (Tang et al. 2021, Eq. 1-2, section 4.2).

    The clustering is the engine's (`quarry.engine.representation.kmeans`: equal-interval start, Eq. 1 and 2 until
    nothing changes). It chooses the clusters without gradient, because Eq. 1 has none; the centroids are the means
    of the tokens' vectors (Eq. 2 at the last step), and through them the gradient reaches the network. Scores are
    aggregated by softmax (Eq. 4-6), with `beta` 1 in the paper.

    Args:
        settings: see `RankingSettings`.
        n_centroids: k, 1 to 4096; 8 for documents and 4 for passages in the paper.

    Raises:
        InvalidSetting: k is out of range.
    """

    def __init__(self, settings: RankingSettings, n_centroids: int) -> None:
        super().__init__(settings)
        if not 1 <= n_centroids <= 4096:
            raise InvalidSetting("n_centroids is out of range", expected="1 to 4096", actual=n_centroids)
        self._n_centroids = n_centroids

    @property
    def representation(self) -> str:
        """``kmeans``."""
        return "kmeans"

    @property
    def representation_settings(self) -> dict[str, int]:
        """The number of centroids."""
        return {"n_centroids": self._n_centroids}

    def document_rows(self, hidden: torch.Tensor, tokens: TokenBatch, step: int | None) -> DocumentRows:
        """The centroids of each document; see `RankingObjective.document_rows`."""
        del step
        values = select_text_tokens(hidden, tokens)
        counts: list[int] = []
        groups: list[np.ndarray] = []
        first = 0
        for text in tokens.texts:
            own = values[first : first + len(text.ids)].detach().cpu().numpy()
            centroids, labels = kmeans(own, self._n_centroids)
            groups.append(labels + sum(counts))
            counts.append(len(centroids))
            first += len(text.ids)
        cluster_of_token = torch.from_numpy(np.concatenate(groups)).to(values.device)
        return DocumentRows(average_groups(values, cluster_of_token, sum(counts)), tuple(counts))
