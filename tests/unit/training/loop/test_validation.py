from pathlib import Path

import pytest
from support.training.tiny_run import tiny_encoder, write_collection

torch = pytest.importorskip("torch", reason="the training loop needs torch")
pytest.importorskip("transformers", reason="training needs transformers")

from quarry import engine  # noqa: E402
from quarry.engine.representation.pieces import Pieces  # noqa: E402
from quarry.formats.errors import InvalidSetting  # noqa: E402
from quarry.training.data.example_store import ExampleStore  # noqa: E402
from quarry.training.data.refusal import Refusal  # noqa: E402
from quarry.training.data.sources import SourceSettings, open_source_store  # noqa: E402
from quarry.training.loop.validation import (  # noqa: E402
    make_validation_set,
    ndcg_10,
    validate,
)
from quarry.training.model.checkpoint_files import EncoderFiles  # noqa: E402
from quarry.training.model.network import load_network  # noqa: E402
from quarry.training.model.tokens import TextBatcher  # noqa: E402
from quarry.training.model.torch_encoder import TorchEncoder  # noqa: E402
from quarry.training.objectives.passages import Passages  # noqa: E402
from quarry.training.objectives.ranking import RankingSettings  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    settings = SourceSettings(name="s", kind="beir", path=write_collection(tmp_path / "collection"))
    return open_source_store(settings, tmp_path / "store", Refusal.of_nothing())


def test_validation_is_a_search_of_an_index_of_the_same_vectors(store: ExampleStore, tmp_path: Path) -> None:
    network = load_network(tiny_encoder(tmp_path / "checkpoint"), dropout=0.5)
    network.model.train()
    batcher = TextBatcher(network.tokenizer_path, "", 40)
    data = make_validation_set(store, 1000, 1000)
    assert len(data.documents) == 24
    found = validate(data, (network, network), Passages(RankingSettings(), (2, 4, 32)), batcher, batcher)
    assert network.model.training
    network.model.eval()
    encoder = TorchEncoder(network, EncoderFiles("mean", True, None, "pieces", 40, "", "", ""), "0")
    documents = [{"id": name, "text": text} for name, text in data.documents.items()]
    index = tmp_path / "index"
    engine.build(documents, index, encoder=encoder, representation=Pieces(4), centroids="float16", progress=False)
    with engine.Engine.open(index, encoder=encoder) as opened:
        answers = opened.search(list(data.queries.values()), 10, mode="dense")
    run = {name: {hit.id: hit.score for hit in hits} for name, hits in zip(data.queries, answers, strict=True)}
    assert 0.2 < found < 1
    assert found == pytest.approx(ndcg_10(data.qrels, run), abs=0.02)  # float16 swaps a few near ties


def test_validation_takes_the_first_documents_and_queries_on_them(store: ExampleStore) -> None:
    data = make_validation_set(store, 8, 5)
    assert list(data.documents) == [str(number) for number in range(8)]
    assert len(data.queries) == 5
    assert {document for judged in data.qrels.values() for document in judged} <= set(data.documents)
    with pytest.raises(InvalidSetting, match="no query"):
        make_validation_set(store, 0, 5)
