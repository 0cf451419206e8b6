from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import write_reranker_checkpoint
from support.training.tiny_run import tiny_encoder

torch = pytest.importorskip("torch", reason="teachers need torch")
pytest.importorskip("transformers", reason="teachers need transformers")

from quarry.engine.representation.pieces import Pieces  # noqa: E402
from quarry.engine.search.reranker import open_reranker  # noqa: E402
from quarry.exporters.export import export_reranker  # noqa: E402
from quarry.training.data.batches import Batch  # noqa: E402
from quarry.training.model.checkpoint_files import EncoderFiles  # noqa: E402
from quarry.training.model.network import load_network  # noqa: E402
from quarry.training.model.tokens import TextBatcher  # noqa: E402
from quarry.training.model.torch_encoder import TorchEncoder  # noqa: E402
from quarry.training.objectives.objective import TeacherScores  # noqa: E402
from quarry.training.objectives.passages import Passages  # noqa: E402
from quarry.training.objectives.ranking import RankingSettings  # noqa: E402
from quarry.training.objectives.teachers import (  # noqa: E402
    CrossEncoderTeacher,
    EncoderTeacher,
    Ensemble,
    standardize,
)

pytestmark = pytest.mark.usefixtures("one_torch_thread")

QUERIES, DOCUMENTS = ("abc", "d ef"), ("abc de. fgh ij", "klm", "d ef. ef")


@pytest.fixture
def batch() -> Batch:
    return Batch("s", QUERIES, DOCUMENTS, np.arange(3), np.array([0, 2]), np.zeros((2, 3), np.bool_))


def test_an_encoder_scores_as_an_index_of_its_vectors_does(batch: Batch, tmp_path: Path) -> None:
    network = load_network(tiny_encoder(tmp_path / "checkpoint"))
    batcher = TextBatcher(network.tokenizer_path, "", 40)
    teacher = EncoderTeacher(network, Passages(RankingSettings(), (4,)), batcher, batcher)
    scores = teacher.scores(batch, 0)
    found = scores.documents
    assert scores.rows is None
    assert not found.requires_grad
    encoder = TorchEncoder(network, EncoderFiles("mean", True, None, "pieces", 40, "", "", ""), "0")
    for row, query in zip(found.numpy(), QUERIES, strict=True):
        query_vector = encoder.encode_query(query)
        values = [Pieces(4).represent(text, encoder.windows(text), True).values for text in DOCUMENTS]
        np.testing.assert_allclose(
            row, [float((each @ query_vector).max()) for each in values], rtol=1e-4, atol=1e-5
        )


def test_an_encoder_scores_the_passages_of_each_step(batch: Batch, tmp_path: Path) -> None:
    network = load_network(tiny_encoder(tmp_path / "checkpoint"))
    batcher = TextBatcher(network.tokenizer_path, "", 40)
    passages = Passages(RankingSettings(), (3, 6), seed=2)
    teacher = EncoderTeacher(network, Passages(RankingSettings(), (4,)), batcher, batcher, passages)
    encoder = TorchEncoder(network, EncoderFiles("mean", True, None, "pieces", 40, "", "", ""), "0")
    queries = np.stack([encoder.encode_query(query) for query in QUERIES])
    lengths = {passages.tokens_per_piece(step) for step in range(6)}
    assert lengths == {3, 6}
    for step in range(6):
        scores = teacher.scores(batch, step)
        assert scores.rows is not None
        pieces = Pieces(passages.tokens_per_piece(step))
        values = [pieces.represent(text, encoder.windows(text), True).values for text in DOCUMENTS]
        assert scores.row_counts == tuple(map(len, values))
        np.testing.assert_allclose(scores.rows.numpy(), queries @ np.concatenate(values).T, rtol=1e-4, atol=1e-5)


def test_a_cross_encoder_scores_every_pair(batch: Batch, tmp_path: Path) -> None:
    write_reranker_checkpoint(tmp_path / "checkpoint")
    export_reranker(tmp_path / "checkpoint", tmp_path / "bundle", "fp32")
    reranker = open_reranker(tmp_path / "bundle")
    found = CrossEncoderTeacher(reranker).scores(batch, 0).documents
    assert found.shape == (2, 3)
    for row, query in zip(found.numpy(), QUERIES, strict=True):
        for score, document in zip(row, DOCUMENTS, strict=True):
            assert score == reranker.scores(query, [document])[0]


class Fixed:
    def __init__(self, values: object) -> None:
        self.values = torch.tensor(values, dtype=torch.float32)

    def scores(self, batch: Batch, step: int) -> TeacherScores:
        return TeacherScores(self.values)


def test_an_ensemble_mixes_standardized_scores(batch: Batch) -> None:
    one, other = Fixed([[1, 2, 3], [0, 0, 9]]), Fixed([[300, 200, 100], [5, 5, 5]])
    found = Ensemble([one, other]).scores(batch, 0).documents
    expected = (standardize(one.values) + standardize(other.values)) / 2
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-6)
