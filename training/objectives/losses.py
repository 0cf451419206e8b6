"""Losses over the documents of a batch: contrastive, and distillation of a teacher's rankings."""

from __future__ import annotations

import torch

__all__ = ["contrastive_loss", "distillation_loss", "row_distillation_loss"]


def contrastive_loss(
    scores: torch.Tensor, targets: torch.Tensor, relevant: torch.Tensor, scale: float
) -> torch.Tensor:
    """The mean over queries of -log softmax(scale * s) at the target, over all documents of the batch.

    Eq. 8 of Tang et al. 2021 and the in-batch loss of Karpukhin et al. 2020, with an inverse temperature.
    Candidates are the target, hard negatives, and the documents of the other queries. A document that is known
    to be relevant to a query and is not its target is left out of the sum: it is not a negative.

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


def distillation_loss(
    scores: torch.Tensor, teacher_scores: torch.Tensor, scale: float, teacher_scale: float
) -> torch.Tensor:
    """The mean over queries of KL(softmax(teacher_scale * t) || softmax(scale * s)) over the batch's documents.

    Hinton et al. 2015, section 2, with candidates in the place of classes and an inverse temperature for each
    side, because teacher and student may score on different scales. Every document counts, relevant or not: the
    teacher needs no labels.

    Args:
        scores: (n_queries, n_documents) float32, the student's.
        teacher_scores: (n_queries, n_documents) float32, without gradient.
        scale: the student's inverse temperature.
        teacher_scale: the teacher's.

    Returns:
        a scalar, 0 when both rank with the same probabilities.
    """
    student = (scale * scores).log_softmax(1)
    teacher = (teacher_scale * teacher_scores).log_softmax(1)
    return torch.nn.functional.kl_div(student, teacher, reduction="batchmean", log_target=True)


def row_distillation_loss(
    scores: torch.Tensor, teacher_scores: torch.Tensor, scale: float, teacher_scale: float
) -> torch.Tensor:
    """The mean of `distillation_loss` over rows for each query, and over queries for each row.

    A document's score says which document the teacher prefers; the scores of its rows say for which passage, and
    the second direction says which of the queries a passage answers. So every row of a batch gets a gradient, also
    those that are not a document's maximum.

    Args:
        scores: (n_queries, n_rows) float32, the student's.
        teacher_scores: (n_queries, n_rows) float32, without gradient.
        scale: the student's inverse temperature.
        teacher_scale: the teacher's.

    Returns:
        a scalar, 0 when both rank with the same probabilities.
    """
    of_queries = distillation_loss(scores, teacher_scores, scale, teacher_scale)
    of_rows = distillation_loss(scores.T, teacher_scores.T, scale, teacher_scale)
    return (of_queries + of_rows) / 2
