import math

import numpy as np
import numpy.typing as npt
import pytest
from support.indexes.decoded_codes import aggregated

torch = pytest.importorskip("torch", reason="objectives need torch")

from quarry.formats.errors import InvalidSetting  # noqa: E402
from quarry.training.objectives.first_m import SingleVector  # noqa: E402
from quarry.training.objectives.losses import (  # noqa: E402
    contrastive_loss,
    distillation_loss,
    row_distillation_loss,
)
from quarry.training.objectives.objective import StepTargets, TeacherScores  # noqa: E402
from quarry.training.objectives.ranking import DistillationTerm, RankingSettings  # noqa: E402
from quarry.training.objectives.scoring import DocumentRows, score_documents  # noqa: E402
from quarry.training.objectives.teachers import standardize  # noqa: E402

Floats = npt.NDArray[np.float64]


def slow_contrastive(scores: Floats, targets: list[int], relevant: npt.NDArray[np.bool_], scale: float) -> float:
    losses = []
    for row, target in enumerate(targets):
        counted = [j for j in range(scores.shape[1]) if j == target or not relevant[row, j]]
        total = sum(math.exp(scale * scores[row, j]) for j in counted)
        losses.append(-math.log(math.exp(scale * scores[row, target]) / total))
    return sum(losses) / len(losses)


def slow_divergence(scores: Floats, teacher: Floats, scale: float, teacher_scale: float) -> float:
    total = 0.0
    for student_row, teacher_row in zip(scores * scale, teacher * teacher_scale, strict=True):
        p = np.exp(teacher_row) / np.exp(teacher_row).sum()
        q = np.exp(student_row) / np.exp(student_row).sum()
        total += float(sum(p_j * math.log(p_j / q_j) for p_j, q_j in zip(p, q, strict=True)))
    return total / len(scores)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_the_contrastive_loss_equals_the_reference(rng: np.random.Generator) -> None:
    for _ in range(20):
        scores = rng.normal(0, 1, (5, 7))
        targets = rng.integers(0, 7, 5)
        relevant = rng.random((5, 7)) < 0.3
        relevant[np.arange(5), targets] = True
        scale = float(rng.uniform(0.5, 20))
        found = contrastive_loss(*map(torch.from_numpy, (scores, targets, relevant)), scale)
        assert float(found) == pytest.approx(slow_contrastive(scores, targets.tolist(), relevant, scale))


def test_a_known_relevant_document_is_no_negative() -> None:
    scores = torch.tensor([[1.0, 50.0, 0.0]])
    targets, relevant = torch.tensor([0]), torch.tensor([[True, True, False]])
    alone = contrastive_loss(scores[:, [0, 2]], targets, relevant[:, [0, 2]], 1.0)
    assert float(contrastive_loss(scores, targets, relevant, 1.0)) == pytest.approx(float(alone))


def test_the_distillation_loss_equals_the_reference(rng: np.random.Generator) -> None:
    for _ in range(20):
        scores, teacher = rng.normal(0, 1, (2, 4, 6))
        scale, teacher_scale = rng.uniform(0.5, 10, 2).tolist()
        found = distillation_loss(torch.from_numpy(scores), torch.from_numpy(teacher), scale, teacher_scale)
        assert float(found) == pytest.approx(slow_divergence(scores, teacher, scale, teacher_scale))


def test_the_distillation_loss_of_rows_counts_both_directions(rng: np.random.Generator) -> None:
    scores, teacher = rng.normal(0, 1, (2, 4, 9))
    found = row_distillation_loss(torch.from_numpy(scores), torch.from_numpy(teacher), 3.0, 2.0)
    expected = slow_divergence(scores, teacher, 3.0, 2.0) + slow_divergence(scores.T, teacher.T, 3.0, 2.0)
    assert float(found) == pytest.approx(expected / 2)


def test_a_student_that_ranks_as_its_teacher_has_no_loss(rng: np.random.Generator) -> None:
    scores = torch.from_numpy(rng.normal(0, 1, (4, 6)))
    assert float(distillation_loss(scores, 5 + scores / 3, 2.0, 6.0)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("beta", [None, 1.0, 7.5])
def test_scores_are_the_engines(rng: np.random.Generator, beta: float | None) -> None:
    counts = (3, 1, 4, 2)
    queries, values = rng.normal(0, 1, (5, 8)).astype(np.float32), rng.normal(0, 1, (10, 8)).astype(np.float32)
    found = score_documents(torch.from_numpy(queries), DocumentRows(torch.from_numpy(values), counts), beta)
    offsets = np.cumsum([0, *counts])
    expected = np.stack([aggregated(row, offsets, beta) for row in queries @ values.T])
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_softmax_scores_are_equations_4_to_6(rng: np.random.Generator) -> None:
    query, centroids = rng.normal(0, 1, 8), rng.normal(0, 1, (4, 8))
    weights = np.exp(centroids @ query) / np.exp(centroids @ query).sum()
    expected = float(query @ (weights @ centroids))
    rows = DocumentRows(torch.from_numpy(centroids), (4,))
    assert float(score_documents(torch.from_numpy(query)[None], rows, 1.0)) == pytest.approx(expected)


@pytest.mark.parametrize("beta", [None, 2.0])
def test_gradients_of_both_losses_are_finite_differences(rng: np.random.Generator, beta: float | None) -> None:
    settings = RankingSettings(
        scale=3.0, beta=beta, normalize=False, distillation=(DistillationTerm("teacher", 0.7, 2.0, 0.4),)
    )
    taught = (torch.from_numpy(rng.normal(0, 1, (3, n))) for n in (3, 6))
    step = StepTargets(
        targets=torch.tensor([0, 2, 1]),
        relevant=torch.eye(3, dtype=torch.bool)[[0, 2, 1]],
        documents=torch.arange(3),
        source="s",
        teacher_scores={"teacher": TeacherScores(*taught, (2, 1, 3))},
    )

    def loss(queries: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        terms = SingleVector(settings).loss(queries, DocumentRows(values, (2, 1, 3)), step)
        assert set(terms) == {"contrastive", "distillation from teacher", "distillation of rows from teacher"}
        return torch.stack(list(terms.values())).sum()

    queries, values = (torch.from_numpy(rng.normal(0, 1, (n, 4))).requires_grad_() for n in (3, 6))
    assert torch.autograd.gradcheck(loss, (queries, values))


@pytest.mark.parametrize("counts", [(), (1, 4), (2, 2)])
def test_a_teacher_of_other_rows_is_refused(counts: tuple[int, ...]) -> None:
    rows = torch.zeros(2, sum(counts)) if counts else None
    step = StepTargets(
        targets=torch.tensor([0, 1]),
        relevant=torch.eye(2, dtype=torch.bool),
        documents=torch.arange(2),
        source="s",
        teacher_scores={"large": TeacherScores(torch.zeros(2, 2), rows, counts)},
    )
    objective = SingleVector(RankingSettings(distillation=(DistillationTerm("large", 1.0, 1.0, 1.0),)))
    with pytest.raises(InvalidSetting, match=r"'large' cuts texts .* of \(1, 3\) rows; found"):
        objective.loss(torch.zeros(2, 3), DocumentRows(torch.zeros(4, 3), (1, 3)), step)


def test_scores_are_standardized_for_each_query() -> None:
    found = standardize(torch.tensor([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]]))
    expected = [[-math.sqrt(1.5), 0, math.sqrt(1.5)], [0, 0, 0]]
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"pooling": "max"},
        {"scale": 0.0},
        {"scale": math.nan},
        {"beta": -1.0},
        {"contrastive_weight": 0.0},
        {"contrastive_weight": -1.0},
    ],
)
def test_bad_settings_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting):
        RankingSettings(**change)  # type: ignore[arg-type]
