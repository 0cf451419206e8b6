"""The loss of rerankers against a slow computation in numpy."""

from pathlib import Path

import numpy as np
import pytest
from support.training.tiny_run import tiny_encoder

torch = pytest.importorskip("torch", reason="networks need torch")
pytest.importorskip("transformers", reason="training needs transformers")

from quarry.formats.errors import InvalidDocument, InvalidSetting  # noqa: E402
from quarry.training.data.batches import Batch  # noqa: E402
from quarry.training.loop.reranker_learner import FirstHits, RerankerLearner  # noqa: E402
from quarry.training.loop.validation import ValidationSet  # noqa: E402
from quarry.training.model.cross_encoder import CrossEncoder, load_cross_encoder  # noqa: E402
from quarry.training.model.tokens import PairBatcher  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

QUERIES = ("abc", "def gh", "mno")
DOCUMENTS = ("abc ghi", "def", "mno pab abc", "ghi jkl", "def abc", "pab")


def batch() -> Batch:
    relevant = np.zeros((3, 6), np.bool_)
    relevant[[0, 1, 2], [0, 1, 2]] = True
    relevant[0, 3] = True
    negatives = (np.array([4, 2]), np.array([5]), np.array([], np.int64))
    return Batch("s", QUERIES, DOCUMENTS, np.arange(6), np.arange(3), relevant, (), negatives)


@pytest.fixture
def network(tmp_path: Path) -> CrossEncoder:
    return load_cross_encoder(tiny_encoder(tmp_path / "checkpoint"), seed=5)


def learner(network: CrossEncoder, chunk_size: int, held_out: FirstHits | None = None) -> RerankerLearner:
    return RerankerLearner(
        network, PairBatcher(network.tokenizer_path, 8, 16), 32, "# Tiny\n", 2, chunk_size, 0, held_out
    )


def one_score(network: CrossEncoder, query: str, text: str) -> float:
    with torch.no_grad():
        return float(network.scores(PairBatcher(network.tokenizer_path, 8, 16).batch([(query, text)]))[0])


def test_the_loss_is_that_of_each_query_among_its_candidates(network: CrossEncoder) -> None:
    network.model.eval()
    # The first two have their own negatives, filled up by others of the batch that are not relevant.
    candidates = [[0, 4, 2], [1, 5, 0], [2, 0, 1]]
    expected = 0.0
    for query, columns in zip(QUERIES, candidates, strict=True):
        scores = np.array([one_score(network, query, DOCUMENTS[column]) for column in columns], np.float64)
        expected += (np.log(np.exp(scores).sum()) - scores[0]) / 3
    for chunk_size in (1, 6, 100):
        assert learner(network, chunk_size).backward(batch(), 0)["contrastive"] == pytest.approx(
            expected, abs=1e-5
        )


def test_gradients_do_not_depend_on_the_chunks(network: CrossEncoder) -> None:
    network.model.eval()
    found = []
    for chunk_size in (1, 6, 100):
        network.model.zero_grad(set_to_none=True)
        learner(network, chunk_size).backward(batch(), 0)
        gradients = [value.grad for _, value in network.trained_parameters() if value.grad is not None]
        found.append(torch.cat([each.flatten() for each in gradients]))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-3, atol=1e-6)


def test_a_reranker_learns_a_batch(network: CrossEncoder) -> None:
    network.model.train()
    trained = [value for _, value in network.trained_parameters()]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    losses = []
    for step in range(40):
        optimizer.zero_grad(set_to_none=True)
        losses.append(learner(network, 100).backward(batch(), step)["contrastive"])
        optimizer.step()
    assert losses[-1] < 0.3 * losses[0]


def test_scores_do_not_depend_on_padding(network: CrossEncoder) -> None:
    network.model.eval()
    pairs = [(QUERIES[0], text) for text in DOCUMENTS]
    with torch.no_grad():
        together = network.scores(PairBatcher(network.tokenizer_path, 8, 16).batch(pairs)).tolist()
    assert together == pytest.approx([one_score(network, *pair) for pair in pairs], abs=1e-5)


def test_validation_ranks_the_first_hits_by_score(network: CrossEncoder) -> None:
    network.model.eval()
    hits = ["0", "3", "4"]
    best = max(hits, key=lambda name: one_score(network, QUERIES[0], DOCUMENTS[int(name)]))
    texts = {str(number): text for number, text in enumerate(DOCUMENTS)}
    for name in hits:
        data = ValidationSet(texts, {"q": QUERIES[0]}, {"q": {name: 1}})
        found = learner(network, 4, FirstHits(data, {"q": hits})).validate()
        assert found is not None
        assert (found == 1.0) == (name == best)


def test_pairs_are_cut_and_framed_as_the_tokenizer_frames_them(network: CrossEncoder) -> None:
    batcher = PairBatcher(network.tokenizer_path, 2, 3)
    found = batcher.batch([("abc def ghi", "abc def ghi jkl"), ("abc", "def")])
    assert found.ids.shape == found.types.shape == found.mask.shape
    assert found.mask.sum(1).tolist()[0] == found.ids.shape[1]
    assert found.types[0].tolist() == sorted(found.types[0].tolist())
    with pytest.raises(InvalidDocument, match="without tokens"):
        batcher.batch([("abc", " ")])
    with pytest.raises(InvalidSetting, match="no pairs"):
        batcher.batch([])
