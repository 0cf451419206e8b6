"""Functions as encoders: their arguments, valid results, and errors for invalid ones."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time

import numpy as np
import pytest
from support.indexes.embedding_function import EmbeddingFunction

from quarry import engine
from quarry.engine import EncodingFailed, FunctionEncoder, InvalidQuery, InvalidSetting
from quarry.engine.encoding.batch_encoder import BatchEncoder, DeviceBatchEncoder, encode_queries
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder

DIM = 16


def encoder_of(function=None, **settings):
    return FunctionEncoder(function or EmbeddingFunction(DIM), **{"dim": DIM, "name": "words", **settings})


class TestSettings:
    def test_it_is_an_encoder_in_batches(self):
        encoder = encoder_of()
        assert isinstance(encoder, Encoder)
        assert isinstance(encoder, BatchEncoder)
        assert not isinstance(encoder, DeviceBatchEncoder)
        assert open_encoder(encoder) is encoder
        assert (encoder.name, encoder.dim, encoder.normalize, encoder.beta) == ("words", DIM, True, None)
        assert "words" in repr(encoder)

    def test_its_identity_is_what_changes_vectors(self):
        same = [{}, {"batch_size": 3}, {"passage_words": 7}, {"max_in_flight": 2}, {"normalize": True}]
        assert len({encoder_of(**settings).identity for settings in same}) == 1
        others = [{}, {"name": "other"}, {"revision": "2"}, {"dim": 8}, {"normalize": False}]
        others += [{"name": "words2", "revision": ""}, {"name": "words", "revision": "2 "}]
        assert len({encoder_of(**settings).identity for settings in others}) == len(others)
        longest = encoder_of(name="n" * 256, revision="r" * 256, dim=1 << 16, normalize=False)
        assert len(longest.identity) <= 128

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("dim", 0), ("dim", True), ("dim", 16.0), ("dim", "16"), ("dim", (1 << 16) + 1),
            ("name", ""), ("name", " "), ("name", 5), ("name", "x" * 257), ("name", "\ud800"),
            ("revision", None), ("revision", 2), ("revision", "\udfff"),
            ("batch_size", 0), ("batch_size", -1), ("batch_size", 2.0), ("batch_size", None),
            ("passage_words", 0), ("passage_words", "100"), ("normalize", 1), ("normalize", "no"),
            ("max_in_flight", 0), ("max_in_flight", True), ("max_in_flight", 10**6),
        ],
    )  # fmt: skip
    def test_a_value_out_of_range_is_named(self, setting, value):
        with pytest.raises(InvalidSetting, match=setting):
            encoder_of(**{setting: value})

    @pytest.mark.parametrize("missing", ["dim", "name"])
    def test_a_function_does_not_state_its_length_or_name(self, missing):
        with pytest.raises(InvalidSetting, match=rf"{missing} is missing.*FunctionEncoder\(\.\.\., {missing}="):
            FunctionEncoder(EmbeddingFunction(), **{"dim": DIM, "name": "words", missing: None})
        with pytest.raises(InvalidSetting, match="FunctionEncoder"):
            open_encoder(EmbeddingFunction())

    @pytest.mark.parametrize("source", [None, 5, "path", [len], EmbeddingFunction, object()])
    def test_what_is_no_function_is_refused(self, source):
        with pytest.raises(InvalidSetting, match="not an embedding function"):
            FunctionEncoder(source, dim=DIM, name="words")
        with pytest.raises(InvalidSetting, match="embed_queries"):
            FunctionEncoder(EmbeddingFunction(), "no function", dim=DIM, name="words")

    def test_an_async_function_is_refused_with_a_remedy(self):
        async def embed(texts):
            return texts

        class Model:
            async def __call__(self, texts):
                return texts

        async def embed_each(texts):
            for text in texts:
                yield text

        for source in (embed, Model(), embed_each):
            with pytest.raises(InvalidSetting, match=r"async.*asyncio\.run"):
                encoder_of(source)
            with pytest.raises(InvalidSetting, match=r"async.*asyncio\.run"):
                FunctionEncoder(EmbeddingFunction(), source, dim=DIM, name="words")


class TestVectors:
    @pytest.mark.parametrize("normalize", [True, False])
    def test_passages_have_the_vectors_of_the_function(self, normalize):
        function = EmbeddingFunction(DIM)
        encoder = encoder_of(function, passage_words=4, normalize=normalize)
        windows = list(encoder.windows("One two three. Four five six. Seven eight"))
        expected = function.vectors(["One two three.", "Four five six.", "Seven eight"]).astype(np.float64)
        if normalize:
            expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        found = np.concatenate([window.values for window in windows])
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert [(int(each.starts[0]), int(each.ends[0])) for each in windows] == [(0, 14), (15, 29), (30, 41)]
        for window in windows:
            np.testing.assert_array_equal(window.pooled, window.values[0])
            np.testing.assert_array_equal(window.text_mean, window.values[0])

    def test_queries_have_a_function_of_their_own(self):
        documents, queries = EmbeddingFunction(DIM), EmbeddingFunction(DIM)
        encoder = FunctionEncoder(documents, queries, dim=DIM, name="words", passage_words=2)
        encoder.encode_query("a query is never cut, however long")
        assert queries.calls == [["a query is never cut, however long"]]
        assert documents.calls == []
        list(encoder.windows("a document"))
        assert documents.calls == [["a document"]]

    def test_without_one_the_function_of_documents_is_used(self):
        function = EmbeddingFunction(DIM)
        encoder = encoder_of(function)
        vector = encoder.encode_query("one two")
        np.testing.assert_allclose(vector, next(encoder.windows("one two")).values[0])
        assert np.linalg.norm(vector) == pytest.approx(1)

    @pytest.mark.parametrize("in_flight", [1, 3])
    def test_several_queries_are_encoded_in_batches_and_in_order(self, in_flight):
        function = EmbeddingFunction(DIM)
        encoder = encoder_of(function, batch_size=4, max_in_flight=in_flight)
        texts = [f"query number {number}" for number in range(10)]
        found = encode_queries(encoder, texts, 2)
        assert sorted(function.sizes) == [2, 4, 4]
        np.testing.assert_array_equal(found, np.stack([encoder.encode_query(text) for text in texts]))
        assert encoder.run_queries([]).shape == (0, DIM)

    @pytest.mark.parametrize("text", ["", " \n", "\u200b", "\x00"])
    def test_an_empty_query_is_no_call(self, text):
        function = EmbeddingFunction(DIM)
        with pytest.raises(InvalidQuery, match="no token"):
            encoder_of(function).encode_query(text)
        with pytest.raises(InvalidQuery, match="query 1: the query has no token"):
            encode_queries(encoder_of(function), ["fine", text], 1)
        assert list(encoder_of(function).windows(text)) == []
        assert function.calls == []

    @pytest.mark.parametrize(
        "convert",
        [
            lambda rows: rows.tolist(),
            lambda rows: tuple(map(tuple, rows.tolist())),
            list,
            iter,
            lambda rows: (row for row in rows),
            lambda rows: rows.astype(np.float64),
            lambda rows: rows.astype(">f4"),
            np.asfortranarray,
            lambda rows: np.round(rows * 100).astype(np.int8),
            lambda rows: (rows * 100).astype(np.float16),
            lambda rows: rows.astype(np.float64) * 1e200,
        ],
        ids=["lists", "tuples", "arrays", "map", "generator", "f8", "big", "fortran", "int8", "f2", "large"],
    )
    def test_vectors_may_be_of_any_type_of_numbers(self, convert):
        function = EmbeddingFunction(DIM)
        encoder = encoder_of(lambda texts: convert(function(texts)))
        expected = encoder_of(function).encode_query("some words here")
        np.testing.assert_allclose(encoder.encode_query("some words here"), expected, atol=0.02)

    def test_torch_tensors_are_arrays_too(self):
        torch = pytest.importorskip("torch")
        function = EmbeddingFunction(DIM)
        encoder = encoder_of(lambda texts: torch.from_numpy(function(texts)))
        np.testing.assert_array_equal(encoder.encode_query("a b"), encoder_of(function).encode_query("a b"))
        gradients = encoder_of(lambda texts: torch.ones(len(texts), DIM, requires_grad=True))
        with pytest.raises(EncodingFailed, match="cannot be converted"):
            gradients.encode_query("a b")

    def test_a_buffer_that_the_function_uses_again_is_copied(self):
        buffer = np.zeros((1, DIM), np.float32)

        def embed(texts):
            buffer[:] = len(texts[0])
            return buffer

        encoder = encoder_of(embed, normalize=False)
        first = encoder.encode_query("ab")
        encoder.encode_query("abcd")
        assert set(first.tolist()) == {2.0}

    def test_the_list_of_texts_is_the_functions_own(self):
        function = EmbeddingFunction(DIM)

        def embed(texts):
            found = function(list(texts))
            texts.clear()
            return found

        assert len(list(encoder_of(embed, passage_words=1).windows("one two three"))) == 3

    def test_zeros_stay_zeros(self):
        encoder = encoder_of(lambda texts: np.zeros((len(texts), DIM)))
        assert not encoder.encode_query("a").any()


class Response:
    """The response of a service, instead of its vectors."""


WRONG = {
    "too few": (
        lambda rows: rows[:-1],
        r"wrong shape; expected an array of shape \(3, 16\).*found shape \(2, 16\)",
    ),
    "too many": (lambda rows: np.concatenate([rows, rows]), r"found shape \(6, 16\)"),
    "other length": (lambda rows: rows[:, :-1], r"found shape \(3, 15\)"),
    "one vector": (lambda rows: rows[0], r"found shape \(16,\)"),
    "three dimensions": (lambda rows: rows[np.newaxis], r"found shape \(1, 3, 16\)"),
    "no rows": (lambda rows: [], r"found shape \(0,\)"),
    "none": (lambda rows: None, "returned no numbers.*found NoneType"),
    "masked": (lambda rows: np.ma.masked_array(rows, rows > 0), "returned masked numbers.*found MaskedArray"),
    "masked rows": (lambda rows: list(np.ma.masked_array(rows, rows > 0)), "masked numbers.*found list"),
    "a mapping": (lambda rows: {"data": rows}, "found dict"),
    "a response": (lambda rows: Response(), "found Response"),
    "texts": (lambda rows: ["a", "b", "c"], "found list of <U1"),
    "booleans": (lambda rows: rows > 0, "found ndarray of bool"),
    "complex numbers": (lambda rows: rows + 1j, "complex"),
    "rows of different lengths": (lambda rows: [[1.0], [1.0, 2.0], []], "cannot be converted to an array"),
}


class TestFailures:
    @pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
    def test_invalid_results_are_refused_by_name(self, change, message):
        function = EmbeddingFunction(DIM)
        encoder = encoder_of(lambda texts: change(function(texts)), passage_words=1)
        with pytest.raises(
            EncodingFailed, match=f"embed_documents of encoder 'words', called with 3 texts.*{message}"
        ):
            list(encoder.windows("one two three"))

    def test_the_error_of_the_function_is_the_cause(self):
        def embed(texts):
            raise TimeoutError("no answer")

        with pytest.raises(
            EncodingFailed, match=r"embed_queries.*1 texts, failed; found TimeoutError: no answer"
        ) as error:
            encoder_of(embed).encode_query("a")
        assert isinstance(error.value.__cause__, TimeoutError)
        copy = pickle.loads(pickle.dumps(error.value))
        assert (str(copy), copy.documents, copy.ids) == (str(error.value), (), ())

    @pytest.mark.parametrize("error", [StopIteration("x"), InvalidQuery("x"), MemoryError("x"), OSError(5, "x")])
    def test_any_error_is_one_of_encoding(self, error):
        def embed(texts):
            raise error

        with pytest.raises(EncodingFailed, match=type(error).__name__):
            encoder_of(embed).encode_query("a")

    def test_a_generator_that_fails_is_read_inside_the_call(self):
        def embed(texts):
            yield np.zeros(DIM)
            raise TimeoutError("no answer")

        with pytest.raises(EncodingFailed, match="no answer"):
            encoder_of(embed).encode_query("a")

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("normalize", [True, False])
    def test_a_query_whose_vector_is_not_finite_is_refused(self, tmp_path, value, normalize):
        bad = EmbeddingFunction(DIM, lambda number, texts: np.full((len(texts), DIM), value))
        given = FunctionEncoder(EmbeddingFunction(DIM), bad, dim=DIM, name="words", normalize=normalize)
        engine.build(["one text"], tmp_path / "index", encoder=given)
        with engine.Engine.open(tmp_path / "index", encoder=given) as index:
            with pytest.raises(InvalidQuery, match="not finite"):
                index.search("text")
            assert index.search("text", mode="lexical")

    def test_an_interrupt_is_passed_on(self):
        def embed(texts):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            encoder_of(embed).encode_query("a")


class TestThreads:
    @pytest.mark.parametrize("most", [1, 3])
    def test_no_more_calls_at_once_than_allowed_from_any_number_of_threads(self, most):
        function = EmbeddingFunction(DIM, lambda number, texts: time.sleep(0.005))
        encoder = encoder_of(function, max_in_flight=most)
        threads = [threading.Thread(target=encoder.encode_query, args=(f"text {n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(function.calls) == 8
        assert function.most_at_once <= most

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_does_not_wait_for_a_call_of_the_parent(self):
        begun, go_on = threading.Event(), threading.Event()

        def embed(texts):
            if texts == ["slow"]:
                begun.set()
                go_on.wait()
            return np.ones((len(texts), DIM))

        encoder = encoder_of(embed)
        thread = threading.Thread(target=encoder.encode_query, args=("slow",))
        thread.start()
        begun.wait()
        child = os.fork()
        if not child:
            encoder.encode_query("fast")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        go_on.set()
        thread.join()

    def test_it_keeps_no_threads(self):
        before = threading.active_count()
        encoder = encoder_of(max_in_flight=4, batch_size=1)
        encoder.run_queries([f"text {n}" for n in range(9)])
        del encoder
        gc.collect()
        assert threading.active_count() == before


@pytest.mark.parametrize("metric", ["cosine", "ip"])
def test_a_vector_of_zeros_is_like_nothing(tmp_path, metric):
    def embed(texts):
        return [[0, 0, 0] if "unknown" in text else [1, len(text), 2] for text in texts]

    encoder = FunctionEncoder(embed, name="zeros", dim=3)
    docs = [{"id": "zero", "text": "unknown"}, {"id": "other", "text": "A text."}]
    engine.build(docs, tmp_path / "index", encoder=encoder, metric=metric)
    with engine.Engine.open(tmp_path / "index", encoder=encoder) as index:
        assert {hit.id: hit.score for hit in index.search("hello", mode="dense")}["zero"] == 0
        assert {hit.score for hit in index.search("unknown", mode="dense")} == {0}
        assert index.search("unknown", mode="hybrid")[0].id == "zero"  # found by its word
        index.verify()
