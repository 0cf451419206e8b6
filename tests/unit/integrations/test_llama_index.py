"""The vector store and the retriever of LlamaIndex: contracts of its base classes, and indexes."""

from __future__ import annotations

import asyncio
import pickle

import numpy as np
import pytest

pytest.importorskip("llama_index.core", reason="needs llama-index-core")

from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import (
    Document,
    ImageNode,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)
from llama_index.core.vector_stores.types import VectorStoreQueryMode
from llama_index.core.vector_stores.utils import build_metadata_filter_fn
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.formats.errors import (
    EncoderMismatch,
    IndexClosed,
    IndexLocked,
    InvalidDocument,
    InvalidFilter,
    InvalidQuery,
    InvalidSetting,
)
from quarry.integrations.llama_index import QuarryRetriever, QuarryVectorStore

pytestmark = pytest.mark.filterwarnings("ignore::quarry.engine.UnknownFieldWarning")

ENCODER = WordEncoder()
TEXTS = {
    "linen": "bread keeps fresh in a linen bag",
    "ship": "a ship crosses the ocean in two weeks",
    "rain": "rain falls mostly in autumn",
    "paper": "bread keeps fresh in a paper bag",
}
METADATA = {
    "linen": {"n": 1, "kind": "Kitchen", "tags": ["dry", "food"], "note": None, "price": 1.5},
    "ship": {"n": 2, "kind": "travel", "tags": []},
    "rain": {"n": 3, "kind": "weather", "tags": ["wet"], "note": "often"},
    "paper": {"n": 4, "kind": "kitchen", "tags": ["food"], "note": "", "price": 2.5},
}
BOOK = "\n\n".join(f"{TEXTS[name]}. " * 60 for name in ("linen", "ship"))
SOURCES = {"linen": "first", "ship": "first", "rain": "second"}


def node(name: str, embedding: list[float] | None = None) -> TextNode:
    made = TextNode(id_=name, text=TEXTS[name], metadata=dict(METADATA[name]), embedding=embedding)
    if name in SOURCES:
        made.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=SOURCES[name])
    return made


@pytest.fixture
def store(tmp_path):
    opened = QuarryVectorStore(tmp_path / "index", ENCODER)
    opened.add([node(name) for name in TEXTS])
    yield opened
    opened.close()


VECTORS = dict(zip(TEXTS, np.random.default_rng(3).standard_normal((4, 8)).tolist(), strict=True))


@pytest.fixture
def own(tmp_path):
    """Create a store of given embeddings."""
    opened = QuarryVectorStore(tmp_path / "own", dim=8)
    opened.add([node(name, VECTORS[name]) for name in TEXTS])
    yield opened
    opened.close()


def ask(store, mode=VectorStoreQueryMode.DEFAULT, text="bread keeps fresh", options=None, **fields):
    fields = {"similarity_top_k": 2} | fields
    return store.query(VectorStoreQuery(query_str=text, mode=mode, **fields), **(options or {}))


def only(*filters, condition=FilterCondition.AND):
    return MetadataFilters(filters=list(filters), condition=condition)


class TestNodes:
    def test_a_node_comes_back_as_it_was(self, store):
        for name in TEXTS:
            (found,) = store.get_nodes([name])
            assert found == node(name)
            assert found.ref_doc_id == SOURCES.get(name)

    def test_nodes_are_returned_in_the_order_of_their_ids(self, store):
        found = store.get_nodes(["rain", "nothing", "linen", "rain"])
        assert [each.node_id for each in found] == ["rain", "linen"]
        assert {each.node_id for each in store.get_nodes()} == TEXTS.keys()
        assert store.get_nodes([]) == []

    def test_relationships_templates_and_other_kinds_of_nodes(self, store):
        picture = ImageNode(id_="picture", text="a picture of rain", image_path="rain.png")
        document = Document(id_="report", text="the whole report", metadata={"n": 9})
        hidden = TextNode(id_="hidden", text="secret words", excluded_embed_metadata_keys=["n"], metadata={"n": 1})
        hidden.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id="rain", metadata={"page": 2})
        assert store.add([picture, document, hidden]) == ["picture", "report", "hidden"]
        found = {each.node_id: each for each in store.get_nodes(["picture", "report", "hidden"])}
        assert found["picture"] == picture
        assert (found["report"].get_content(), found["report"].metadata) == ("the whole report", {"n": 9})
        assert found["hidden"] == hidden

    def test_a_node_replaces_one_with_the_same_id(self, store):
        assert store.add([TextNode(id_="rain", text="rain falls in spring")]) == ["rain"]
        assert [each.text for each in store.get_nodes(["rain"])] == ["rain falls in spring"]
        assert len(store.client) == len(TEXTS)
        assert store.add([]) == []

    def test_documents_of_other_programs_are_nodes(self, tmp_path):
        engine.build([{"id": "a", "text": "one word", "metadata": {"n": 1}}], tmp_path / "built", encoder=ENCODER)
        store = QuarryVectorStore(tmp_path / "built", ENCODER)
        assert store.get_nodes() == [TextNode(id_="a", text="one word", metadata={"n": 1})]
        assert ask(store, text="word").ids == ["a"]
        store.delete("nothing")
        store.close()


class TestDeletion:
    def test_by_source_document(self, store):
        store.delete("first")
        assert {each.node_id for each in store.get_nodes()} == {"rain", "paper"}
        store.delete("nothing")
        assert len(store.client) == 2

    def test_of_an_empty_store(self, tmp_path):
        store = QuarryVectorStore(tmp_path / "new", ENCODER)
        store.delete("nothing")
        store.delete_nodes(["nothing"])
        store.clear()
        assert store.get_nodes() == []
        assert ask(store).nodes == []
        store.close()

    def test_nested_filters_without_conditions_are_left_out(self, store):
        kitchen = only(MetadataFilter(key="kind", value="kitchen"))
        for condition in FilterCondition:
            given = MetadataFilters(filters=[only(), kitchen, only(only())], condition=condition)
            expected = MetadataFilters(filters=[kitchen], condition=condition)
            assert {each.node_id for each in store.get_nodes(filters=given)} == {
                each.node_id for each in store.get_nodes(filters=expected)
            }

    def test_by_ids_and_filters(self, store):
        kitchen = only(MetadataFilter(key="kind", value="kitchen"))
        store.delete_nodes(["linen", "paper", "nothing"], kitchen)
        assert {each.node_id for each in store.get_nodes()} == {"linen", "ship", "rain"}
        store.delete_nodes(["linen"])
        store.delete_nodes(filters=only(MetadataFilter(key="n", value=3, operator=FilterOperator.GTE)))
        assert {each.node_id for each in store.get_nodes()} == {"ship"}
        store.delete_nodes([])
        with pytest.raises(InvalidSetting, match="what to delete"):
            store.delete_nodes()
        for nothing in (only(), MetadataFilters(filters=[only(), only()])):
            with pytest.raises(InvalidSetting, match="the filters are empty"):
                store.delete_nodes(filters=nothing)
        assert len(store.client) == 1
        store.clear()
        assert len(store.client) == 0


class TestQueries:
    @pytest.mark.parametrize(
        ("mode", "engine_mode"),
        [("default", "dense"), ("sparse", "lexical"), ("text_search", "lexical"), ("hybrid", "hybrid")],
    )
    def test_modes_rank_as_the_engine_does(self, store, mode, engine_mode):
        found = ask(store, VectorStoreQueryMode(mode), similarity_top_k=3)
        hits = store.client.search("bread keeps fresh", 3, mode=engine_mode)
        assert found.ids == [hit.id for hit in hits]
        assert found.similarities == [hit.score for hit in hits]
        assert [each.node_id for each in found.nodes] == found.ids
        assert set(found.ids[:2]) == {"linen", "paper"}

    @pytest.mark.parametrize("mode", ["default", "sparse", "hybrid", "mmr"])
    def test_filters_alone_find_the_first_nodes_that_pass(self, store, mode):
        kitchen = only(MetadataFilter(key="n", value=[1, 4], operator=FilterOperator.IN))
        found = ask(store, VectorStoreQueryMode(mode), None, filters=kitchen, similarity_top_k=3)
        assert (found.ids, found.similarities) == (["linen", "paper"], None)
        assert [each.node_id for each in found.nodes] == found.ids
        assert ask(store, mode, None, filters=kitchen, similarity_top_k=1).ids == ["linen"]
        assert ask(store, mode, None, doc_ids=["first"], node_ids=["ship", "rain"]).ids == ["ship"]
        for wrong in ({"options": {"offset": 1}}, {"similarity_top_k": 0}):
            with pytest.raises(InvalidSetting):
                ask(store, mode, None, filters=kitchen, **wrong)

    def test_numbers_of_nodes_by_mode(self, store):
        assert len(ask(store, VectorStoreQueryMode.HYBRID, hybrid_top_k=4).ids) == 4
        assert len(ask(store, VectorStoreQueryMode.SPARSE, "in", sparse_top_k=3).ids) <= 3
        assert len(ask(store, VectorStoreQueryMode.SPARSE, "bread", sparse_top_k=1).ids) == 1
        assert len(ask(store, similarity_top_k=100).ids) == 4

    def test_alpha_is_the_weight_of_dense_scores(self, store):
        for alpha in (0.0, 0.3, 1.0):
            found = ask(store, VectorStoreQueryMode.HYBRID, "ship in autumn", alpha=alpha, similarity_top_k=4)
            hits = store.client.search("ship in autumn", 4, mode="hybrid", dense_weight=alpha)
            assert found.similarities == [hit.score for hit in hits]

    def test_source_documents_and_ids(self, store):
        assert set(ask(store, doc_ids=["first"], similarity_top_k=4).ids) == {"linen", "ship"}
        assert ask(store, node_ids=["rain", "nothing"], similarity_top_k=4).ids == ["rain"]
        assert ask(store, node_ids=["linen", "paper"], doc_ids=["second"]).ids == []

    @pytest.mark.parametrize("mode", ["default", "sparse", "hybrid", "mmr"])
    @pytest.mark.parametrize("none", [{"doc_ids": []}, {"node_ids": []}, {"doc_ids": [], "node_ids": ["ship"]}])
    def test_an_empty_list_of_ids_allows_nothing(self, store, mode, none):
        assert ask(store, mode, **none).ids == []
        assert ask(store, mode, None, **none).ids == []
        query = VectorStoreQuery(query_str="bread", mode=VectorStoreQueryMode(mode), **none)
        assert asyncio.run(store.aquery(query)).ids == []

    def test_ids_are_those_of_nodes_and_not_values_of_metadata(self, store):
        copies = [TextNode(id_=f"copy{n}", text="bread keeps fresh", metadata={"id": "ship"}) for n in range(5)]
        store.add(copies)
        assert ask(store, node_ids=["ship", "nobody"], similarity_top_k=1).ids == ["ship"]
        assert [each.node_id for each in store.get_nodes(["ship"])] == ["ship"]
        store.delete_nodes(["ship"], only(MetadataFilter(key="n", value=2)))
        assert {each.node_id for each in store.get_nodes()} >= {each.node_id for each in copies}

    def test_options_of_the_engine(self, store):
        found = ask(store, options={"offset": 1}, similarity_top_k=3)
        assert found.ids == ask(store, similarity_top_k=4).ids[1:]
        with pytest.raises(InvalidSetting, match="unknown setting"):
            ask(store, options={"offfset": 1})

    def test_maximal_marginal_relevance(self, store):
        """The two nodes about bread are similar, so that diversity ranks another one second."""
        mode, fields = VectorStoreQueryMode.MMR, {"options": {"mmr_prefetch_k": 4}}
        plain = ask(store, mode, mmr_threshold=1.0, **fields)
        diverse = ask(store, mode, mmr_threshold=0.1, **fields)
        assert set(plain.ids) == {"linen", "paper"}
        assert len({"linen", "paper"} & set(diverse.ids)) == 1
        assert ask(store, mode, options={"mmr_threshold": 0.1, "mmr_prefetch_k": 4}).ids == diverse.ids
        assert len(ask(store, mode, similarity_top_k=9).ids) == 4

    def test_a_query_by_an_embedding_of_the_encoder(self, store):
        vector = ENCODER.encode_query("bread keeps fresh").tolist()
        assert ask(store, text=None, query_embedding=vector).similarities == ask(store).similarities
        assert ask(store, query_embedding=[0.0]).ids == ask(store).ids  # of another model, and ignored

    def test_what_a_query_lacks_is_named(self, store):
        for mode in ("default", "sparse", "hybrid", "mmr"):
            with pytest.raises(InvalidQuery, match="query_str"):
                ask(store, VectorStoreQueryMode(mode), text=None)
        for mode in ("svm", "logistic_regression", "linear_regression", "semantic_hybrid"):
            with pytest.raises(InvalidSetting, match=f"expected default.*found {mode}"):
                ask(store, VectorStoreQueryMode(mode))
        with pytest.raises(InvalidSetting, match="k is out of range"):
            ask(store, similarity_top_k=0)


@pytest.fixture(scope="class")
def book(tmp_path_factory):
    opened = QuarryVectorStore(tmp_path_factory.mktemp("book") / "index", ENCODER)
    long = TextNode(id_="book", text=BOOK, metadata={"place": "shelf"}, start_char_idx=100, end_char_idx=9999)
    long.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="library")
    opened.add([long, node("rain")])
    yield opened
    opened.close()


class TestPassages:
    """Nodes of several passages, which queries return."""

    @pytest.mark.parametrize("mode", ["default", "hybrid", "sparse", "mmr"])
    def test_of_a_long_node(self, book, mode):
        found = ask(book, VectorStoreQueryMode(mode), "a ship crosses the ocean", similarity_top_k=1)
        (passage,) = found.nodes
        assert "ship" in passage.text
        assert passage.node_id == found.ids[0] == f"book#{passage.metadata['passage']}"
        assert BOOK[passage.metadata["start_index"] :].startswith(passage.text)
        assert passage.start_char_idx == 100 + passage.metadata["start_index"]
        assert passage.end_char_idx - passage.start_char_idx == len(passage.text) < len(BOOK)
        assert (passage.ref_doc_id, passage.parent_node.node_id) == ("library", "book")
        assert passage.get_content(MetadataMode.LLM) == f"place: shelf\n\n{passage.text}"
        assert book.get_nodes(["book"])[0].text == BOOK

    def test_whole_nodes_on_request(self, book):
        found = ask(book, text="a ship crosses the ocean", options={"unit": "document"})
        assert found.ids == ["book", "rain"]
        assert found.nodes[0].text == BOOK
        with pytest.raises(InvalidSetting, match=r"nearest: unit\); found units"):
            ask(book, options={"units": "document"})

    def test_the_nodes_of_several_queries_are_equal(self, book):
        """By which QueryFusionRetriever recognizes them."""
        retriever = QuarryRetriever(book, 9)
        one, other = (
            {each.node_id: each.node.hash for each in retriever.retrieve(text)} for text in ("ship", "rain")
        )
        assert one == other

    def test_ids_restrict_passages(self, book):
        """Passages of another document, which has the id of a node in its metadata, are left out."""
        book.add([TextNode(id_="copy", text=BOOK, metadata={"id": "rain"})])
        assert ask(book, node_ids=["rain"], similarity_top_k=1).ids == ["rain"]
        book.delete_nodes(["copy"])


CASES = [
    MetadataFilter(key="n", value=2),
    MetadataFilter(key="n", value=2, operator=FilterOperator.NE),
    MetadataFilter(key="n", value=2, operator=FilterOperator.GT),
    MetadataFilter(key="n", value=2, operator=FilterOperator.GTE),
    MetadataFilter(key="n", value=2, operator=FilterOperator.LT),
    MetadataFilter(key="n", value=2, operator=FilterOperator.LTE),
    MetadataFilter(key="price", value=2.0, operator=FilterOperator.LT),
    MetadataFilter(key="price", value=2.5, operator=FilterOperator.NE),
    MetadataFilter(key="kind", value=["travel", "weather"], operator=FilterOperator.IN),
    MetadataFilter(key="kind", value=["travel", "weather"], operator=FilterOperator.NIN),
    MetadataFilter(key="kind", value="itchen", operator=FilterOperator.TEXT_MATCH),
    MetadataFilter(key="kind", value="ITCHEN", operator=FilterOperator.TEXT_MATCH_INSENSITIVE),
    MetadataFilter(key="tags", value=["wet", "dry"], operator=FilterOperator.ANY),
    MetadataFilter(key="tags", value=["food", "dry"], operator=FilterOperator.ALL),
    MetadataFilter(key="tags", value="food", operator=FilterOperator.CONTAINS),
]


def passing_by_llama_index(filters):
    """Return the nodes that LlamaIndex's own store would find."""
    passes = build_metadata_filter_fn(METADATA.__getitem__, filters)
    return {name for name in TEXTS if passes(name)}


class TestFilters:
    @pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.key} {case.operator.value}")
    def test_an_operator_means_what_it_does_in_llama_index(self, store, case):
        wanted = passing_by_llama_index(only(case))
        assert 0 < len(wanted) < 4
        assert {each.node_id for each in store.get_nodes(filters=only(case))} == wanted
        assert set(ask(store, filters=only(case), similarity_top_k=4).ids) == wanted

    @pytest.mark.parametrize("condition", list(FilterCondition))
    def test_conditions(self, store, condition):
        filters = only(CASES[4], CASES[11], condition=condition)
        assert {each.node_id for each in store.get_nodes(filters=filters)} == passing_by_llama_index(filters)

    def test_nested_filters(self, store):
        inner = only(CASES[0], MetadataFilter(key="kind", value="weather"), condition=FilterCondition.OR)
        outer = only(inner, MetadataFilter(key="n", value=3, operator=FilterOperator.LT))
        assert [each.node_id for each in store.get_nodes(filters=outer)] == ["ship"]
        for nothing in (only(), only(only()), only(only(), condition=FilterCondition.NOT)):
            assert len(store.get_nodes(filters=nothing)) == 4
            assert len(ask(store, filters=nothing, similarity_top_k=9).ids) == 4

    def test_empty_fields(self, store):
        """Missing values, None and empty lists are empty."""

        def empty(key):
            found = store.get_nodes(
                filters=only(MetadataFilter(key=key, value=None, operator=FilterOperator.IS_EMPTY))
            )
            return {each.node_id for each in found}

        assert empty("note") == {"linen", "ship"}
        assert empty("tags") == {"ship"}
        assert empty("missing") == set(TEXTS)
        assert store.get_nodes(["ship"])[0].metadata["tags"] == []

    @pytest.mark.parametrize(
        ("case", "message"),
        [
            (MetadataFilter(key="n", value=1, operator=FilterOperator.IN), "field 'n'.*a list.*found 1"),
            (MetadataFilter(key="n", value=[1, 2]), "field 'n'.*one value"),
            (MetadataFilter(key="n", value="two", operator=FilterOperator.GT), "field 'n'.*number"),
            (MetadataFilter(key="n", value=5, operator=FilterOperator.TEXT_MATCH), "field 'n.*text"),
        ],
    )
    def test_what_cannot_be_compared_is_named(self, store, case, message):
        with pytest.raises(InvalidFilter, match=message):
            store.get_nodes(filters=only(case))
        with pytest.raises(InvalidFilter, match=message):
            store.delete_nodes(filters=only(case))
        assert len(store.client) == 4

    @pytest.mark.parametrize("key", ["$price", "$price.net", "$"])
    def test_keys_that_begin_with_a_dollar_sign(self, store, key):
        store.add([TextNode(id_="bill", text="a bill for bread", metadata={key: 7})])
        for operator, value in (("==", 7), (">", 6), ("in", [7]), ("all", [7])):
            given = only(MetadataFilter(key=key, value=value, operator=FilterOperator(operator)))
            assert [each.node_id for each in store.get_nodes(filters=given)] == ["bill"]
        empty = only(MetadataFilter(key=key, value=None, operator=FilterOperator.IS_EMPTY))
        assert {each.node_id for each in store.get_nodes(filters=empty)} == TEXTS.keys()

    @pytest.mark.parametrize("key", ["$and", "$or", "$not", "$eq", "$exists"])
    def test_keys_named_like_operators_are_refused(self, store, key):
        for operator, value in (("==", 7), ("in", [7]), ("all", [7]), ("is_empty", None)):
            with pytest.raises(InvalidFilter):
                store.get_nodes(
                    filters=only(MetadataFilter(key=key, value=value, operator=FilterOperator(operator)))
                )


class TestOwnEmbeddings:
    def test_nodes_have_their_embeddings_and_can_be_added_to_another_store(self, own, tmp_path):
        (found,) = own.get_nodes(["rain"])
        unit = np.array(VECTORS["rain"]) / np.linalg.norm(VECTORS["rain"])
        assert found.embedding == pytest.approx(unit.tolist(), abs=0.01)
        other = QuarryVectorStore(tmp_path / "other", dim=8)
        other.add(own.get_nodes())
        assert {each.node_id: each.embedding for each in other.get_nodes()}.keys() == TEXTS.keys()
        other.close()

    def test_similarities_are_cosines(self, own):
        query = np.random.default_rng(4).standard_normal(8)
        found = own.query(VectorStoreQuery(query_embedding=query.tolist(), similarity_top_k=4))
        table = np.array(list(VECTORS.values()))
        cosines = table @ query / np.linalg.norm(table, axis=1) / np.linalg.norm(query)
        assert dict(zip(found.ids, found.similarities, strict=True)) == pytest.approx(
            dict(zip(TEXTS, cosines.tolist(), strict=True)), abs=0.01
        )
        assert found.similarities == sorted(found.similarities, reverse=True)
        assert found.nodes[0].get_content() == TEXTS[found.ids[0]]

    def test_hybrid_and_lexical_queries(self, own):
        assert ask(own, VectorStoreQueryMode.SPARSE, "ocean").ids == ["ship"]
        found = ask(own, VectorStoreQueryMode.HYBRID, "ocean", query_embedding=VECTORS["rain"], alpha=0.0)
        assert found.ids[0] == "ship"
        found = ask(own, VectorStoreQueryMode.HYBRID, "ocean", query_embedding=VECTORS["rain"], alpha=1.0)
        assert found.ids[0] == "rain"
        found = ask(own, VectorStoreQueryMode.MMR, query_embedding=VECTORS["rain"])
        assert found.ids[0] == "rain"

    def test_what_is_missing_is_named(self, own):
        for mode in ("default", "hybrid", "mmr"):
            with pytest.raises(InvalidQuery, match="query_embedding"):
                ask(own, VectorStoreQueryMode(mode))
        with pytest.raises(InvalidQuery):
            own.query(VectorStoreQuery(query_embedding=[1.0, 2.0]))
        for embedding, found in ((None, "no embedding"), ([1.0] * 7, "7 numbers")):
            with pytest.raises(InvalidDocument, match=f"node 'bad'.*8 numbers.*{found}"):
                own.add([node("rain", VECTORS["rain"]), TextNode(id_="bad", text="bad", embedding=embedding)])
        with pytest.raises(InvalidDocument, match="bad"):
            own.add([TextNode(id_="bad", text="bad", embedding=[float("nan")] * 8)])
        assert len(own.client) == 4

    def test_other_lengths_metrics_and_encoders_are_refused(self, own):
        for options in ({"dim": 9}, {"dim": 8, "metric": "l2"}):
            with pytest.raises(InvalidSetting):
                QuarryVectorStore(own.path, **options)
        with pytest.raises((EncoderMismatch, InvalidSetting)):
            QuarryVectorStore(own.path, ENCODER)
        with pytest.raises(InvalidSetting, match="one of them"):
            QuarryVectorStore(own.path, ENCODER, dim=8)

    def test_a_node_without_text(self, own):
        own.add([TextNode(id_="blank", text="", embedding=VECTORS["ship"], metadata={"n": 5})])
        (found,) = own.get_nodes(["blank"])
        assert (found.text, found.metadata) == ("", {"n": 5})


class TestPersistence:
    def test_another_process_sees_each_change(self, store):
        with Engine.open(store.path, encoder=ENCODER) as index:
            generation = index.stats()["generation"]
            store.add([TextNode(id_="snow", text="snow falls in winter")])
            store.delete("second")
            assert index.refresh()
            assert index.stats()["generation"] == generation + 2
            assert set(index.ids()) == {"linen", "ship", "paper", "snow"}
        with Engine.open(store.path, encoder=ENCODER, writable=True) as index:
            index.delete(["snow"])
            index.commit()
        assert "snow" not in ask(store, text="snow", similarity_top_k=9).ids

    def test_a_store_is_described_and_opened_again(self, own, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        described, pickled = own.to_dict(), pickle.dumps(QuarryVectorStore("own", dim=8))
        monkeypatch.chdir("/")
        again, third = QuarryVectorStore.from_dict(described), pickle.loads(pickled)
        for each in (again, third):
            assert each.path == own.path
            assert [n.node_id for n in each.get_nodes()] == [n.node_id for n in own.get_nodes()]
            each.close()
        assert own.class_name() == "QuarryVectorStore"

    def test_an_invalid_node_adds_nothing(self, store):
        for bad in (
            TextNode(id_="bad", text=""),
            TextNode(id_="bad", text="x", metadata={"n": float("inf")}),
            TextNode(id_="", text="x"),
        ):
            with pytest.raises(InvalidDocument):
                store.add([TextNode(id_="good", text="good"), bad])
        assert store.get_nodes(["good", "bad"]) == []

    def test_a_writer_that_keeps_the_lock_is_named(self, store):
        impatient = QuarryVectorStore(store.path, ENCODER, wait_s=0.1)
        with Engine.open(store.path, writable=True, encoder=ENCODER), pytest.raises(IndexLocked):
            impatient.clear()
        impatient.close()
        assert len(store.client) == 4


def test_asynchronous_methods(store):
    async def use():
        added = await store.async_add([TextNode(id_="snow", text="snow falls in winter")])
        found = await store.aquery(VectorStoreQuery(query_str="snow", similarity_top_k=1))
        nodes = await store.aget_nodes(["snow"])
        await store.adelete("first")
        await store.adelete_nodes(["rain"])
        left = {each.node_id for each in await store.aget_nodes()}
        await store.aclear()
        return added, found.ids, [each.text for each in nodes], left, await store.aget_nodes()

    assert asyncio.run(use()) == (["snow"], ["snow"], ["snow falls in winter"], {"paper", "snow"}, [])


class TestRetriever:
    def test_nodes_with_scores(self, store):
        retriever = QuarryRetriever(store, similarity_top_k=2)
        found = retriever.retrieve("bread keeps fresh")
        assert {each.node.node_id for each in found} == {"linen", "paper"}
        assert found[0].score >= found[1].score > 0
        assert asyncio.run(retriever.aretrieve("bread keeps fresh")) == found

    def test_modes_filters_and_options(self, store):
        last = only(MetadataFilter(key="n", value=3, operator=FilterOperator.GTE))
        assert [each.node_id for each in QuarryRetriever(store, 9, "sparse", last).retrieve("bread")] == ["paper"]
        assert len(QuarryRetriever(store, 2, options={"offset": 3}).retrieve("bread")) == 1
        with pytest.raises(InvalidSetting, match="found 'best'"):
            QuarryRetriever(store, mode="best")


class WordEmbedding(BaseEmbedding):
    """An embedding model of LlamaIndex."""

    def _get_text_embedding(self, text):
        return ENCODER.encode_query(text).tolist()

    def _get_query_embedding(self, query):
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


class TestIndexes:
    """`VectorStoreIndex` with a store."""

    @pytest.mark.parametrize("dim", [None, ENCODER.dim])
    def test_insert_retrieve_and_delete(self, tmp_path, dim):
        store = QuarryVectorStore(tmp_path / "index", None if dim else ENCODER, dim=dim)
        model = WordEmbedding() if dim else MockEmbedding(embed_dim=1)
        context = StorageContext.from_defaults(vector_store=store)
        documents = [Document(id_=name, text=text, metadata=METADATA[name]) for name, text in TEXTS.items()]
        index = VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=model)
        for mode in ("default", "hybrid", "sparse", "mmr"):
            retriever = index.as_retriever(similarity_top_k=1, vector_store_query_mode=mode)
            (best,) = retriever.retrieve("a ship crosses the ocean")
            described = {"document_id": best.node.node_id, "passage": 0, "start_index": 0}
            assert (best.node.ref_doc_id, best.node.metadata) == ("ship", described | METADATA["ship"])
            assert asyncio.run(retriever.aretrieve("a ship crosses the ocean"))[0].node == best.node
        filtered = index.as_retriever(similarity_top_k=4, filters=only(MetadataFilter(key="n", value=3)))
        assert [each.node.ref_doc_id for each in filtered.retrieve("ship")] == ["rain"]
        index.delete_ref_doc("ship")
        assert {each.ref_doc_id for each in store.get_nodes()} == {"linen", "rain", "paper"}
        context.persist(tmp_path / "context")
        store.close()

        opened = QuarryVectorStore(tmp_path / "index", None if dim else ENCODER, dim=dim)
        again = VectorStoreIndex.from_vector_store(opened, embed_model=model)
        assert again.as_retriever(similarity_top_k=1).retrieve(TEXTS["rain"])[0].text == TEXTS["rain"]
        restored = StorageContext.from_defaults(vector_store=opened, persist_dir=tmp_path / "context")
        loaded = load_index_from_storage(restored, embed_model=model)
        assert loaded.as_retriever(similarity_top_k=1).retrieve(TEXTS["rain"])[0].text == TEXTS["rain"]
        opened.close()


@pytest.fixture(scope="class")
def still(tmp_path_factory):
    """Create a store, for reading only."""
    opened = QuarryVectorStore(tmp_path_factory.mktemp("still") / "index", ENCODER)
    opened.add([node(name) for name in TEXTS])
    yield opened
    opened.close()


MODES = [VectorStoreQueryMode(each) for each in ("default", "sparse", "hybrid", "mmr")]
N_KITCHEN = {"filters": only(MetadataFilter(key="n", value=1))}


class TestWrongArguments:
    """Wrong arguments raise errors of Quarry that say what is wrong, and change nothing."""

    @pytest.mark.parametrize("wrong", [None, 5, "text", {}, b"x", True, ...], ids=repr)
    def test_lists_and_filters(self, still, wrong):
        with pytest.raises(InvalidSetting, match="nodes is not a list"):
            still.add(wrong)
        with pytest.raises(InvalidQuery, match="not a query"):
            still.query(wrong)
        if wrong is not None:
            for call in (
                lambda: still.get_nodes(filters=wrong),
                lambda: still.delete_nodes(filters=wrong),
                lambda: ask(still, filters=wrong),
                lambda: QuarryRetriever(still, filters=wrong),
            ):
                with pytest.raises(InvalidFilter, match="expected MetadataFilters"):
                    call()
        if wrong is not None and not isinstance(wrong, str):
            with pytest.raises(InvalidSetting):
                still.get_nodes(wrong)
            with pytest.raises(InvalidSetting):
                still.delete_nodes(wrong)
        if wrong:
            with pytest.raises(InvalidSetting, match="node_ids is not a list"):
                ask(still, node_ids=wrong)
            with pytest.raises(InvalidSetting, match="doc_ids is not a list"):
                ask(still, doc_ids=wrong)
        assert len(still.client) == len(TEXTS)

    @pytest.mark.parametrize("wrong", [None, 5, ["first"], {}, b"x", True], ids=repr)
    def test_ids_of_source_documents(self, still, wrong):
        with pytest.raises(InvalidSetting, match="ref_doc_id is not a text"):
            still.delete(wrong)
        assert len(still.client) == len(TEXTS)

    @pytest.mark.parametrize("wrong", [None, 5, "text", Exception()], ids=repr)
    def test_nodes_and_stores(self, still, wrong):
        with pytest.raises(InvalidDocument, match="a BaseNode"):
            still.add([node("rain"), wrong])
        with pytest.raises(InvalidSetting, match="a QuarryVectorStore"):
            QuarryRetriever(wrong)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("wrong", [5, ["text"], [], {}, b"x", True], ids=repr)
    def test_queries(self, still, own, mode, wrong):
        with pytest.raises(InvalidQuery):
            ask(still, mode, wrong)
        if mode.value != "sparse" and wrong != "text":
            with pytest.raises(InvalidQuery):
                ask(own, mode, query_embedding=wrong)

    @pytest.mark.parametrize("wrong", [-1, 1.5, "2", [2], float("nan")], ids=repr)
    def test_numbers(self, still, wrong):
        calls = [lambda mode=mode: ask(still, mode, similarity_top_k=wrong) for mode in MODES]
        calls += [
            lambda: (
                ask(still, "sparse", sparse_top_k=wrong) if wrong else ask(still, "sparse", similarity_top_k=0)
            ),
            lambda: (
                ask(still, "hybrid", hybrid_top_k=wrong) if wrong else ask(still, "hybrid", similarity_top_k=0)
            ),
            lambda: ask(still, "hybrid", alpha=wrong),
            lambda: ask(still, "mmr", mmr_threshold=wrong),
            lambda: ask(still, "mmr", options={"mmr_threshold": wrong}),
            lambda: ask(still, "mmr", options={"mmr_prefetch_k": wrong}),
            lambda: ask(still, node_ids=["ship"], similarity_top_k=wrong),
            lambda: QuarryRetriever(still, wrong).retrieve("bread"),
        ]
        for call in calls:
            with pytest.raises(InvalidSetting):
                call()

    @pytest.mark.parametrize("wrong", [None, 5, "best", [], {}], ids=repr)
    def test_modes(self, still, wrong):
        for call in (lambda: ask(still, wrong), lambda: QuarryRetriever(still, mode=wrong)):
            with pytest.raises(InvalidSetting, match="unsupported query mode"):
                call()

    @pytest.mark.parametrize(
        "options",
        [{"k": 3}, {"mode": "dense"}, {"queries": "x"}, {"filter": {"n": 1}}, {"what": 1}, {"dense_weight": 1}],
    )
    def test_options(self, still, options):
        """Parameters that the query sets are not options, all others are."""
        with pytest.raises(InvalidSetting):
            ask(still, "hybrid", alpha=0.3, options=options, **N_KITCHEN)
        if options.keys() & {"filter", "dense_weight"}:
            assert len(ask(still, "hybrid", options=options).ids) == (1 if "filter" in options else 2)
        for wrong in (5, "k", [1], {5: 1}):
            with pytest.raises(InvalidSetting, match="not keywords"):
                QuarryRetriever(still, options=wrong)

    def test_paths_lengths_and_closed_stores(self, still, tmp_path):
        for wrong in (None, 5, "", []):
            with pytest.raises(InvalidSetting, match="path"):
                QuarryVectorStore(wrong, ENCODER)
        for metric in ("metrik", "metrics"):
            with pytest.raises(InvalidSetting, match=rf"nearest: metric\); found {metric}"):
                QuarryVectorStore(tmp_path / "new", dim=8, **{metric: "l2"})
        with pytest.raises(InvalidSetting, match="found refresh"):
            still.add([], refresh=True)
        for wrong in (0, "8", 1.5, []):
            with pytest.raises(InvalidSetting, match="dim"):
                QuarryVectorStore(tmp_path / "new", dim=wrong)
        for wrong in ("1", -1, []):
            with pytest.raises(InvalidSetting, match="wait_s"):
                QuarryVectorStore(tmp_path / "new", ENCODER, wait_s=wrong)
        store = QuarryVectorStore(tmp_path / "new", ENCODER)
        store.close()
        for call in (lambda: ask(store), lambda: store.add([node("rain")]), store.clear, store.get_nodes):
            with pytest.raises(IndexClosed):
                call()
