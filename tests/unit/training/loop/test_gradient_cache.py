from pathlib import Path

import numpy as np
import pytest
from support.training.tiny_run import tiny_encoder, words

torch = pytest.importorskip("torch", reason="the training loop needs torch")
pytest.importorskip("transformers", reason="training needs transformers")

from quarry.training.loop.gradient_cache import GradientCache  # noqa: E402
from quarry.training.loop.optimizer import OptimizerSettings, make_optimizer  # noqa: E402
from quarry.training.model.network import EncoderNetwork, load_network  # noqa: E402
from quarry.training.model.tokens import TextBatcher, TokenBatch  # noqa: E402
from quarry.training.objectives.first_m import SingleVector  # noqa: E402
from quarry.training.objectives.objective import Objective, StepTargets  # noqa: E402
from quarry.training.objectives.passages import Passages  # noqa: E402
from quarry.training.objectives.pseudo_queries import PseudoQueries  # noqa: E402
from quarry.training.objectives.ranking import RankingSettings  # noqa: E402
from quarry.training.objectives.registry import ObjectiveSettings, make_objective  # noqa: E402
from quarry.training.objectives.scoring import DocumentRows  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

N_QUERIES, N_DOCUMENTS = 5, 7


def step_targets() -> StepTargets:
    return StepTargets(
        targets=torch.arange(N_QUERIES),
        relevant=torch.eye(N_QUERIES, N_DOCUMENTS, dtype=torch.bool),
        documents=torch.arange(N_DOCUMENTS),
        source="s",
        teacher_scores={},
    )


def texts(network: EncoderNetwork) -> tuple[TokenBatch, TokenBatch]:
    rng = np.random.default_rng(0)
    batcher = TextBatcher(network.tokenizer_path, "", 32)
    queries = batcher.batch([words(rng, int(rng.integers(1, 4))) for _ in range(N_QUERIES)])
    documents = batcher.batch([words(rng, int(rng.integers(1, 9))) for _ in range(N_DOCUMENTS)])
    return queries, documents


def gradients(
    folder: Path, objective: Objective, chunk_size: int, dropout: float = 0.0
) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    network = load_network(folder, dropout=dropout)
    network.model.train()
    terms = GradientCache(network, objective, chunk_size, seed=1).backward(*texts(network), step_targets(), 3)
    found = {name: value.grad for name, value in network.trained_parameters() if value.grad is not None}
    return terms, found


@pytest.mark.parametrize(
    "make", [lambda: Passages(RankingSettings(), (5,)), lambda: PseudoQueries(RankingSettings(beta=2.0), 3)]
)
@pytest.mark.parametrize("chunk_size", [1, 2, 6])
def test_gradients_of_chunks_are_those_of_the_whole_batch(tmp_path: Path, make, chunk_size: int) -> None:
    folder = tiny_encoder(tmp_path / "checkpoint")
    terms, whole = gradients(folder, make(), 100)
    cached_terms, cached = gradients(folder, make(), chunk_size)
    assert cached_terms == pytest.approx(terms, rel=1e-4)
    assert cached.keys() == whole.keys()
    assert sum(float(value.abs().sum()) for value in whole.values()) > 0
    for name, value in whole.items():
        torch.testing.assert_close(cached[name], value, rtol=1e-3, atol=1e-4)


def test_both_passes_of_a_chunk_draw_the_same_dropout(tmp_path: Path) -> None:
    """Gradients with dropout equal finite differences, because both passes draw the same dropout."""
    folder = tiny_encoder(tmp_path / "checkpoint")
    objective = Passages(RankingSettings(scale=2.0), (5,))
    network = load_network(folder, dropout=0.3)
    network.model.train()
    cache = GradientCache(network, objective, 2, seed=1)
    parameter = dict(network.trained_parameters())["encoder.layer.1.output.LayerNorm.bias"]

    def loss() -> float:
        network.model.zero_grad()
        return sum(cache.backward(*texts(network), step_targets(), 3).values())

    loss()
    assert parameter.grad is not None
    expected = parameter.grad.clone()
    place, width = int(expected.abs().argmax()), 1e-2
    sides = []
    for shift in (width, -2 * width):
        with torch.no_grad():
            parameter[place] += shift
        sides.append(loss())
    above, below = sides
    assert (above - below) / (2 * width) == pytest.approx(float(expected[place]), rel=0.05)


class FixedDocuments:
    """An objective of documents with fixed vectors, like stored codes, and a parameter of its own."""

    encodes_documents = False

    def __init__(self) -> None:
        self.table = torch.nn.Parameter(torch.randn(N_DOCUMENTS, 32, generator=torch.Generator().manual_seed(0)))

    def represent_queries(self, hidden: torch.Tensor, tokens: TokenBatch) -> torch.Tensor:
        return Passages(RankingSettings(), (5,)).represent_queries(hidden, tokens)

    def represent_documents(self, hidden: torch.Tensor, tokens: TokenBatch, step: int) -> DocumentRows:
        raise AssertionError("documents are not encoded")

    def scores(self, queries: torch.Tensor, documents: DocumentRows) -> torch.Tensor:
        return queries @ documents.values.T

    def loss(
        self, queries: torch.Tensor, documents: DocumentRows | None, step: StepTargets
    ) -> dict[str, torch.Tensor]:
        assert documents is None
        scores = queries @ self.table[step.documents].T
        return {"ranking": torch.nn.functional.cross_entropy(scores, step.targets)}

    def parameters(self) -> dict[str, tuple[torch.nn.Parameter, float]]:
        return {"table": (self.table, 10.0)}

    def use(self) -> object:
        raise AssertionError("documents are not encoded")


def test_an_objective_with_fixed_documents_trains_queries_and_its_own_parameters(tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path / "checkpoint")
    found = []
    for chunk_size in (100, 2):
        network, objective = load_network(folder), FixedDocuments()
        network.model.train()
        cache = GradientCache(network, objective, chunk_size, seed=1)  # type: ignore[arg-type]
        cache.backward(texts(network)[0], None, step_targets(), 0)
        assert objective.table.grad is not None
        found.append([objective.table.grad, *(value.grad for _, value in network.trained_parameters())])
    for whole, cached in zip(*found, strict=True):
        if whole is not None:
            torch.testing.assert_close(cached, whole, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("objective", ["single_vector", "first_m", "pseudo_queries", "passages"])
def test_every_objective_learns_a_batch(tmp_path: Path, objective: str) -> None:
    network = load_network(tiny_encoder(tmp_path / "checkpoint"), frozen=("embeddings.",))
    network.model.train()
    chosen = make_objective(ObjectiveSettings(name=objective, scale=5.0))
    cache = GradientCache(network, chosen, 100, seed=1)
    optimizer = make_optimizer(network, chosen.parameters(), OptimizerSettings(learning_rate=2e-3))
    losses = []
    for step in range(30):
        optimizer.zero_grad()
        losses.append(sum(cache.backward(*texts(network), step_targets(), step).values()))
        optimizer.step()
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize("chunk_size", [2, 100])
def test_a_frozen_network_is_left_as_it_is(tmp_path: Path, chunk_size: int) -> None:
    network = load_network(tiny_encoder(tmp_path / "checkpoint"), frozen=("embeddings.", "encoder."))
    factor = torch.nn.Parameter(torch.ones(()))

    class Scaled(SingleVector):
        """Trains the scale of its scores alone."""

        def scores(self, queries: torch.Tensor, documents: DocumentRows) -> torch.Tensor:
            return factor * super().scores(queries, documents)

    GradientCache(network, Scaled(RankingSettings()), chunk_size, seed=1).backward(
        *texts(network), step_targets(), 0
    )
    assert factor.grad is not None
    assert all(value.grad is None for value in network.model.parameters())
