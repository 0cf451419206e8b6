"""The document store and the retriever of Haystack, tested with Haystack's own suites and further cases."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import numpy as np
import pytest

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")
pytest.importorskip("haystack", reason="needs haystack-ai")
pytest.importorskip("pytest_asyncio", reason="asynchronous tests of the suite need pytest-asyncio")

from haystack import Document, Pipeline, component
from haystack.document_stores.errors import DocumentStoreError, DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.testing import document_store as suites
from haystack.testing import document_store_async as async_suites

from quarry.engine import Engine, IndexClosed, InvalidDocument, InvalidQuery, InvalidSetting
from quarry.integrations.haystack import (
    QuarryBM25Retriever,
    QuarryDocumentStore,
    QuarryEmbeddingRetriever,
    QuarryHybridRetriever,
    QuarryRetriever,
)

pytestmark = pytest.mark.filterwarnings("ignore::quarry.engine.UnknownFieldWarning")


def assert_documents_are_equal(received, expected):
    """Compare documents in any order, without embeddings, which are not stored."""

    def content(documents):
        return sorted((replace(each, embedding=None, score=None) for each in documents), key=lambda each: each.id)

    assert content(received) == content(expected)


class Equality:
    @staticmethod
    def assert_documents_are_equal(received, expected):
        assert_documents_are_equal(received, expected)


@pytest.fixture
def document_store(tmp_path):
    store = QuarryDocumentStore(tmp_path / "index")
    yield store
    store.close()


class TestStore(
    Equality,
    suites.DocumentStoreBaseExtendedTests,
    suites.CountDocumentsByFilterTest,
    suites.CountUniqueMetadataByFilterTest,
    suites.GetMetadataFieldsInfoTest,
    suites.GetMetadataFieldMinMaxTest,
    suites.GetMetadataFieldUniqueValuesTest,
):
    # `delete_all_documents` has no argument that recreates the index, so these two tests would be skipped
    test_delete_all_documents_with_recreate_index = None
    test_delete_all_documents_without_recreate_index = None

    @pytest.fixture
    def document_store(self, tmp_path):
        store = QuarryDocumentStore(tmp_path / "index")
        yield store
        store.close()

    def test_write_documents(self, document_store):
        """Without a policy, a document with a known id is refused, and no document of the call is written."""
        assert document_store.write_documents([Document(content="one")]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([Document(content="two"), Document(content="one")])
        self.assert_documents_are_equal(document_store.filter_documents(), [Document(content="one")])


class TestAsynchronously(
    Equality,
    async_suites.CountDocumentsAsyncTest,
    async_suites.CountDocumentsByFilterAsyncTest,
    async_suites.CountUniqueMetadataByFilterAsyncTest,
    async_suites.DeleteAllAsyncTest,
    async_suites.DeleteByFilterAsyncTest,
    async_suites.DeleteDocumentsAsyncTest,
    async_suites.FilterDocumentsAsyncTest,
    async_suites.GetMetadataFieldMinMaxAsyncTest,
    async_suites.GetMetadataFieldUniqueValuesAsyncTest,
    async_suites.GetMetadataFieldsInfoAsyncTest,
    async_suites.UpdateByFilterAsyncTest,
    async_suites.WriteDocumentsAsyncTest,
):
    test_delete_all_documents_with_recreate_index_async = None
    test_delete_all_documents_without_recreate_index_async = None

    async def test_write_documents_async(self, document_store):
        assert await document_store.write_documents_async([Document(content="one")]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([Document(content="one")])


TEXTS = {
    "linen": "Bread keeps fresh in a linen bag.",
    "ship": "A ship crosses the ocean in two weeks.",
    "rain": "Rain falls mostly in autumn.",
}


@pytest.fixture
def filled(document_store):
    documents = [Document(id=name, content=text, meta={"n": len(name)}) for name, text in TEXTS.items()]
    document_store.write_documents(documents)
    return document_store


@pytest.mark.parametrize("nothing", [None, {}, []])
def test_a_change_by_filter_needs_one(filled, nothing):
    with pytest.raises(FilterError, match="filters are required"):
        filled.delete_by_filter(nothing)
    with pytest.raises(FilterError, match="filters are required"):
        filled.update_by_filter(nothing, {"n": 0})
    assert sorted(each.meta["n"] for each in filled.filter_documents()) == [4, 4, 5]


def test_a_policy_may_be_a_text(filled):
    new = Document(id="ship", content="Another ship.")
    assert filled.write_documents([new], "skip") == 0
    with pytest.raises(DuplicateDocumentError):
        filled.write_documents([new], "fail")
    assert filled.write_documents([new], "overwrite") == 1
    assert "Another ship." in {each.content for each in filled.filter_documents()}
    for unknown in ("replace", None):
        with pytest.raises(ValueError, match="DuplicatePolicy"):
            filled.write_documents([new], unknown)


class TestRetriever:
    @pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
    def test_modes(self, filled, mode):
        (best, *_) = QuarryRetriever(filled, mode=mode).run("a ship on the ocean")["documents"]
        assert (best.id, best.content) == ("ship", TEXTS["ship"])
        assert best.score > 0

    def test_filters(self, filled):
        only = {"field": "meta.n", "operator": ">", "value": 4}
        retriever = QuarryRetriever(filled, filters=only)
        assert [each.id for each in retriever.run("ocean")["documents"]] == ["linen"]
        other = {"field": "id", "operator": "in", "value": ["rain", "ship"]}
        assert {each.id for each in retriever.run("ocean", filters=other)["documents"]} == {"rain", "ship"}
        assert len(retriever.run("ocean", filters=other, top_k=1)["documents"]) == 1
        with pytest.raises(FilterError):
            retriever.run("ocean", filters={"field": "meta.n", "operator": "like", "value": 1})

    def test_a_pipeline_is_stored_and_loaded(self, filled):
        pipeline = Pipeline()
        pipeline.add_component("retriever", QuarryRetriever(filled, top_k=1, options={"min_relevance": 0.01}))
        again = Pipeline.loads(pipeline.dumps(), allowed_modules=["quarry.integrations.haystack"])
        (found,) = again.run({"retriever": {"query": "how does bread keep fresh?"}})["retriever"]["documents"]
        assert found.id == "linen"
        again.get_component("retriever").document_store.close()

    @pytest.mark.parametrize(
        "kind", [QuarryBM25Retriever, QuarryEmbeddingRetriever, QuarryHybridRetriever, QuarryRetriever]
    )
    def test_a_retriever_is_described_and_made_again(self, filled, kind):
        """Outside a pipeline there is nothing that allows the module of the store."""
        described = kind(filled, top_k=1, filters={"field": "id", "operator": "==", "value": "ship"}).to_dict()
        again = kind.from_dict(described)
        assert again.to_dict() == described
        assert again.document_store.count_documents() == filled.count_documents()
        again.document_store.close()

    @pytest.mark.parametrize("wrong", [0, -1, 2.0, "3", True, []], ids=repr)
    def test_a_wrong_number_of_documents_is_an_error_at_once(self, filled, wrong):
        with pytest.raises(InvalidSetting, match="top_k is out of range"):
            QuarryHybridRetriever(filled, top_k=wrong)
        with pytest.raises(InvalidSetting, match="top_k is out of range"):
            QuarryHybridRetriever(filled).run("ocean", top_k=wrong)

    @pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
    def test_passages_of_a_long_document(self, filled, mode):
        long = "\n\n".join(f"{text} " * 50 for text in TEXTS.values())
        filled.write_documents([Document(id="book", content=long, meta={"passage": "of its own"})])
        retriever = QuarryRetriever(filled, mode=mode, filters=field("id", "==", "book"))
        first, *others = retriever.run("a ship on the ocean")["documents"]
        assert "ship" in first.content
        assert first.id.startswith("book#")
        assert len({first.id, *(each.id for each in others)}) == 1 + len(others)
        assert (first.meta["document_id"], first.meta["passage"]) == ("book", "of its own")
        assert long[first.meta["start_index"] :].startswith(first.content)
        assert first.meta["score"] == first.score
        assert first.meta["relevance"] > 0
        whole = QuarryRetriever(filled, mode=mode, options={"unit": "document"}).run("ship", top_k=9)["documents"]
        assert {each.content for each in whole if each.id == "book"} == {long}
        with pytest.raises(InvalidSetting, match=r"nearest: unit\); found unti"):
            QuarryRetriever(filled, options={"unti": "document"}).run("ship")

    def test_texts_are_encoded_without_embeddings(self, filled):
        (best, *_) = QuarryHybridRetriever(filled).run("a ship on the ocean")["documents"]
        assert (best.id, best.embedding) == ("ship", None)
        (only,) = QuarryBM25Retriever(filled).run("ocean")["documents"]
        assert only.id == "ship"


VECTORS = dict(zip(TEXTS, np.random.default_rng(5).standard_normal((3, 6)).tolist(), strict=True))


@component
class TableEmbedder:
    """Returns the embedding of a document's id."""

    @component.output_types(embedding=list[float])
    def run(self, text: str):
        return {"embedding": VECTORS[text]}


@pytest.fixture
def embedded(tmp_path):
    store = QuarryDocumentStore(tmp_path / "embedded", embedding_dim=6, return_embedding=True)
    documents = [
        Document(id=name, content=TEXTS[name], meta={"n": len(name)}, embedding=VECTORS[name]) for name in TEXTS
    ]
    assert store.write_documents(documents) == 3
    yield store
    store.close()


class TestEmbeddings:
    """Documents with given embeddings."""

    def test_scores_are_cosines(self, embedded):
        query = np.random.default_rng(6).standard_normal(6)
        found = QuarryEmbeddingRetriever(embedded).run(query.tolist())["documents"]
        for document in found:
            vector = np.array(VECTORS[document.id])
            cosine = vector @ query / np.linalg.norm(vector) / np.linalg.norm(query)
            assert document.score == pytest.approx(cosine, abs=0.01)
        assert len(found) == 3
        assert found == sorted(found, key=lambda each: -each.score)

    def test_they_are_compared_as_the_metric_says(self, tmp_path):
        store = QuarryDocumentStore(tmp_path / "products", embedding_dim=2, metric="ip")
        given = {"long": [3.0, 3.0], "near": [1.0, 0.0]}
        store.write_documents([Document(id=name, content=name, embedding=given[name]) for name in given])
        found = QuarryEmbeddingRetriever(store).run([1.0, 0.0])["documents"]
        assert {each.id: each.score for each in found} == pytest.approx({"long": 3.0, "near": 1.0}, abs=0.02)
        assert found[0].id == "long"
        store.close()

    def test_embeddings_are_returned_if_wanted(self, embedded, tmp_path):
        for document in embedded.filter_documents():
            vector = np.array(VECTORS[document.id])
            np.testing.assert_allclose(document.embedding, vector / np.linalg.norm(vector), atol=0.005)
        plain = QuarryDocumentStore(tmp_path / "embedded", embedding_dim=6)
        assert all(each.embedding is None for each in plain.filter_documents())
        plain.close()

    def test_words_and_both(self, embedded):
        assert [each.id for each in QuarryBM25Retriever(embedded).run("ocean")["documents"]] == ["ship"]
        for weight, best in ((0.0, "ship"), (1.0, "rain")):
            hybrid = QuarryHybridRetriever(embedded, options={"dense_weight": weight})
            assert hybrid.run("ocean", VECTORS["rain"])["documents"][0].id == best

    def test_filters_and_numbers(self, embedded):
        long = {"field": "meta.n", "operator": ">=", "value": 5}
        for retriever in (
            QuarryEmbeddingRetriever(embedded, filters=long),
            QuarryHybridRetriever(embedded, filters=long),
        ):
            given = {"query_embedding": VECTORS["rain"]}
            if isinstance(retriever, QuarryHybridRetriever):
                given["query"] = "rain"
            assert [each.id for each in retriever.run(**given)["documents"]] == ["linen"]
            assert [each.id for each in retriever.run(**given, filters={})["documents"]] == ["linen"]
            other = {"field": "meta.n", "operator": "==", "value": 4}
            assert {each.id for each in retriever.run(**given, filters=other)["documents"]} == {"ship", "rain"}
            assert len(retriever.run(**given, filters=other, top_k=1)["documents"]) == 1

    @pytest.mark.parametrize("kind", [QuarryEmbeddingRetriever, QuarryBM25Retriever, QuarryHybridRetriever])
    def test_a_pipeline_is_stored_loaded_and_run(self, embedded, kind):
        pipeline = Pipeline()
        settings = {"top_k": 1, "filters": {"field": "meta.n", "operator": "==", "value": 4}}
        pipeline.add_component("retriever", kind(embedded, **settings))
        stored = pipeline.dumps()
        again = Pipeline.loads(stored, allowed_modules=["quarry.integrations.haystack"])
        assert again.dumps() == stored
        given = {} if kind is QuarryEmbeddingRetriever else {"query": "rain"}
        if kind is not QuarryBM25Retriever:
            again.add_component("embedder", TableEmbedder())
            again.connect("embedder.embedding", "retriever.query_embedding")
        inputs = {"retriever": given} | ({} if kind is QuarryBM25Retriever else {"embedder": {"text": "rain"}})
        (found,) = again.run(inputs)["retriever"]["documents"]
        assert found.id == "rain"
        assert asyncio.run(again.run_async(inputs))["retriever"]["documents"] == [found]
        again.get_component("retriever").document_store.close()

    def test_what_is_missing_is_named(self, embedded, tmp_path):
        for embedding, found in ((None, "no embedding"), ([1.0] * 5, "5 numbers")):
            bad = Document(id="bad", content="bad", embedding=embedding)
            with pytest.raises(InvalidDocument, match=f"'bad'.*6 numbers.*{found}"):
                embedded.write_documents([Document(content="good", embedding=[1.0] * 6), bad])
        assert embedded.count_documents() == 3
        with pytest.raises(InvalidQuery, match="query_embedding"):
            QuarryHybridRetriever(embedded).run("rain")
        with pytest.raises(InvalidQuery):
            QuarryEmbeddingRetriever(embedded).run([1.0])
        with pytest.raises(InvalidSetting):
            QuarryDocumentStore(tmp_path / "embedded", embedding_dim=7)

    def test_a_document_without_text(self, embedded):
        embedded.write_documents([Document(id="picture", embedding=[1.0] * 6, meta={"n": 9})])
        only = {"field": "id", "operator": "==", "value": "picture"}
        (found,) = embedded.filter_documents(only)
        assert (found.content, found.meta) == (None, {"n": 9})


def test_retrievers_run_asynchronously(embedded, filled):
    async def run_all():
        return await asyncio.gather(
            QuarryEmbeddingRetriever(embedded).run_async(VECTORS["rain"], top_k=1),
            QuarryBM25Retriever(embedded).run_async("rain falls", top_k=1),
            QuarryHybridRetriever(embedded).run_async("rain", VECTORS["rain"], top_k=1),
            QuarryRetriever(filled).run_async("when does rain fall?", top_k=1),
        )

    assert [found["documents"][0].id for found in asyncio.run(run_all())] == ["rain"] * 4


class TestChanges:
    def test_a_document_without_text_is_refused(self, document_store):
        with pytest.raises(ValueError, match="no text"):
            document_store.write_documents([Document(content="good"), Document(id="empty")])
        assert document_store.count_documents() == 0

    def test_other_processes_see_what_is_written(self, filled, tmp_path):
        with Engine.open(tmp_path / "index", writable=True) as index:
            assert len(index) == 3
            index.delete(["rain"])
            index.commit()
        assert {each.id for each in filled.filter_documents()} == {"linen", "ship"}
        skipped = [Document(id=name, content="other") for name in ("linen", "new")]
        assert filled.write_documents(skipped, DuplicatePolicy.SKIP) == 1
        assert {each.content for each in filled.filter_documents()} == {TEXTS["linen"], TEXTS["ship"], "other"}


def field(name, operator, value):
    return {"field": name, "operator": operator, "value": value}


NESTED = {
    "deep": {"a": {"b": {"c": 2}, "tags": ["x", "y"]}, "mixed": 1, "day": "2020-01-01"},
    "deeper": {"a": {"b": {"c": 5}}, "mixed": "one", "day": "2021-01-01"},
    "dotted": {"a.b.c": 7, "mixed": True},
    "flat": {"n": 1.5, "list": [{"m": 1}, {"m": 3}], "nothing": None},
}


@pytest.fixture(scope="module")
def nested(tmp_path_factory):
    """Create a store of documents with nested metadata, for reading only."""
    store = QuarryDocumentStore(tmp_path_factory.mktemp("nested") / "index", embedding_dim=2)
    store.write_documents([Document(id=name, meta=meta, embedding=[1.0, 2.0]) for name, meta in NESTED.items()])
    yield store
    store.close()


class TestNestedMetadata:
    @pytest.mark.parametrize("prefix", ["", "meta."])
    @pytest.mark.parametrize(
        ("operator", "value", "wanted"),
        [
            ("==", 2, {"deep"}),
            ("!=", 2, {"deeper", "dotted", "flat"}),
            (">", 2, {"deeper", "dotted"}),
            ("<=", 5, {"deep", "deeper"}),
            ("in", [2, 7], {"deep", "dotted"}),
            ("not in", [2, 7], {"deeper", "flat"}),
            ("==", None, {"flat"}),
            ("!=", None, {"deep", "deeper", "dotted"}),
        ],
    )
    def test_filters(self, nested, prefix, operator, value, wanted):
        only = field(f"{prefix}a.b.c", operator, value)
        assert {each.id for each in nested.filter_documents(only)} == wanted
        assert nested.count_documents_by_filter(only) == len(wanted)
        retriever = QuarryEmbeddingRetriever(nested, filters=only)
        assert {each.id for each in retriever.run([1.0, 0.0])["documents"]} == wanted

    def test_lists_inside(self, nested):
        assert [each.id for each in nested.filter_documents(field("meta.a.tags", "==", "y"))] == ["deep"]
        assert [each.id for each in nested.filter_documents(field("meta.list.m", ">", 2))] == ["flat"]

    def test_values_and_fields(self, nested):
        for name in ("a.b.c", "meta.a.b.c"):
            assert nested.get_metadata_field_min_max(name) == {"min": 2, "max": 7}
            assert nested.get_metadata_field_unique_values(name) == ([2, 5, 7], 3)
            only = field("meta.a.b.c", ">", 2)
            assert nested.get_metadata_field_unique_values(name, filters=only) == ([5, 7], 2)
            assert nested.count_unique_metadata_by_filter(only, [name, "list.m"]) == {"a.b.c": 2, "list.m": 0}
        assert nested.get_metadata_field_min_max("day") == {"min": "2020-01-01", "max": "2021-01-01"}
        assert nested.get_metadata_field_min_max("list.m") == {"min": 1, "max": 3}
        for name in ("nothing", "a", "a.b", "nowhere"):
            assert nested.get_metadata_field_min_max(name) == {"min": None, "max": None}
            assert nested.get_metadata_field_unique_values(name) == ([], 0)
        found = {name: info["type"] for name, info in nested.get_metadata_fields_info().items()}
        assert found["a.b.c"] == found["list.m"] == "long"
        assert found["a.tags"] == found["day"] == "keyword"
        assert (found["n"], found.keys()) == (
            "float",
            {"a.b.c", "a.tags", "mixed", "day", "n", "list.m"},
        )

    def test_values_of_several_types_have_no_least(self, nested):
        with pytest.raises(
            DocumentStoreError, match="'mixed' cannot be compared; their types: boolean, keyword, long"
        ):
            nested.get_metadata_field_min_max("mixed")
        assert nested.get_metadata_field_unique_values("mixed")[1] == 3


class TestWrongArguments:
    """Wrong arguments raise errors of Haystack or Quarry that say what is wrong, and change nothing."""

    @pytest.mark.parametrize("wrong", [5, "field", ["x"], [None], ..., True, {"field": "n"}], ids=repr)
    def test_filters(self, nested, wrong):
        for call in (
            nested.filter_documents,
            nested.count_documents_by_filter,
            nested.delete_by_filter,
            lambda filters: nested.update_by_filter(filters, {"n": 1}),
            lambda filters: nested.get_metadata_field_unique_values("n", filters=filters),
            lambda filters: nested.count_unique_metadata_by_filter(filters, ["n"]),
            lambda filters: QuarryEmbeddingRetriever(nested).run([1.0, 2.0], filters=filters),
            lambda filters: QuarryBM25Retriever(nested, filters=filters).run("x"),
        ):
            with pytest.raises(FilterError):
                call(wrong)
        assert nested.count_documents() == len(NESTED)

    @pytest.mark.parametrize(
        "wrong",
        [
            field("content", "==", "a"),
            field("n", "==", {"$gt": 0}),
            field("n", "!=", {"$gt": 0}),
            field("$not", "==", {"n": 1}),
            field(5, "==", 1),
            field(None, "==", 1),
            field("n", [], 1),
            field("n", None, 1),
            field("n", "in", 1),
        ],
    )
    def test_comparisons(self, nested, wrong):
        with pytest.raises(FilterError):
            nested.filter_documents(wrong)
        for nesting in ({"operator": [], "conditions": [wrong]}, {"operator": "AND", "conditions": "wrong"}):
            with pytest.raises(FilterError):
                nested.filter_documents(nesting)

    @pytest.mark.parametrize("wrong", [None, 5, [], {}, b"x", True], ids=repr)
    def test_fields(self, nested, wrong):
        for call in (nested.get_metadata_field_min_max, nested.get_metadata_field_unique_values):
            with pytest.raises(FilterError, match="name of a field"):
                call(wrong)
        with pytest.raises(FilterError, match="name of a field"):
            nested.count_unique_metadata_by_filter({}, [wrong])
        for several in (wrong, "n"):
            if several != []:
                with pytest.raises(InvalidSetting, match="metadata_fields"):
                    nested.count_unique_metadata_by_filter({}, several)

    @pytest.mark.parametrize("wrong", [-1, 1.5, "1", [], {}, b"x"], ids=repr)
    def test_numbers_and_texts(self, nested, wrong):
        calls = [
            lambda: nested.get_metadata_field_unique_values("n", from_=wrong),
            lambda: nested.get_metadata_field_unique_values("n", size=wrong),
            lambda: QuarryBM25Retriever(nested, top_k=wrong).run("x"),
            lambda: QuarryBM25Retriever(nested).run("x", top_k=wrong),
        ]
        if not isinstance(wrong, str):
            calls.append(lambda: nested.get_metadata_field_unique_values("n", wrong))
        for call in calls:
            with pytest.raises(InvalidSetting):
                call()

    @pytest.mark.parametrize("wrong", [5, ["x"], [], b"x", True, {}], ids=repr)
    def test_queries(self, nested, wrong):
        with pytest.raises(InvalidQuery):
            QuarryBM25Retriever(nested).run(wrong)
        with pytest.raises(InvalidQuery):
            QuarryHybridRetriever(nested).run(wrong, [1.0, 2.0])
        with pytest.raises(InvalidQuery):
            QuarryEmbeddingRetriever(nested).run(wrong)

    @pytest.mark.parametrize(
        "options",
        [{"k": 3}, {"mode": "dense"}, {"queries": "x"}, {"filter": {"n": 1}}, {"what": 1}, {5: 1}, "k", [1]],
    )
    def test_options(self, nested, options):
        """Parameters that the retriever sets are not options; `filter` is one if no Haystack filters are given."""
        with pytest.raises(InvalidSetting):
            QuarryBM25Retriever(nested, options=options, filters=field("n", "==", 1)).run("x")
        if options == {"filter": {"n": 1}}:
            assert QuarryBM25Retriever(nested, options=options).run("x") == {"documents": []}

    def test_documents_stores_and_paths(self, nested, tmp_path):
        for wrong in (None, "text", [None], [5], Document(content="alone")):
            with pytest.raises(ValueError, match="list of Documents"):
                nested.write_documents(wrong)
        for wrong in (None, 5, "store"):
            with pytest.raises(InvalidSetting, match="a QuarryDocumentStore"):
                QuarryBM25Retriever(wrong)
        for wrong in (None, 5, "", []):
            with pytest.raises(InvalidSetting, match="path"):
                QuarryDocumentStore(wrong)
        with pytest.raises(InvalidSetting, match="wait_s"):
            QuarryDocumentStore(tmp_path / "index", "1", embedding_dim=2)
        for wrong in (None, 5, {}, [5]):
            with pytest.raises(InvalidSetting):
                nested.delete_documents(wrong)
        for wrong in (None, 5, "x", ["x"]):
            with pytest.raises(InvalidSetting):
                nested.update_by_filter(field("n", "==", 1.5), wrong)
        store = QuarryDocumentStore(tmp_path / "closed", embedding_dim=2)
        store.close()
        for call in (store.count_documents, lambda: store.write_documents([]), store.delete_all_documents):
            with pytest.raises(IndexClosed):
                call()
