import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from quarry.formats.errors import InvalidSetting  # noqa: E402
from quarry.training.compression.compressed import CodedDocumentsObjective  # noqa: E402
from quarry.training.compression.jpq import Jpq  # noqa: E402
from quarry.training.compression.product_quantizer import ProductQuantizer, squared_distances  # noqa: E402
from quarry.training.compression.repconc import (  # noqa: E402
    Constraint,
    Dpq,
    RepConc,
    assign_balanced_codes,
)
from quarry.training.compression.stored_codes import StoredCodes  # noqa: E402
from quarry.training.objectives.first_m import SingleVector  # noqa: E402
from quarry.training.objectives.objective import StepTargets, TeacherScores  # noqa: E402
from quarry.training.objectives.ranking import DistillationTerm, RankingSettings  # noqa: E402
from quarry.training.objectives.scoring import DocumentRows  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

Floats = npt.NDArray[np.float64]
SCALE, WEIGHT, DIM, N_SUB, N_WORDS = 3.0, 0.05, 8, 3, 4
COUNTS = (2, 1, 3)
METHODS: dict[str, Callable[..., CodedDocumentsObjective]] = {
    "repconc": lambda ranking, quantizer: RepConc(ranking, quantizer, 40, WEIGHT, Constraint(0.05, 50)),
    "clustering": lambda ranking, quantizer: RepConc(ranking, quantizer, 40, WEIGHT, None),
    "dpq": lambda ranking, quantizer: Dpq(ranking, quantizer, 40, WEIGHT),
}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(4)


def made_quantizer(rng: np.random.Generator) -> ProductQuantizer:
    rotation = torch.from_numpy(np.linalg.qr(rng.standard_normal((DIM, DIM)))[0][:6])
    book = torch.from_numpy(rng.standard_normal((N_SUB, N_WORDS, 2)))
    return ProductQuantizer(rotation, book, book)


def made_step(rng: np.random.Generator, **changes: object) -> StepTargets:
    fields: dict[str, object] = {
        "targets": torch.tensor([0, 2, 1]),
        "relevant": torch.eye(3, dtype=torch.bool)[[0, 2, 1]],
        "documents": torch.arange(3),
        "source": "s",
        "teacher_scores": {"teacher": TeacherScores(torch.from_numpy(rng.standard_normal((3, 3))))},
    }
    return StepTargets(**(fields | changes))  # type: ignore[arg-type]


RANKING = RankingSettings(scale=SCALE, normalize=False, distillation=(DistillationTerm("teacher", 0.7, 2.0),))


def slow_ranking(queries: Floats, decoded: Floats, step: StepTargets) -> float:
    """Compute eq. 6 with the largest score of a document's rows, and the divergence from the teacher."""
    bounds = np.cumsum([0, *COUNTS])
    total = 0.0
    for row, query in enumerate(queries):
        scores = [max(float(query @ each) for each in decoded[low:high]) for low, high in pairwise(bounds)]
        shares = [math.exp(SCALE * score) for score in scores]
        shares = [share / sum(shares) for share in shares]
        total -= math.log(shares[int(step.targets[row])])
        taught = np.exp(2.0 * step.teacher_scores["teacher"].documents.numpy()[row])
        taught /= taught.sum()
        total += 0.7 * sum(p * math.log(p / q) for p, q in zip(taught, shares, strict=True))
    return total / len(queries)


def decoded_rows(codes: npt.NDArray[np.int64], book: Floats) -> Floats:
    return np.stack([np.concatenate([book[m, j] for m, j in enumerate(row)]) for row in codes])


@pytest.mark.parametrize("method", METHODS)
def test_loss_and_gradients_are_the_papers(rng: np.random.Generator, method: str) -> None:
    """Gradients of coded rows are compared with finite differences; eq. 9 and 10 say how they are propagated."""
    quantizer, step = made_quantizer(rng), made_step(rng)
    objective = METHODS[method](SingleVector(RANKING), quantizer)
    queries, values = (torch.from_numpy(rng.standard_normal((n, DIM))).requires_grad_() for n in (3, 6))
    terms = objective.loss(queries, DocumentRows(values, COUNTS), step)
    assert set(terms) == {"contrastive", "distillation from teacher", "quantization error"}
    loss = torch.stack(list(terms.values())).sum()
    loss.backward()

    rotation, book = quantizer.rotation.numpy(), quantizer.encode_codebook.numpy()
    rotated_queries, rows = queries.detach().numpy() @ rotation.T, values.detach().numpy() @ rotation.T
    distances = squared_distances(torch.from_numpy(rows), quantizer.encode_codebook)
    codes = (assign_balanced_codes(distances, 0.05, 50) if method == "repconc" else distances.argmin(2).T).numpy()
    decoded = decoded_rows(codes, book)
    error = ((rows - decoded) ** 2).sum(1).mean()
    assert loss.item() == pytest.approx(slow_ranking(rotated_queries, decoded, step) + WEIGHT * error)

    ranked, epsilon = np.empty_like(decoded), 1e-6
    for place in np.ndindex(decoded.shape):
        moved = [decoded.copy(), decoded.copy()]
        moved[0][place] += epsilon
        moved[1][place] -= epsilon
        up, down = (slow_ranking(rotated_queries, each, step) for each in moved)
        ranked[place] = (up - down) / (2 * epsilon)
    apart = 2 * WEIGHT * (rows - decoded) / len(rows)
    is_dpq = method == "dpq"
    of_rows = ranked + (0 if is_dpq else apart)
    of_words = -apart + (0 if is_dpq else ranked)
    np.testing.assert_allclose(values.grad.numpy(), of_rows @ rotation, atol=1e-7)
    expected = np.zeros_like(book)
    for row, numbers in enumerate(codes):
        for m, number in enumerate(numbers):
            expected[m, number] += of_words[row, 2 * m : 2 * m + 2]
    (parameter, rate), *others = objective.parameters().values()
    assert (rate, others) == (40, [])
    np.testing.assert_allclose(parameter.grad.numpy(), expected, atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_of_queries_are_finite_differences(rng: np.random.Generator, method: str) -> None:
    objective = METHODS[method](SingleVector(RANKING), made_quantizer(rng))
    rows, step = DocumentRows(torch.from_numpy(rng.standard_normal((6, DIM))), COUNTS), made_step(rng)

    def loss(queries: torch.Tensor) -> torch.Tensor:
        return torch.stack(list(objective.loss(queries, rows, step).values())).sum()

    assert torch.autograd.gradcheck(loss, (torch.from_numpy(rng.standard_normal((3, DIM))).requires_grad_(),))


@pytest.mark.parametrize("method", METHODS)
def test_scores_are_of_nearest_codewords_with_and_without_the_constraint(
    rng: np.random.Generator, method: str
) -> None:
    quantizer = made_quantizer(rng)
    objective = METHODS[method](SingleVector(RANKING), quantizer)
    queries, values = (torch.from_numpy(rng.standard_normal((n, DIM))) for n in (3, 6))
    decoded = quantizer.decode(quantizer.nearest(quantizer.rotate(values)))
    per_row = (quantizer.rotate(queries) @ decoded.T).numpy()
    expected = np.stack([per_row[:, :2].max(1), per_row[:, 2], per_row[:, 3:].max(1)], 1)
    found = objective.scores(queries, DocumentRows(values, COUNTS))
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-9)


def made_jpq(rng: np.random.Generator, n_negatives: int) -> tuple[Jpq, npt.NDArray[np.int64], list[int]]:
    """Return JPQ on ten documents of one to three rows."""
    counts = rng.integers(1, 4, 10).tolist()
    codes = rng.integers(0, N_WORDS, (sum(counts), N_SUB))
    stored = StoredCodes(
        torch.from_numpy(codes.astype(np.uint8)), torch.from_numpy(np.cumsum([0, *counts]).astype(np.int64))
    )
    return (
        Jpq(SingleVector(RANKING), made_quantizer(rng), 10, {"s": stored}, n_negatives, n_at_once=3),
        codes,
        counts,
    )


@pytest.mark.parametrize("n_negatives", [0, 2, 6, 50])
def test_jpq_is_the_slow_loss_over_fixed_codes(rng: np.random.Generator, n_negatives: int) -> None:
    objective, codes, counts = made_jpq(rng, n_negatives)
    assert not objective.encodes_documents
    batch, positives = [7, 1, 4], [[7, 2], [4], [1]]
    step = made_step(rng, documents=torch.tensor(batch), positives=tuple(torch.tensor(each) for each in positives))
    queries = torch.from_numpy(rng.standard_normal((3, DIM)))

    quantizer = objective.quantizer
    rotated_queries = queries.numpy() @ quantizer.rotation.numpy().T
    decoded = decoded_rows(codes, quantizer.score_codebook.detach().numpy())
    bounds = np.cumsum([0, *counts])
    scores = np.stack([(rotated_queries @ decoded[low:high].T).max(1) for low, high in pairwise(bounds)], 1)
    contrastive = divergence = 0.0
    for row, own in enumerate(positives):
        ranked = sorted((each for each in range(10) if each not in own), key=lambda each: -scores[row, each])
        target = batch[int(step.targets[row])]
        counted = {target, *ranked[:n_negatives], *(each for each in batch if each not in own)}
        total = sum(math.exp(SCALE * scores[row, each]) for each in counted)
        contrastive -= math.log(math.exp(SCALE * scores[row, target]) / total) / 3
        taught = np.exp(2.0 * step.teacher_scores["teacher"].documents.numpy()[row])
        learned = np.exp(SCALE * scores[row, batch])
        taught, learned = taught / taught.sum(), learned / learned.sum()
        divergence += 0.7 * float((taught * np.log(taught / learned)).sum()) / 3
    terms = objective.loss(queries, None, step)
    assert terms["contrastive"].item() == pytest.approx(contrastive)
    assert terms["distillation from teacher"].item() == pytest.approx(divergence)


def test_gradients_of_jpq_are_finite_differences(rng: np.random.Generator) -> None:
    objective, _, _ = made_jpq(rng, 4)
    step = made_step(rng, documents=torch.tensor([7, 1, 4]), positives=tuple(torch.tensor([n]) for n in (7, 4, 1)))
    (codebook, rate), *_ = objective.parameters().values()
    assert rate == 10

    def loss(queries: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return torch.stack(list(objective.loss(queries, None, step).values())).sum()

    queries = torch.from_numpy(rng.standard_normal((3, DIM))).requires_grad_()
    assert torch.autograd.gradcheck(loss, (queries, codebook))
    before = objective.quantizer.encode_codebook.clone()
    loss(queries, codebook).backward()
    with torch.no_grad():
        codebook -= codebook.grad
    assert torch.equal(objective.quantizer.encode_codebook, before)
    arrays = objective.quantizer.to_arrays()
    assert not np.array_equal(arrays.encode_codebook, arrays.score_codebook)


@pytest.mark.parametrize(
    "make",
    [
        lambda ranking, quantizer: Dpq(ranking, quantizer, 0, WEIGHT),
        lambda ranking, quantizer: Dpq(ranking, quantizer, 1, -1),
        lambda ranking, quantizer: RepConc(ranking, quantizer, 1, math.nan, None),
        lambda ranking, quantizer: Jpq(ranking, quantizer, 1, {}, -1),
        lambda ranking, quantizer: Constraint(epsilon=0),
        lambda ranking, quantizer: Constraint(n_iterations=0),
    ],
)
def test_settings_out_of_range_are_refused(rng: np.random.Generator, make: Callable[..., object]) -> None:
    with pytest.raises(InvalidSetting, match="out of range"):
        make(SingleVector(RANKING), made_quantizer(rng))
