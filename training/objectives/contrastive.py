"""The contrastive loss of dual encoders: the right document among the batch's."""

from __future__ import annotations

import torch

__all__ = ["contrastive_loss"]


def contrastive_loss(
    scores: torch.Tensor, targets: torch.Tensor, relevant: torch.Tensor, scale: float
) -> torch.Tensor:
    """The mean over queries of -log softmax(scale * s) at the target, over all documents of the batch.

    Eq. 8 of Tang et al. 2021 and the in-batch loss of Karpukhin et al. 2020, with an inverse temperature.
    Candidates are the target, hard negatives, and the documents of the other queries. A document that is known
    to be relevant to a query and is not its target is left out of the sum: it is no negative.

    Args:
        scores: (n_queries, n_documents) float32.
        targets: (n_queries,) int64, the column of each query's document.
        relevant: (n_queries, n_documents) bool, the known relevant documents, targets included.
        scale: inverse temperature, above 0.

    Returns:
        a scalar.
    """
    is_target = torch.zeros_like(relevant).scatter_(1, targets[:, None], True)
    logits = (scale * scores).masked_fill(relevant & ~is_target, -torch.inf)
    return torch.nn.functional.cross_entropy(logits, targets)
