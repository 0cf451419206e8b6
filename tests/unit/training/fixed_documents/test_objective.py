from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from quarry.engine.analysis.analyzer import Analyzer  # noqa: E402
from quarry.formats.errors import CorruptFile, InvalidSetting  # noqa: E402
from quarry.training.compression.product_quantizer import ProductQuantizer  # noqa: E402
from quarry.training.data.example_store import ExampleStore, ExampleWriter  # noqa: E402
from quarry.training.data.refusal import Refusal  # noqa: E402
from quarry.training.fixed_documents.objective import (  # noqa: E402
    Bm25Scores,
    FixedDocuments,
    FixedDocumentsSettings,
    FixedSource,
)
from quarry.training.fixed_documents.stored_rows import StoredRows  # noqa: E402
from quarry.training.objectives.first_m import SingleVector  # noqa: E402
from quarry.training.objectives.objective import StepTargets  # noqa: E402
from quarry.training.objectives.ranking import RankingSettings  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

Floats = npt.NDArray[np.float64]
DIM, SCALE, LEXICAL = 8, 3.0, 2.0
COUNTS = (2, 1, 3, 1, 4, 2)
TEXTS = ("red fox", "red dog runs", "blue fox", "green fox and fox", "cat", "red red fox dog")
QUERIES = ("red fox", "dog", "zebra")
POSITIVES = ([0, 2], [1], [4])


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(8)


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    with ExampleWriter(tmp_path / "store", Refusal.of_nothing()) as writer:
        for text in TEXTS:
            writer.document(text, "", text)
        for query, positives in zip(QUERIES, POSITIVES, strict=True):
            writer.example(query, positives, [], query)
        return writer.finish({})


def unit(rows: Floats) -> Floats:
    scaled: Floats = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return scaled


def made_rows(rng: np.random.Generator) -> StoredRows:
    values = unit(rng.standard_normal((sum(COUNTS), DIM))).astype(np.float32)
    return StoredRows(torch.from_numpy(values), torch.from_numpy(np.cumsum([0, *COUNTS])))


def document_scores(rows: StoredRows, queries: Floats) -> Floats:
    of_rows = queries @ rows.values.numpy().astype(np.float64).T
    return np.stack([of_rows[:, low:high].max(1) for low, high in bounds()], 1)


def bounds() -> list[tuple[int, int]]:
    offsets = np.cumsum([0, *COUNTS]).tolist()
    return list(pairwise(offsets))


def bm25(query: str) -> Floats:
    """Scores by the formula, divided by the best."""
    analyzer = Analyzer()
    documents = [analyzer.terms(text) for text in TEXTS]
    average = np.mean([len(each) for each in documents])
    scores = np.zeros(len(TEXTS))
    for term in set(analyzer.terms(query)):
        n_with = sum(term in each for each in documents)
        if n_with:
            idf = np.log(1 + (len(TEXTS) - n_with + 0.5) / (n_with + 0.5))
            for number, each in enumerate(documents):
                tf = each.count(term)
                scores[number] += idf * tf / (tf + 1.2 * (1 - 0.75 + 0.75 * len(each) / average))
    return scores / max(scores.max(), 1e-30)


def candidates(dense: Floats, lexical: Floats | None, query: int, n_negatives: int) -> list[int]:
    """A query's own document, then each of its negatives once."""
    own = POSITIVES[query][0]
    others = [number for number in range(len(TEXTS)) if number not in POSITIVES[query]]
    found = sorted(others, key=lambda number: -dense[query, number])[:n_negatives]
    if lexical is not None:
        both = SCALE * dense[query] + LEXICAL * lexical[query]
        found += sorted(others, key=lambda number: -both[number])[: max(1, n_negatives // 2)]
    return [own, *dict.fromkeys(found)]


def cross_entropy(logits: list[float]) -> float:
    return float(np.log(np.exp(logits).sum()) - logits[0])


def step_of(**changes: object) -> StepTargets:
    fields: dict[str, object] = {
        "targets": torch.tensor([0, 1, 2]),
        "relevant": torch.eye(3, dtype=torch.bool),
        "documents": torch.tensor([each[0] for each in POSITIVES]),
        "source": "s",
        "teacher_scores": {},
        "positives": tuple(torch.tensor(each) for each in POSITIVES),
        "examples": torch.arange(3),
    }
    return StepTargets(**(fields | changes))  # type: ignore[arg-type]


def ranking() -> SingleVector:
    return SingleVector(RankingSettings(scale=SCALE))


@pytest.mark.parametrize("n_negatives", [1, 2, 50])
def test_losses_equal_a_slow_version(rng: np.random.Generator, store: ExampleStore, n_negatives: int) -> None:
    rows, queries, before = (
        made_rows(rng),
        unit(rng.standard_normal((3, DIM))),
        unit(rng.standard_normal((3, DIM))),
    )
    book = torch.from_numpy(rng.standard_normal((2, 4, 3)).astype(np.float32))
    rotation = torch.from_numpy(np.linalg.qr(rng.standard_normal((DIM, DIM)))[0][:6].astype(np.float32))
    quantizer = ProductQuantizer(rotation, book, book)
    codes = quantizer.nearest(quantizer.rotate(rows.values)).to(torch.uint8)
    settings = FixedDocumentsSettings(
        n_negatives=n_negatives,
        hybrid_weight=0.5,
        lexical_scale=LEXICAL,
        mean_weight=0.25,
        code_weight=2.0,
        code_bytes=1,
        code_dim=6,
        original_weight=0.75,
    )
    source = FixedSource(rows, Bm25Scores(store, Analyzer()), codes)
    objective = FixedDocuments(ranking(), settings, {"s": source}, quantizer)
    terms = objective.loss(
        torch.from_numpy(queries).float(), None, step_of(original_queries=torch.from_numpy(before).float())
    )

    dense, lexical = document_scores(rows, queries), np.stack([bm25(query) for query in QUERIES])
    values = rows.values.numpy().astype(np.float64)
    decoded = unit(book[torch.arange(2), codes.long()].flatten(1).numpy().astype(np.float64))
    rotated = queries @ rotation.numpy().T
    expected: dict[str, list[float]] = {name: [] for name in terms}
    for query in range(3):
        chosen = candidates(dense, lexical, query, n_negatives)
        ranges = [bounds()[number] for number in chosen]
        best = [low + int((values[low:high] @ queries[query]).argmax()) for low, high in ranges]
        scores = dense[query, chosen]
        expected["contrastive"].append(cross_entropy(list(SCALE * scores)))
        expected["hybrid"].append(0.5 * cross_entropy(list(SCALE * scores + LEXICAL * lexical[query, chosen])))
        wholes = [SCALE * float(values[high - 1] @ queries[query]) for _, high in ranges]
        expected["mean"].append(0.25 * cross_entropy(wholes))
        expected["codes"].append(
            2.0 * cross_entropy([SCALE * float(decoded[row] @ rotated[query]) for row in best])
        )
        old = np.exp(SCALE * values[best] @ before[query])
        new = np.exp(SCALE * scores)
        old, new = old / old.sum(), new / new.sum()
        expected["distillation from before"].append(0.75 * float((old * np.log(old / new)).sum()))
    assert terms.keys() == {"contrastive", "hybrid", "mean", "codes", "distillation from before"}
    for name, each in expected.items():
        assert float(terms[name]) == pytest.approx(np.mean(each), abs=2e-5), name


def test_gradients_equal_finite_differences(rng: np.random.Generator, store: ExampleStore) -> None:
    rows = made_rows(rng)
    double = StoredRows(rows.values.double(), rows.offsets)
    settings = FixedDocumentsSettings(n_negatives=3, hybrid_weight=0.5, mean_weight=0.5, lexical_scale=LEXICAL)
    objective = FixedDocuments(ranking(), settings, {"s": FixedSource(double, Bm25Scores(store, Analyzer()))})
    queries = torch.from_numpy(unit(rng.standard_normal((3, DIM)))).requires_grad_()

    def total(values: torch.Tensor) -> torch.Tensor:
        return torch.stack(list(objective.loss(values, None, step_of()).values())).sum()

    total(queries).backward()
    assert queries.grad is not None
    with torch.no_grad():
        for row, column in ((0, 0), (1, 3), (2, 7)):
            moved = torch.zeros_like(queries)
            moved[row, column] = 1e-6
            difference = float(total(queries + moved) - total(queries - moved)) / 2e-6
            assert float(queries.grad[row, column]) == pytest.approx(difference, rel=1e-4, abs=1e-7)


def test_rows_are_searched_like_documents(rng: np.random.Generator) -> None:
    rows, queries = replace(made_rows(rng), rows_at_once=4), unit(rng.standard_normal((5, DIM)))
    found = rows.scores(torch.from_numpy(queries).float())
    np.testing.assert_allclose(found.numpy(), document_scores(rows, queries), atol=1e-6)
    documents = torch.from_numpy(rng.integers(0, len(COUNTS), (5, 3)))
    best = rows.best_rows(torch.from_numpy(queries).float(), documents).numpy()
    of_rows = queries @ rows.values.numpy().T
    for query, numbers in enumerate(documents.tolist()):
        for place, (low, high) in enumerate(bounds()[number] for number in numbers):
            assert best[query, place] == low + of_rows[query, low:high].argmax()
    assert rows.last_rows(torch.arange(len(COUNTS))).tolist() == [high - 1 for _, high in bounds()]


def test_term_scores_equal_the_formula(store: ExampleStore) -> None:
    found = Bm25Scores(store, Analyzer()).scores(np.array([2, 0, 1]))
    np.testing.assert_allclose(found, np.stack([bm25(QUERIES[number]) for number in (2, 0, 1)]), rtol=1e-5)
    assert not found[0].any()


def test_stored_rows_are_read_again_or_refused(rng: np.random.Generator, tmp_path: Path) -> None:
    rows, path, cpu = made_rows(rng), tmp_path / "rows.npz", torch.device("cpu")
    n_documents, dim = len(COUNTS), rows.values.shape[1]
    rows.save(path, "an encoder")
    again = StoredRows.load(path, n_documents, dim, "an encoder", cpu)
    np.testing.assert_allclose(again.values, rows.values, atol=1e-3)
    np.testing.assert_array_equal(again.offsets, rows.offsets)
    for wrong in ((n_documents + 1, dim), (n_documents, dim + 1)):
        with pytest.raises(CorruptFile, match="not those of the source"):
            StoredRows.load(path, *wrong, "an encoder", cpu)
    with pytest.raises(InvalidSetting, match="of another encoder"):
        StoredRows.load(path, n_documents, dim, "its successor", cpu)
    for offsets in (torch.tensor(0), rows.offsets[None], rows.offsets.flip(0)):
        StoredRows(rows.values, offsets).save(path, "an encoder")
        with pytest.raises(CorruptFile, match="not those of the source"):
            StoredRows.load(path, n_documents, dim, "an encoder", cpu)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorruptFile, match="cannot be read"):
        StoredRows.load(path, n_documents, dim, "an encoder", cpu)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_negatives": 0},
        {"hybrid_weight": -1.0},
        {"code_weight": float("nan")},
        {"code_bytes": 8, "code_dim": 100},
    ],
)
def test_settings_out_of_range_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(InvalidSetting, match="out of range"):
        FixedDocumentsSettings(**changes)  # type: ignore[arg-type]


def test_an_objective_that_aggregates_by_a_softmax_is_refused(rng: np.random.Generator) -> None:
    aggregating = SingleVector(RankingSettings(beta=2.0))
    with pytest.raises(InvalidSetting, match="best row"):
        FixedDocuments(aggregating, FixedDocumentsSettings(), {"s": FixedSource(made_rows(rng))})
