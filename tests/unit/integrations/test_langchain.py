"""The vector store and the retriever of LangChain, tested with LangChain's own suites and further cases."""

from __future__ import annotations

import asyncio
import copy
import pickle
import warnings
from contextlib import closing

import pytest

pytest.importorskip("langchain_tests", reason="needs langchain-core and langchain-tests")
pytest.importorskip("pytest_asyncio", reason="asynchronous tests of the suite need pytest-asyncio")

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import (
    EncoderMismatch,
    Engine,
    IndexClosed,
    IndexLocked,
    InvalidDocument,
    InvalidFilter,
    InvalidQuery,
    InvalidSetting,
    ShardNotFound,
)
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


LONG = "\n\n".join(
    (
        "Bread keeps fresh in a linen bag. " * 30,
        "The captain of a ship navigates by the stars. " * 30,
        "Rain falls mostly in autumn. " * 40,
    )
)


@pytest.fixture(scope="class")
def book(tmp_path_factory):
    """Create a store with a document of several passages, for reading only."""
    opened = QuarryVectorStore(tmp_path_factory.getbasetemp() / "book")
    opened.add_texts([LONG, TEXTS[1]], [{"score": "of its own", "n": 1}, {}], ids=["book", "ship"])
    yield opened
    opened.close()


class TestPassages:
    def test_of_a_long_document(self, book, tmp_path_factory):
        with Engine.open(tmp_path_factory.getbasetemp() / "book") as index:
            hit = index.search("how do captains navigate?", 1, unit="passage")[0]
        (found,) = book.similarity_search("how do captains navigate?", k=1)
        assert found.id == f"book#{hit.passage}"
        assert found.page_content == hit.text in LONG
        assert "captain" in found.page_content
        start = found.metadata["start_index"]
        assert LONG[start:].startswith(found.page_content)
        described = {"document_id": "book", "passage": hit.passage, "start_index": start, "n": 1}
        assert found.metadata == {**described, "score": "of its own"}
        ((scored, _),) = book.similarity_search_with_score("how do captains navigate?", k=1)
        assert scored.metadata == {**found.metadata, "relevance": hit.relevance}

    def test_whole_documents_on_request(self, book):
        found = QuarryRetriever(store=book, k=2, search_kwargs={"unit": "document"}).invoke("captain of a ship")
        assert {each.id: each.page_content for each in found} == {"book": LONG, "ship": TEXTS[1]}
        assert "passage" not in found[0].metadata
        for unit in ("pasage", None):
            with pytest.raises(InvalidSetting, match="document or passage"):
                book.similarity_search("ship", unit=unit)

    def test_a_retriever_describes_short_documents_too(self, book):
        (found,) = QuarryRetriever(store=book, k=1).invoke("crossing the ocean in weeks")
        assert (found.id, found.metadata["document_id"], found.metadata["passage"]) == ("ship", "ship", 0)
        ((scored, score),) = book.similarity_search_with_score("crossing the ocean in weeks", k=1)
        assert found.metadata["score"] == score
        assert scored == found
        assert found.metadata["relevance"] > 0

    def test_diverse_passages_of_one_document(self, book):
        """Passages are compared by their own vectors: those about bread are close to each other."""
        options = {"k": 2, "fetch_k": 10, "filter": {"id": "book"}}
        plain = book.max_marginal_relevance_search("bread keeps fresh", lambda_mult=1, **options)
        diverse = book.max_marginal_relevance_search("bread keeps fresh", lambda_mult=0.1, **options)
        assert plain[0].id == diverse[0].id
        assert "bread" in plain[0].page_content.lower()
        assert "bread" not in diverse[1].page_content.lower()

    def test_files_have_places_and_headings(self, tmp_path):
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "ship.md").write_text(
            f"# Ships\n\n{LONG[1100:2000]}\n\n## Food\n\n{LONG[:1500]}", "utf-8"
        )
        engine.build(tmp_path / "files", tmp_path / "index")
        with closing(QuarryVectorStore(tmp_path / "index")) as store:
            (found,) = store.similarity_search("what keeps fresh in a bag?", k=1)
        assert found.metadata["headings"] == ["Ships", "Food"]
        assert found.metadata["place"].startswith("ship.md, lines ")


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

    def test_a_sharded_index_and_a_shard_that_is_missing(self, tmp_path):
        path = tmp_path / "index"
        engine.build(
            [{"id": f"{n}", "text": f"bread {n}"} for n in range(20)], path, encoder=WordEncoder(), shards=2
        )
        store = QuarryVectorStore(path, WordEncoder())
        store.add_texts(["more bread"], ids=["more"])
        assert len(store.similarity_search("bread", k=30)) == 21
        shard = min(path.glob("shard-*"))
        shard.rename(tmp_path / "away")
        with pytest.raises(ShardNotFound, match="a shard of the index is missing"):
            store.similarity_search("bread")
        assert 0 < len(store.similarity_search("bread", k=30, partial=True)) < 21
        (tmp_path / "away").rename(shard)
        assert len(store.similarity_search("bread", k=30)) == 21
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
        """The two documents about bread are similar, so that diversity ranks another one second."""
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
        with pytest.raises(InvalidSetting, match=r"search_kwargs.*found k$"):
            store.as_retriever(k=2)
        with pytest.raises(InvalidSetting, match=r"nearest: search_kwargs\); found search_kwarg$"):
            store.as_retriever(search_kwarg={})

    def test_asynchronous_calls(self, store):
        async def use():
            await store.aadd_texts(["Snow falls in winter."], ids=["snow"])
            return await store.asimilarity_search("winter", k=1), await store.aget_by_ids(["snow"])

        ((found,), (document,)) = asyncio.run(use())
        assert found == document
        assert document.id == "snow"

    def test_every_asynchronous_search_finds_what_the_other_does(self, store):
        async def search(name):
            return await getattr(store, f"a{name}")("a ship on the ocean", k=2, filter={"n": {"$gte": 1}})

        for name in (
            "similarity_search",
            "similarity_search_with_score",
            "similarity_search_with_relevance_scores",
            "max_marginal_relevance_search",
        ):
            wanted = getattr(store, name)("a ship on the ocean", k=2, filter={"n": {"$gte": 1}})
            assert asyncio.run(search(name)) == wanted
            assert len(wanted) == 2

    @pytest.mark.parametrize("kind", ["similarity", "mmr", "similarity_score_threshold"])
    def test_retrievers_are_called_asynchronously(self, store, kind):
        options = {"k": 2, "score_threshold": 0.01} if kind == "similarity_score_threshold" else {"k": 2}
        retriever = store.as_retriever(search_type=kind, search_kwargs=options)
        found = asyncio.run(retriever.ainvoke("a ship on the ocean"))
        assert found == retriever.invoke("a ship on the ocean")
        assert found[0].id == "ship"


class TestChanges:
    def test_one_commit_for_each_call(self, store, tmp_path):
        before = Engine.open(tmp_path / "index").stats()["generation"]
        store.add_documents([Document(page_content=text) for text in TEXTS])
        store.delete(["linen", "nothing"])
        with Engine.open(tmp_path / "index") as index:
            assert index.stats()["generation"] == before + 2
            assert len(index) == 7

    def test_an_invalid_document_adds_nothing(self, store):
        with pytest.raises(InvalidDocument, match="metadata"):
            store.add_texts(["good", "bad"], [{}, {"set": {1, 2}}])
        assert not store.similarity_search("good", mode="lexical")
        with pytest.raises(ValueError, match="1 metadatas for 2 texts"):
            store.add_texts(["a", "b"], [{}])

    def test_other_processes_write_in_between(self, store, tmp_path):
        with Engine.open(tmp_path / "index", writable=True) as other:
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

    def test_other_embeddings_are_refused(self, store, tmp_path):
        with pytest.raises(EncoderMismatch):
            QuarryVectorStore(tmp_path / "index", DeterministicFakeEmbedding(size=16))

    def test_from_texts(self, tmp_path):
        store = QuarryVectorStore.from_texts(TEXTS, ids=list("abcd"), path=tmp_path / "index")
        assert store.similarity_search("ocean", k=1)[0].id == "b"
        store.close()

    def test_stores_are_made_without_embeddings(self, tmp_path):
        ids = list("abcd")
        documents = [Document(id=name, page_content=text) for name, text in zip(ids, TEXTS, strict=True)]

        async def make():
            return [
                await QuarryVectorStore.afrom_texts(TEXTS, ids=ids, path=tmp_path / "1"),
                await QuarryVectorStore.afrom_documents(documents, path=tmp_path / "2"),
            ]

        made = [QuarryVectorStore.from_documents(documents, path=tmp_path / "3"), *asyncio.run(make())]
        for store in made:
            assert store.get_by_ids(ids) == documents
            store.close()


@pytest.fixture(scope="class")
def small(tmp_path_factory):
    """Create a store, for reading only."""
    opened = QuarryVectorStore(tmp_path_factory.mktemp("small") / "index", WordEncoder())
    opened.add_texts(TEXTS, [{"n": number, "a": {"b": number}} for number in range(4)], ids=list("abcd"))
    yield opened
    opened.close()


NO_LISTS = [None, 5, "one text", b"bytes", {"a": "b"}, True, ...]
NO_QUERIES = [None, 5, ["several", "texts"], [], b"bytes", {}, True]
NO_NUMBERS = [None, "3", [3], {}, float("nan"), -1, ...]
NO_VECTORS = [None, 5, "text", [], {}, [None], ["x"], [1.0] * 3, [float("nan")] * 32, ...]


class TestWrongArguments:
    """Wrong arguments raise errors of Quarry that name the argument, and change nothing."""

    @pytest.mark.parametrize("wrong", NO_LISTS, ids=repr)
    def test_lists(self, small, wrong):
        calls = [lambda: small.add_texts(wrong), lambda: small.add_documents(wrong)]
        if wrong is not None:
            calls += [lambda: small.add_texts(["x"], ids=wrong), lambda: small.add_texts(["x"], wrong)]
        for call in calls:
            with pytest.raises(InvalidSetting, match="is not a list"):
                call()
        if not isinstance(wrong, str):
            with pytest.raises(InvalidSetting):
                small.get_by_ids(wrong)
        assert len(small.get_by_ids(list("abcd"))) == 4

    def test_items(self, small):
        for wrong in (None, 5, ["x"], b"x"):
            with pytest.raises(InvalidDocument, match="document 2"):
                small.add_texts(["good", wrong])
            with pytest.raises(InvalidSetting, match="not a document"):
                small.add_documents([Document(page_content="good"), wrong])
        with pytest.raises(InvalidDocument, match="metadata"):
            small.add_texts(["x"], [5])
        with pytest.raises(InvalidDocument, match="id"):
            small.add_texts(["x"], ids=[5])
        assert not small.similarity_search("good", mode="lexical")

    @pytest.mark.parametrize("wrong", NO_QUERIES, ids=repr)
    def test_queries(self, small, wrong):
        for search in (
            small.similarity_search,
            small.similarity_search_with_score,
            small.similarity_search_with_relevance_scores,
            small.max_marginal_relevance_search,
        ):
            with pytest.raises(InvalidQuery, match="not a text"):
                search(wrong)

    @pytest.mark.parametrize("wrong", NO_NUMBERS, ids=repr)
    def test_numbers(self, small, wrong):
        vector = [0.5] * 32
        for call in (
            lambda: small.similarity_search("bread", k=wrong),
            lambda: small.similarity_search_by_vector(vector, k=wrong),
            lambda: small.max_marginal_relevance_search("bread", k=wrong),
            lambda: small.max_marginal_relevance_search("bread", fetch_k=wrong),
            lambda: small.max_marginal_relevance_search("bread", lambda_mult=wrong),
            lambda: small.max_marginal_relevance_search_by_vector(vector, k=wrong),
            lambda: small.max_marginal_relevance_search_by_vector(vector, fetch_k=wrong),
        ):
            with pytest.raises(InvalidSetting, match="is out of range"):
                call()

    @pytest.mark.parametrize("wrong", NO_VECTORS, ids=repr)
    def test_vectors(self, small, wrong):
        for search in (small.similarity_search_by_vector, small.max_marginal_relevance_search_by_vector):
            with pytest.raises(InvalidQuery):
                search(wrong)

    def test_options(self, small):
        for options in ({"queries": "x"}, {"k": 3}, {"query": "x"}):
            retriever = QuarryRetriever(store=small, search_kwargs=options)
            if "k" in options:
                assert len(retriever.invoke("bread")) == 3
                assert len(retriever.invoke("bread", k=2)) == 2
                with pytest.raises(InvalidSetting, match=r"given twice.*k as an argument of its own.*k=3"):
                    QuarryRetriever(store=small, k=2, search_kwargs=options)
            else:
                with pytest.raises(InvalidSetting, match="given twice"):
                    retriever.invoke("bread")
        with pytest.raises(InvalidSetting, match="given twice"):
            small.similarity_search("bread", queries="x")
        with pytest.raises(InvalidSetting, match="given twice"):
            small.similarity_search_by_vector([0.5] * 32, queries="x")
        for call in (
            lambda: small.add_texts(["x"], metadata=[{}]),
            lambda: small.delete(["a"], metadatas=None),
            lambda: small.similarity_search("bread", metadatas=None),
        ):
            with pytest.raises(InvalidSetting, match=r"unknown setting.*found metadata"):
                call()
        with pytest.raises(InvalidSetting, match=r"nearest: min_relevance\); found min_relevence"):
            small.similarity_search("bread", min_relevence=0.2)
        for options in ({"what": 1}, {"mode": "best"}, {"dense_weight": 2}, {"rerank": 9}):
            with pytest.raises(InvalidSetting):
                small.as_retriever(search_kwargs=options).invoke("bread")
        with pytest.raises(InvalidSetting, match="dense mode"):
            small.similarity_search_by_vector([0.5] * 32, mode="hybrid")
        for only in (5, "n", [], {"n": {"$what": 1}}, {"n": "text"}, {5: 1}):
            with pytest.raises(InvalidFilter):
                small.similarity_search("bread", filter=only)
        with pytest.warns(UserWarning, match="nearest fields are 'n'"):
            assert small.similarity_search("bread", filter={"nn": 1}) == []

    def test_paths_times_and_closed_stores(self, tmp_path):
        for wrong in (None, 5, "", [], True):
            with pytest.raises(InvalidSetting, match="path"):
                QuarryVectorStore(wrong, WordEncoder())
        for wrong in ("1", -1, float("nan"), []):
            with pytest.raises(InvalidSetting, match="wait_s"):
                QuarryVectorStore(tmp_path / "index", WordEncoder(), wait_s=wrong)
        store = QuarryVectorStore(tmp_path / "index", WordEncoder())
        store.close()
        for call in (lambda: store.add_texts(["x"]), lambda: store.delete(["x"]), lambda: store.get_by_ids(["x"])):
            with pytest.raises(IndexClosed):
                call()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda store: pickle.loads(pickle.dumps(store))])
def test_a_copy_opens_the_index_itself(tmp_path, monkeypatch, copied):
    monkeypatch.chdir(tmp_path)
    with closing(QuarryVectorStore("index")) as store:
        store.add_texts(["bread keeps fresh"], ids=["bread"])
        with closing(copied(store)) as other:
            store.add_texts(["a ship in autumn"], ids=["ship"])
            assert {each.id for each in other.similarity_search("bread in autumn")} == {"bread", "ship"}


def test_a_pickled_store_finds_its_index_from_another_folder(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with closing(QuarryVectorStore("index")) as store:
        pickled = pickle.dumps(store)
    monkeypatch.chdir(tmp_path / "elsewhere")
    with closing(pickle.loads(pickled)) as other:
        assert other.similarity_search("bread") == []


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_a_store_with_embeddings_of_its_own_says_what_to_do(tmp_path, copied):
    message = r"index: an index that was opened with an encoder .* open it again"
    with (
        closing(QuarryVectorStore(tmp_path / "index", DeterministicFakeEmbedding(size=4))) as store,
        pytest.raises(TypeError, match=message),
    ):
        copied(store)


def test_a_retriever_refuses_keywords_that_it_does_not_have(store):
    with pytest.raises(InvalidSetting, match=r"search_kwargs \(the nearest: search_kwargs\); found search_kwarg$"):
        QuarryRetriever(store=store, search_kwarg={})
