"""The distillation loss: a teacher's ranking of the batch's documents."""

from __future__ import annotations

import torch

__all__ = ["distillation_loss"]


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
