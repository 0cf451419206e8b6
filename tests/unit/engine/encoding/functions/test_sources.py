"""Models of other libraries are recognized by their interface, and used directly if they have all settings."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from support.models.embedding_models import Embeddings, SentenceTransformer, StaticModel
from support.models.tiny_checkpoint import write_checkpoint

from quarry import engine
from quarry.engine import EncoderMismatch, EncodingFailed, Engine, FunctionEncoder, InvalidSetting
from quarry.engine.encoding.opening import open_encoder

DOCS = [{"id": "cat", "text": "a cat sat on the mat"}, {"id": "dog", "text": "three dogs were barking"}]


@pytest.mark.parametrize(
    "make",
    [SentenceTransformer, StaticModel, lambda: Embeddings(model="org/model")],
    ids=["sentence-transformers", "model2vec", "langchain"],
)
def test_a_model_that_states_its_name_is_an_encoder_as_it_is(tmp_path, make):
    engine.build(DOCS, tmp_path / "index", encoder=make())
    with Engine.open(tmp_path / "index", encoder=make(), writable=True) as index:
        index.add([{"id": "owl", "text": "an owl flew"}])
        index.commit()
        assert index.search("three dogs", k=1)[0].id == "dog"
    with Engine.open(tmp_path / "index", encoder=FunctionEncoder(make(), batch_size=2)) as index:
        assert index.search("an owl", k=1)[0].id == "owl"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_encoder_is_pickled_with_its_model(protocol):
    for model in (StaticModel(), Embeddings(model="m", dimensions=16), np.ones):
        encoder = FunctionEncoder(model, dim=12 if model is np.ones else None, name="m", max_in_flight=3)
        encoder.prepare_query("text")
        copy = pickle.loads(pickle.dumps(encoder, protocol))
        assert (copy.identity, copy.batch_limits) == (encoder.identity, encoder.batch_limits)
        if model is not np.ones:
            np.testing.assert_array_equal(
                copy.run_queries(["one text"] * 70), encoder.run_queries(["one text"] * 70)
            )


class TestSentenceTransformers:
    def test_documents_and_queries_have_methods_of_their_own(self):
        model = SentenceTransformer()
        encoder = FunctionEncoder(model)
        assert (encoder.name, encoder.dim, encoder.normalize) == ("org/small-model", 16, True)
        list(encoder.windows("one text"))
        encoder.encode_query("one query")
        assert model.asked == [("document", ["one text"]), ("query", ["one query"])]

    def test_older_versions_have_one_method(self):
        class Older(SentenceTransformer):
            encode_query = encode_document = get_embedding_dimension = None

            def get_sentence_embedding_dimension(self):
                return np.int64(16)

        model = Older()
        encoder = FunctionEncoder(model)
        encoder.encode_query("one query")
        assert (encoder.dim, model.asked) == (16, [("any", ["one query"])])

    def test_vectors_that_are_compared_by_inner_product_are_not_normalized(self):
        assert not FunctionEncoder(SentenceTransformer(similarity="dot")).normalize
        assert FunctionEncoder(SentenceTransformer(similarity="dot"), normalize=True).normalize

    def test_a_model_of_a_folder_has_no_name_that_is_the_same_elsewhere(self, tmp_path):
        model = SentenceTransformer(str(tmp_path))
        with pytest.raises(InvalidSetting, match="name is missing"):
            open_encoder(model)
        assert FunctionEncoder(model, name="mine").name == "mine"

    def test_one_that_does_not_state_its_length(self):
        model = SentenceTransformer(dim=None)
        with pytest.raises(InvalidSetting, match="dim is missing"):
            open_encoder(model)
        assert FunctionEncoder(model, dim=16).dim == 16

    @pytest.mark.filterwarnings("ignore")  # warnings of the library
    def test_the_library_itself(self, tmp_path):
        pytest.importorskip("sentence_transformers")
        from sentence_transformers import SentenceTransformer as Model
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

        transformer = Transformer(str(write_checkpoint(tmp_path / "checkpoint")))
        model = Model(
            modules=[transformer, Pooling(32)], prompts={"query": "q: ", "document": "d: "}, device="cpu"
        )
        with pytest.raises(InvalidSetting, match="name is missing"):
            open_encoder(model)
        encoder = FunctionEncoder(model, name="tiny", normalize=False)
        np.testing.assert_allclose(encoder.encode_query("the cat"), model.encode_query("the cat"), rtol=1e-5)
        window = next(encoder.windows("the cat sat."))
        np.testing.assert_allclose(window.pooled, model.encode_document("the cat sat."), rtol=1e-5)
        engine.build(DOCS, tmp_path / "index", encoder=encoder)
        with Engine.open(tmp_path / "index", encoder=encoder) as index:
            assert len(index.search("the cat")) == 2


class TestModel2Vec:
    def test_the_table_is_part_of_the_identity(self, tmp_path):
        encoder = FunctionEncoder(StaticModel())
        assert (encoder.name, encoder.dim) == ("model2vec/org/base", 12)
        assert FunctionEncoder(StaticModel()).identity == encoder.identity
        assert FunctionEncoder(StaticModel(seed=1)).identity != encoder.identity
        assert FunctionEncoder(StaticModel(base_model_name=None)).name == "model2vec/static"
        engine.build(DOCS, tmp_path / "index", encoder=encoder)
        with pytest.raises(EncoderMismatch):
            Engine.open(tmp_path / "index", encoder=StaticModel(seed=1))

    def test_the_library_itself(self, tmp_path):
        model2vec = pytest.importorskip("model2vec")
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(write_checkpoint(tmp_path / "checkpoint") / "tokenizer.json"))
        table = np.random.default_rng(0).standard_normal((tokenizer.get_vocab_size(), 12)).astype(np.float32)
        model = model2vec.StaticModel(table, tokenizer, {}, base_model_name="org/base")
        encoder = open_encoder(model)
        vector = model.encode(["the cat"])[0]
        np.testing.assert_allclose(encoder.encode_query("the cat"), vector / np.linalg.norm(vector), rtol=1e-5)
        assert FunctionEncoder(model).identity == encoder.identity


class TestLangChain:
    @pytest.mark.parametrize("attribute", ["model", "model_name", "model_id"])
    def test_its_length_is_found_by_one_call(self, attribute):
        model = Embeddings(**{attribute: "org/model"})
        encoder = FunctionEncoder(model)
        assert (encoder.name, encoder.dim, len(model.asked)) == ("org/model", 16, 1)

    def test_no_call_is_made_if_it_is_stated(self):
        for model in (Embeddings(model="m", dimensions=16), Embeddings(model="m", dimensions=None)):
            assert FunctionEncoder(model, dim=None if model.dimensions else 16).dim == 16
            assert model.asked == []

    def test_queries_are_texts_and_documents_lists(self):
        model = Embeddings(model="m", dimensions=16)
        encoder = FunctionEncoder(model)
        found = encoder.run_queries(["one", "two"])
        list(encoder.windows("a text"))
        assert model.asked == ["one", "two", ["a text"]]
        np.testing.assert_allclose(found, [encoder.encode_query("one"), encoder.encode_query("two")])

    def test_without_a_name_nothing_is_called(self):
        model = Embeddings()
        with pytest.raises(InvalidSetting, match=r"name is missing.*FunctionEncoder\(\.\.\., name='my-model'\)"):
            open_encoder(model)
        assert model.asked == []

    def test_a_call_that_fails_says_what_helps(self):
        model = Embeddings(model="m")
        model.embed_query = lambda text: 1 / 0
        with pytest.raises(EncodingFailed, match=r"state it with dim=.*ZeroDivisionError"):
            open_encoder(model)

    def test_the_library_itself(self, tmp_path):
        pytest.importorskip("langchain_core")
        from langchain_core.embeddings import DeterministicFakeEmbedding

        model = DeterministicFakeEmbedding(size=6)
        encoder = FunctionEncoder(model, name="fake", normalize=False)
        np.testing.assert_allclose(encoder.encode_query("a"), model.embed_query("a"), rtol=1e-6)
        engine.build(DOCS, tmp_path / "index", encoder=encoder)
        with Engine.open(tmp_path / "index", encoder=encoder) as index:
            assert index.search("a cat sat on the mat", k=1, mode="dense")[0].id == "cat"
