"""The document store and the retriever of Haystack: Haystack's own suites, and what these leave out."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")
pytest.importorskip("haystack", reason="needs haystack-ai")
pytest.importorskip("pytest_asyncio", reason="the suite has asynchronous tests")

from haystack import Document, Pipeline
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.testing import document_store as suites
from haystack.testing import document_store_async as async_suites

from quarry.engine import Engine
from quarry.integrations.haystack import QuarryDocumentStore, QuarryRetriever

pytestmark = pytest.mark.filterwarnings("ignore::quarry.engine.UnknownFieldWarning")  # values that nothing has


def assert_documents_are_equal(received, expected):
    """Compare documents in any order; embeddings are not stored."""

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
    # `delete_all_documents` has no argument that would recreate the index: these two would be skipped
    test_delete_all_documents_with_recreate_index = None
    test_delete_all_documents_without_recreate_index = None

    @pytest.fixture
    def document_store(self, tmp_path):
        store = QuarryDocumentStore(tmp_path / "index")
        yield store
        store.close()

    def test_write_documents(self, document_store):
        """Without a policy a document with a known id is refused, and nothing of the call is written."""
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
        again.get_component("retriever")._store.close()


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
