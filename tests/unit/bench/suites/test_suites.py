"""Evaluations of an index by MTEB and BEIR agree with the measures of bench."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mteb", reason="needs mteb")
pytest.importorskip("beir", reason="needs beir")
pytest.importorskip("ir_measures", reason="needs ir-measures")

from beir.retrieval.search.base import BaseSearch
from mteb.models.models_protocols import SearchProtocol
from support.bench.readme_run import write_subjects
from support.indexes.word_encoder import WordEncoder

from bench.__main__ import main
from bench.data.collections import CollectionNotFound, data_folder, read_collection, split_of
from bench.data.quality import measure_hits
from bench.harness.records import read_records
from bench.suites.beir_search import BeirSearch
from bench.suites.command import evaluate_with_beir, evaluate_with_bench, evaluate_with_mteb
from bench.suites.corpus_index import CorpusIndex
from bench.suites.mteb_search import MtebSearch, local_task
from quarry import engine
from quarry.engine import Engine
from quarry.formats.errors import InvalidQuery

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the suites

ENCODER = WordEncoder()


@pytest.fixture(scope="module", params=["cranfield", "squad"])
def collection(request):
    try:
        folder = data_folder(request.param)
    except CollectionNotFound as error:
        pytest.skip(str(error))
    whole = read_collection(folder, split_of(folder))
    judged = whole.subset(None, 40 if request.param == "cranfield" else 150)
    kept = {name for scores in judged.qrels.values() for name in scores} | set(list(whole.documents)[:300])
    documents = {name: text for name, text in whole.documents.items() if name in kept and text.strip()}
    return type(whole)(whole.name, whole.split, documents, judged.queries, judged.qrels)


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_all_three_find_the_same(collection, mode, tmp_path):
    documents = [{"id": name, "text": text} for name, text in collection.documents.items()]
    engine.build(documents, tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        own = measure_hits(collection, index.search(list(collection.queries.values()), 1000, mode=mode))
    wanted = {
        "ndcg_10": pytest.approx(own.ndcg_10, abs=1e-5),
        "recall_100": pytest.approx(own.recall_100, abs=1e-5),
    }
    assert 0.03 < own.ndcg_10 < 1
    assert evaluate_with_bench(collection, mode, ENCODER) == wanted
    assert evaluate_with_mteb(collection, mode, ENCODER) == wanted
    assert evaluate_with_beir(collection, mode, ENCODER) == wanted


def test_the_protocols_are_kept():
    model = MtebSearch("lexical", ENCODER)
    assert isinstance(model, SearchProtocol)
    meta = model.mteb_model_meta
    assert (meta.name, meta.embed_dim, meta.model_type) == ("quarry/lexical", ENCODER.dim, ["sparse"])
    assert ENCODER.identity in meta.revision
    assert issubclass(BeirSearch, BaseSearch)
    for refused in (BeirSearch().encode, BeirSearch().search_from_files):
        with pytest.raises(NotImplementedError, match="retrieve"):
            refused({}, {})


CORPUS = [
    {"id": "moon", "title": "Moon", "text": "raises the tides"},
    {"id": "bread", "title": "", "text": "flour and water"},
    {"id": "blank", "title": "", "text": " "},
]


def test_what_collections_have_besides_texts():
    """Empty documents and queries, instructions, and documents to rerank are supported."""
    model = MtebSearch("lexical", ENCODER)
    with pytest.raises(RuntimeError, match="before index"):
        model.search([], top_k=1)
    model.index(CORPUS)
    found = model.search(
        [
            {"id": "1", "text": "moon"},
            {"id": "2", "text": ""},
            {"id": "3", "text": "moon", "instruction": "flour"},
            {"id": "4", "text": "moon", "instruction": None},
        ],
        top_k=5,
    )
    assert {name: set(ids) for name, ids in found.items()} == {
        "1": {"moon"},
        "2": set(),
        "3": {"moon", "bread"},
        "4": {"moon"},
    }
    again = model.search([{"id": "1", "text": "moon flour"}], top_k=5, top_ranked={"1": ["bread", "blank"]})
    assert set(again["1"]) == {"bread"}
    with pytest.raises(InvalidQuery, match="query '1' is a conversation"):
        model.search([{"id": "1", "text": ["a", "b"]}], top_k=1)
    model.index(CORPUS[:1])  # the next task
    assert set(model.search([{"id": "1", "text": "moon flour"}], top_k=5)["1"]) == {"moon"}
    model.close()


def test_titles_are_searched():
    corpus = {entry["id"]: {"title": entry["title"], "text": entry["text"]} for entry in CORPUS}
    assert set(BeirSearch("lexical", ENCODER).search(corpus, {"q": "moon"}, 3, "cos_sim")["q"]) == {"moon"}


def test_an_index_is_deleted_with_its_folder():
    with CorpusIndex(CORPUS, ENCODER) as index:
        folder = Path(index._folder.name)
        assert folder.is_dir()
        assert len(index.engine) == 2
    assert not folder.exists()


def test_the_command(tmp_path, small_corpus):
    folder = write_subjects(tmp_path / "subjects", small_corpus)
    assert main(["suites", str(folder), "--out", str(tmp_path / "out.jsonl")]) == 0
    (record,) = read_records(tmp_path / "out.jsonl")
    assert record["n_documents"] == len(small_corpus)
    assert record["bench"] == record["mteb"] == record["beir"]
    assert 0.5 < record["bench"]["ndcg_10"] <= 1


def test_a_local_task_has_the_collection(collection):
    task = local_task(collection)
    task.load_data()
    split = task.dataset["default"][collection.split]
    assert dict(zip(split["corpus"]["id"], split["corpus"]["text"], strict=True)) == collection.documents
    assert split["relevant_docs"] == collection.qrels
