"""The vector store and the retriever of LangChain: LangChain's own suites, and what these leave out."""

from __future__ import annotations

import asyncio
import warnings

import pytest

pytest.importorskip("langchain_tests", reason="needs langchain-core and langchain-tests")
pytest.importorskip("pytest_asyncio", reason="the suite has asynchronous tests")

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests

from quarry.engine import EncoderMismatch, Engine, IndexLocked, InvalidDocument
from quarry.integrations.langchain import QuarryRetriever, QuarryVectorStore

TEXTS = [
    "Bread keeps fresh in a linen bag.",
    "A ship crosses the ocean in two weeks.",
    "Rain falls mostly in autumn.",
    "A loaf of bread keeps fresh in a paper bag.",
]


@pytest.fixture
def store(tmp_path):
    store = QuarryVectorStore(tmp_path / "index")
    store.add_texts(TEXTS, [{"n": number} for number in range(4)], ids=["linen", "ship", "rain", "paper"])
    yield store
    store.close()


class TestWithTheBundledEncoder(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path):
        store = QuarryVectorStore(tmp_path / "index")
        yield store
        store.close()


class TestWithEmbeddings(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path):
        store = QuarryVectorStore(tmp_path / "index", self.get_embeddings())
        yield store
        store.close()


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _store(self, store):
        type(self).shared = store

    @property
    def retriever_constructor(self):
        return QuarryRetriever

    @property
    def retriever_constructor_params(self):
        return {"store": self.shared}

    @property
    def retriever_query_example(self):
        return "how does bread keep fresh?"


class TestSearch:
    def test_filters_and_modes(self, store):
        found = store.similarity_search("bread", k=3, filter={"n": {"$gte": 1}})
        assert found[0] == Document(id="paper", page_content=TEXTS[3], metadata={"n": 3})
        assert {each.id for each in found} == {"ship", "rain", "paper"}
        assert [each.id for each in store.similarity_search("ocean", k=4, mode="lexical")] == ["ship"]

    def test_relevance_is_between_zero_and_one(self, store):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = store.similarity_search_with_relevance_scores("how does bread keep fresh?", k=4)
            few = store.similarity_search_with_relevance_scores("bread that keeps fresh", k=4, score_threshold=0.5)
        assert {each.id for each, _ in found[:2]} == {"linen", "paper"}
        assert all(0 <= relevance <= 1 for _, relevance in found)
        assert found[0][1] > found[-1][1]
        assert "ship" not in {each.id for each, _ in few}

    def test_relevance_with_other_embeddings_is_a_cosine(self, tmp_path):
        store = QuarryVectorStore(tmp_path / "index", DeterministicFakeEmbedding(size=16))
        store.add_texts(TEXTS)
        found = store.similarity_search_with_relevance_scores(TEXTS[1], k=4)
        assert found[0][0].page_content == TEXTS[1]
        assert found[0][1] == pytest.approx(1, abs=0.01)
        assert all(0 <= relevance <= 1 for _, relevance in found)
        store.close()

    def test_by_vector(self, tmp_path):
        embedding = DeterministicFakeEmbedding(size=16)
        store = QuarryVectorStore(tmp_path / "index", embedding)
        store.add_texts(TEXTS)
        (found,) = store.similarity_search_by_vector(embedding.embed_query(TEXTS[2]), k=1)
        assert found.page_content == TEXTS[2]
        assert store.embeddings is embedding
        store.close()

    def test_maximal_marginal_relevance(self, store):
        """The two documents about bread are alike: diversity puts another one second."""
        plain = store.max_marginal_relevance_search("bread keeps fresh", k=2, fetch_k=4, lambda_mult=1)
        diverse = store.max_marginal_relevance_search("bread keeps fresh", k=2, fetch_k=4, lambda_mult=0.1)
        assert {each.id for each in plain} == {"linen", "paper"}
        assert len({"linen", "paper"} & {each.id for each in diverse}) == 1
        assert len(store.max_marginal_relevance_search("bread", k=9, fetch_k=9)) == 4

    def test_as_retriever(self, store):
        for kind, extra in (
            ("similarity", {}),
            ("mmr", {"fetch_k": 4}),
            ("similarity_score_threshold", {"score_threshold": 0.01}),
        ):
            retriever = store.as_retriever(search_type=kind, search_kwargs={"k": 2, "filter": {"n": 1}, **extra})
            assert {each.id for each in retriever.invoke("a ship on the ocean")} == {"ship"}

    def test_asynchronous_calls(self, store):
        async def use():
            await store.aadd_texts(["Snow falls in winter."], ids=["snow"])
            return await store.asimilarity_search("winter", k=1), await store.aget_by_ids(["snow"])

        ((found,), (document,)) = asyncio.run(use())
        assert found == document
        assert document.id == "snow"


class TestChanges:
    def test_one_commit_for_each_call(self, store):
        before = Engine.open(store._index.path).stats()["generation"]
        store.add_documents([Document(page_content=text) for text in TEXTS])
        store.delete(["linen", "nothing"])
        with Engine.open(store._index.path) as index:
            assert index.stats()["generation"] == before + 2
            assert len(index) == 7

    def test_an_invalid_document_adds_nothing(self, store):
        with pytest.raises(InvalidDocument, match="metadata"):
            store.add_texts(["good", "bad"], [{}, {"set": {1, 2}}])
        assert not store.similarity_search("good", mode="lexical")
        with pytest.raises(ValueError, match="1 metadatas for 2 texts"):
            store.add_texts(["a", "b"], [{}])

    def test_other_processes_write_in_between(self, store):
        with Engine.open(store._index.path, writable=True) as other:
            other.add([{"id": "snow", "text": "Snow falls in winter."}])
            other.commit()
        assert store.similarity_search("winter", k=1)[0].id == "snow"
        store.add_texts(["Hail falls in summer."], ids=["hail"])
        assert {each.id for each in store.get_by_ids(["hail", "snow", "hail"])} == {"hail", "snow"}

    def test_a_writer_that_keeps_the_lock_is_named(self, tmp_path):
        store = QuarryVectorStore(tmp_path / "index", wait_s=0.1)
        with Engine.open(tmp_path / "index", writable=True), pytest.raises(IndexLocked):
            store.add_texts(["a"])
        store.add_texts(["a"])
        store.close()

    def test_other_embeddings_are_refused(self, store):
        with pytest.raises(EncoderMismatch):
            QuarryVectorStore(store._index.path, DeterministicFakeEmbedding(size=16))

    def test_from_texts(self, tmp_path):
        store = QuarryVectorStore.from_texts(TEXTS, ids=list("abcd"), path=tmp_path / "index")
        assert store.similarity_search("ocean", k=1)[0].id == "b"
        store.close()
