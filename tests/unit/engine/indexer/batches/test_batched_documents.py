"""Documents encoded by an embedding function: number of calls, order of documents, and failures."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import closing, contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.indexes.embedding_function import EmbeddingFunction
from support.indexes.format_samples import manifest

from quarry import engine
from quarry.engine import EncoderMismatch, EncodingFailed, Engine, FunctionEncoder, InvalidDocument
from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.documents.document import Document
from quarry.engine.encoding.batch_encoder import BatchLimits
from quarry.engine.indexer.batches.calls import Chunk, Part, PreparedDocument, divide_into_calls
from quarry.engine.indexer.batches.encode import DocumentEncoder, EncodedBatches
from quarry.engine.process.worker_pool import WorkerPool
from quarry.engine.representation.pieces import Pieces
from quarry.engine.scoring.metric import Metric
from quarry.engine.thresholds import Thresholds
from quarry.formats.errors import QuarryError

DIM = 16


def encoder_of(function, **settings):
    given = {"dim": DIM, "name": "words", "batch_size": 10, "passage_words": 3, **settings}
    return FunctionEncoder(function, **given)


def documents(n, n_passages=lambda number: number % 4 + 1, start=0):
    """Return documents of sentences of three words, each a passage; the words contain the document's number."""
    return [
        {"id": f"d{number}", "text": " ".join(f"a{number} b{part} end." for part in range(n_passages(number)))}
        for number in range(start, start + n)
    ]


def how_of(function, **settings):
    return DocumentEncoder(
        encoder_of(function, **settings),
        Pieces(),
        Analyzer("english"),
        Metric("ip", DIM, DIM, "none"),
        manifest().settings,
    )


def prepared_words(n_words, passage_words):
    encoder = encoder_of(EmbeddingFunction(DIM), passage_words=passage_words)
    return PreparedDocument(encoder.prepare("word " * n_words), None)


def n_passages_of(docs):
    return sum(doc["text"].count("end.") for doc in docs)


def n_calls(docs, batch_size=10):
    return -(-n_passages_of(docs) // batch_size)


def contents(index):
    """Return the text, best passage and dense score of each document for a query of one of its sentences."""
    found = []
    for number in range(len(index)):
        hit = index.search(f"a{number} b0 end.", k=1, mode="dense", explain=True)[0]
        found.append((hit.id, hit.text, f"{hit.score:.5f}", hit.matches[0].text if hit.matches else None))
    return found


@contextmanager
def opened(path, encoder):
    engine.build([], path, encoder=encoder)
    with Engine.open(path, writable=True, encoder=encoder) as index:
        yield index


class TestCalls:
    @pytest.mark.parametrize("in_flight", [1, 4])
    @pytest.mark.parametrize("shards", [None, 3])
    @pytest.mark.parametrize("n_docs", [0, 1, 4, 57])
    def test_all_calls_but_the_last_are_full(self, tmp_path, n_docs, shards, in_flight):
        function, docs = EmbeddingFunction(DIM), documents(n_docs)
        report = engine.build(
            docs, tmp_path / "index", encoder=encoder_of(function, max_in_flight=in_flight), shards=shards
        )
        assert len(function.calls) == n_calls(docs)
        assert sorted(function.sizes, reverse=True)[: len(function.sizes) - 1] == [10] * (len(function.sizes) - 1)
        assert sorted(itertools.chain(*function.calls)) == sorted(
            sentence + "end."
            for doc in docs
            for sentence in doc["text"].replace("end. ", "end.").split("end.")[:-1]
        )
        assert report.n_documents == n_docs
        assert report.n_tokens == 3 * n_passages_of(docs)

    def test_each_add_fills_its_own_batches(self, tmp_path):
        function, docs = EmbeddingFunction(DIM), documents(40)
        with opened(tmp_path / "index", encoder_of(function)) as index:
            source = iter(docs)
            for size in (1, 9, 0, 30):
                before, part = len(function.calls), list(itertools.islice(source, size))
                assert index.add(iter(part)) == size
                assert len(function.calls) - before == n_calls(part)
            index.commit()
            assert len(index) == 40

    def test_a_document_longer_than_a_batch_is_divided(self, tmp_path):
        function, docs = EmbeddingFunction(DIM), documents(3, lambda number: 25)
        with opened(tmp_path / "index", encoder_of(function)) as index:
            index.add(docs)
            index.commit()
            assert function.sizes == [10] * 7 + [5]
            assert index.search("a1 b24 end.", k=1, mode="dense", explain=True)[0].matches[0].text == "a1 b24 end."

    def test_calls_are_made_on_the_calling_thread_unless_several_are_in_flight(self, tmp_path):
        names = {}
        for in_flight in (1, 3):
            function = EmbeddingFunction(DIM, lambda number, texts: time.sleep(0.02))
            engine.build(
                documents(40), tmp_path / str(in_flight), encoder=encoder_of(function, max_in_flight=in_flight)
            )
            names[in_flight] = function.threads
            assert function.most_at_once <= in_flight
        assert names[1] == {threading.current_thread().name}
        assert threading.current_thread().name not in names[3]
        assert len(names[3]) > 1

    def test_the_index_is_the_same_however_it_is_batched(self, tmp_path):
        docs, found = documents(23), []
        for number, (size, in_flight, shards) in enumerate(
            [(1, 1, None), (7, 1, None), (1000, 1, 2), (5, 4, None)]
        ):
            encoder = encoder_of(EmbeddingFunction(DIM), batch_size=size, max_in_flight=in_flight)
            engine.build(docs, tmp_path / str(number), encoder=encoder, shards=shards)
            with Engine.open(tmp_path / str(number), encoder=encoder) as index:
                found.append(contents(index))
        assert found[0] == found[1] == found[2] == found[3]
        assert [each[0] for each in found[0]] == [doc["id"] for doc in docs]

    def test_passages_have_vectors_spans_and_explanations(self, tmp_path):
        encoder = encoder_of(EmbeddingFunction(DIM))
        report = engine.build(documents(8), tmp_path / "index", encoder=encoder)
        assert report.n_centroids == sum(n + (n > 1) for n in (1, 2, 3, 4)) * 2
        with Engine.open(tmp_path / "index", encoder=encoder) as index:
            match = index.search("a7 b2 end.", k=1, mode="dense", explain=True)[0].matches[0]
            assert match.text == "a7 b2 end."
            assert match.score == pytest.approx(1, abs=0.01)

    @pytest.mark.parametrize("representation", ["kmeans", "first_m", "mean", "cls", "pooled"])
    def test_every_representation_can_be_made_of_passages(self, tmp_path, representation):
        encoder = encoder_of(EmbeddingFunction(DIM))
        engine.build(documents(8), tmp_path / "index", encoder=encoder, representation=representation)
        with Engine.open(tmp_path / "index", encoder=encoder) as index:
            assert index.search("a4 b0 end.", k=1)[0].id == "d4"

    def test_an_index_with_lists_is_calibrated_with_few_calls(self, tmp_path):
        function = EmbeddingFunction(DIM)
        encoder = encoder_of(function, batch_size=100)
        docs = [*documents(700), {"id": "odd", "text": "?\n" * 40}]  # its passages may have no token
        engine.build(
            docs, tmp_path / "index", encoder=encoder, thresholds=Thresholds(calibration_queries=64, list_rows=500)
        )
        n_documents = -(-sum(encoder.prepare(doc["text"]).n_inputs for doc in docs) // 100)
        assert n_documents < len(function.calls) <= n_documents + 6


class TestBatches:
    @given(st.lists(st.integers(0, 7), max_size=30), st.integers(1, 5))
    def test_divided_documents_are_joined_again(self, lengths, batch_size):
        docs = [Document(str(n), "") for n in range(len(lengths))]
        parts = [Part(Chunk([doc]), prepared_words(n, 1)) for doc, n in zip(docs, lengths, strict=True)]
        calls = list(divide_into_calls(parts, BatchLimits(3, inputs=batch_size)))
        sizes = [sum(each.inputs.text.n_inputs for each in call) for call in calls]
        assert all(size == batch_size for size in sizes[:-1])
        assert sum(sizes) == sum(lengths)
        assert [each.chunk.documents[0] for call in calls for each in call if each.is_last] == docs
        passages = [p.start for call in calls for each in call for p in each.inputs.text.passages]
        assert passages == [5 * place for n in lengths for place in range(n)]

    @given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 5), st.integers(1, 60))
    def test_whole_documents_end_a_batch_by_number_or_tokens(self, lengths, n_documents, n_tokens):
        parts = [Part(Chunk([Document(str(n), "")]), prepared_words(n, 9)) for n in lengths]
        calls = list(divide_into_calls(parts, BatchLimits(n_documents, tokens=n_tokens)))
        assert [each for call in calls for each in call] == parts
        for call in calls:
            assert all(each.is_last for each in call)
            assert 1 <= len(call) <= n_documents
            assert sum(each.inputs.text.n_tokens for each in call[:-1]) < n_tokens

    def test_a_failing_source_gives_what_came_before(self, tmp_path):
        def failing():
            yield from documents(5)
            raise OSError("the disk is gone")

        function = EmbeddingFunction(DIM)
        with opened(tmp_path / "index", encoder_of(function)) as index:
            with pytest.raises(OSError, match="the disk is gone"):
                index.add(failing())
            index.commit()
            assert len(index) == 5


def failing_at(*numbers):
    def fail(number, texts):
        if number in numbers:
            raise TimeoutError("no answer")

    return fail


class TestFailingCalls:
    @pytest.mark.parametrize("in_flight", [1, 3])
    @pytest.mark.parametrize("number", [1, 4, 11])
    def test_what_came_before_is_kept_and_the_rest_is_named(self, tmp_path, number, in_flight):
        docs = documents(44)
        assert n_calls(docs) == 11
        sentences = [f"a{n} b{part} end." for n in range(44) for part in range(n % 4 + 1)]

        def fail(_, texts):  # calls of several threads begin in any order
            if sentences[(number - 1) * 10] in texts:
                raise TimeoutError("no answer")

        function = EmbeddingFunction(DIM, fail)
        encoder = encoder_of(function, max_in_flight=in_flight)
        with opened(tmp_path / "index", encoder) as index:
            source = iter(docs)
            with pytest.raises(EncodingFailed, match="TimeoutError: no answer") as error:
                index.add(source)
            n_kept = int(error.value.ids[0][1:])
            # Documents of earlier calls are complete; the first incomplete one has a passage in the failed call.
            assert n_passages_of(docs[:n_kept]) <= (number - 1) * 10 < n_passages_of(docs[: n_kept + 1])
            n_read = n_kept + len(error.value.ids)
            assert error.value.ids == tuple(doc["id"] for doc in docs[n_kept:n_read])
            assert f"not added: {n_read - n_kept}, the first is 'd{n_kept}'" in str(error.value)
            assert len(function.calls) <= number + in_flight - 1
            assert isinstance(error.value.__cause__, TimeoutError)
            function.fail = None
            assert index.add([*error.value.documents, *source]) == 44 - n_kept
            index.commit()
            assert len(index) == 44
            assert [each[0] for each in contents(index)] == [doc["id"] for doc in docs]

    @pytest.mark.parametrize("n_given", [1, 5, 300])
    @pytest.mark.parametrize("in_flight", [1, 3])
    def test_documents_with_vectors_keep_their_places_among_others(self, tmp_path, n_given, in_flight):
        """Documents with vectors are in no call, and those that wait for a call that fails are named, too."""
        docs = []
        for doc in documents(30):
            given = [{"id": f"{doc['id']}-{n}", "vectors": np.eye(DIM)[n % DIM]} for n in range(n_given)]
            docs += [doc, *given] if doc["id"] != "d7" else [doc]
        function = EmbeddingFunction(DIM, lambda _, texts: 1 / 0 if "a7 b0 end." in texts else None)
        with opened(tmp_path / "index", encoder_of(function, max_in_flight=in_flight)) as index:
            source = iter(docs)
            with pytest.raises(EncodingFailed) as error:
                index.add(source)
            again = [*error.value.documents, *source]
            n_kept = len(docs) - len(again)
            assert [each["id"] for each in docs[n_kept:]] == [each["id"] for each in again]
            assert n_kept <= [each["id"] for each in docs].index("d7")
            function.fail = None
            assert index.add(again) == len(again)
            index.commit()
            assert list(index.ids()) == [each["id"] for each in docs]

    def test_what_was_kept_can_be_committed_at_once(self, tmp_path):
        function = EmbeddingFunction(DIM, failing_at(3))
        with opened(tmp_path / "index", encoder_of(function)) as index:
            with pytest.raises(EncodingFailed) as error:
                index.add(documents(40))
            index.commit()
            assert len(index) == int(error.value.ids[0][1:]) > 0
            assert "d0" in index
            assert error.value.ids[0] not in index

    def test_documents_without_ids_can_be_added_again(self, tmp_path):
        function = EmbeddingFunction(DIM, failing_at(2))
        texts = [doc["text"] for doc in documents(20)]
        with opened(tmp_path / "index", encoder_of(function)) as index:
            with pytest.raises(EncodingFailed) as error:
                index.add(texts)
            assert [document.text for document in error.value.documents] == texts[-len(error.value.documents) :]
            index.add(error.value.documents)
            index.commit()
            assert len(index) == 20

    @pytest.mark.parametrize("shards", [None, 2])
    def test_a_build_leaves_no_index(self, tmp_path, shards):
        encoder = encoder_of(EmbeddingFunction(DIM, failing_at(4)))
        with pytest.raises(EncodingFailed, match="no answer"):
            engine.build(documents(40), tmp_path / "index", encoder=encoder, shards=shards)
        with pytest.raises(QuarryError):
            Engine.open(tmp_path / "index", encoder=encoder)
        engine.build(documents(40), tmp_path / "index", encoder=encoder, shards=shards)

    def test_a_sharded_index_keeps_what_came_before_too(self, tmp_path):
        function = EmbeddingFunction(DIM)
        encoder = encoder_of(function)
        engine.build([], tmp_path / "index", encoder=encoder, shards=2)
        with Engine.open(tmp_path / "index", writable=True, encoder=encoder) as index:
            function.fail = failing_at(len(function.calls) + 3)
            with pytest.raises(EncodingFailed) as error:
                index.add(source := iter(documents(40)))
            index.add([*error.value.documents, *source])
            index.commit()
            assert len(index) == 40

    @pytest.mark.parametrize("in_flight", [1, 3])
    def test_wrong_outputs_are_failures_of_the_call(self, tmp_path, in_flight):
        function = EmbeddingFunction(DIM, lambda number, texts: np.zeros((1, 3)) if number == 2 else None)
        with opened(tmp_path / "index", encoder_of(function, max_in_flight=in_flight)) as index:
            with pytest.raises(
                EncodingFailed, match=r"called with 10 texts, returned vectors of the wrong shape"
            ) as e:
                index.add(documents(40))
            assert e.value.ids

    def test_a_vector_that_is_not_finite_is_an_error_of_its_document(self, tmp_path):
        def embed(texts):
            found = EmbeddingFunction(DIM).vectors(texts)
            found[["d5" in text for text in texts]] = np.nan
            return found

        docs = [{"id": f"d{n}", "text": f"about d{n}"} for n in range(12)]
        for normalize in (True, False):
            encoder = encoder_of(embed, normalize=normalize)
            path = tmp_path / str(normalize)
            with pytest.raises(InvalidDocument, match=r"'d5'.*no usable vectors"):
                engine.build(docs, path, encoder=encoder)
            report = engine.build(docs, path, encoder=encoder, skip_invalid=True)
            assert (report.n_documents, report.n_skipped) == (11, 1)

    def test_blank_and_broken_documents_are_left_out_in_their_turn(self, tmp_path):
        function = EmbeddingFunction(DIM)
        docs = documents(20)
        docs[0]["text"] = docs[3]["text"] = docs[19]["text"] = "\u200b"
        with pytest.raises(InvalidDocument, match=r"'d0'.*no token"):
            engine.build(docs, tmp_path / "index", encoder=encoder_of(function))
        report = engine.build(docs, tmp_path / "index", encoder=encoder_of(function), skip_invalid=True)
        assert report.n_documents == 17
        assert [reason.split("'")[1] for reason in report.skipped] == ["d0", "d3", "d19"]

    def test_documents_that_are_all_blank_are_no_call(self, tmp_path):
        function = EmbeddingFunction(DIM)
        report = engine.build(["\u200b"] * 30, tmp_path / "index", encoder=encoder_of(function), skip_invalid=True)
        assert (report.n_documents, report.n_skipped, function.calls) == (0, 30, [])


class TestOpening:
    @pytest.mark.parametrize(
        "other", [{"name": "x"}, {"revision": "2"}, {"normalize": False}, {"dim": 8}], ids=str
    )
    def test_an_index_opens_only_with_the_same_vectors(self, tmp_path, other):
        encoder = encoder_of(EmbeddingFunction(DIM))
        engine.build(documents(3), tmp_path / "index", encoder=encoder)
        with pytest.raises(EncoderMismatch, match=r"expected words \(function .* dim=16 cosine\)"):
            Engine.open(tmp_path / "index", encoder=encoder_of(EmbeddingFunction(DIM), **other))
        with Engine.open(tmp_path / "index", writable=True) as index:
            assert index.search("a1", mode="lexical")
            with pytest.raises(EncoderMismatch):
                index.search("a1")
            with pytest.raises(EncoderMismatch):
                index.add(documents(1))
        again = encoder_of(EmbeddingFunction(DIM), batch_size=3, passage_words=50, max_in_flight=2)
        with Engine.open(tmp_path / "index", encoder=again, writable=True) as index:
            index.add(documents(2, start=3))
            index.commit()
            assert index.search("a4 b0 end.", k=1)[0].id == "d4"
            assert index.stats()["encoder"] == "words"


class TestConcurrency:
    @pytest.mark.parametrize("in_flight", [1, 4])
    def test_several_threads_add_and_search_at_once(self, tmp_path, in_flight):
        encoder = encoder_of(EmbeddingFunction(DIM), max_in_flight=in_flight)
        with opened(tmp_path / "index", encoder) as index:
            errors = []

            def work(number):
                try:
                    index.add(documents(15, start=15 * number))
                    index.search(f"a{number}")
                except Exception as error:
                    errors.append(error)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert errors == []
            index.commit()
            assert [each[0] for each in contents(index)] == [f"d{number}" for number in range(60)]

    @pytest.mark.parametrize("in_flight", [1, 4])
    def test_an_iterator_that_is_dropped_leaves_no_thread_that_works(self, in_flight):
        """An iterator that is dropped stops its threads, while calls that have begun finish."""
        function = EmbeddingFunction(DIM)
        how = how_of(function, max_in_flight=in_flight)
        before = threading.active_count()
        docs = (Document(doc["id"], doc["text"]) for doc in documents(10_000))
        with WorkerPool(2, "encode") as pool:
            encoded = EncodedBatches(docs, how, pool)
            assert next(encoded).ids[0] == "d0"
            del encoded
        end = time.monotonic() + 20
        while threading.active_count() > before and time.monotonic() < end:
            time.sleep(0.01)
        assert threading.active_count() == before
        assert len(function.calls) < 150

    def test_a_source_without_end_is_read_as_documents_are_added(self):
        how, read = how_of(EmbeddingFunction(DIM), max_in_flight=3), []

        def endless():
            for number in itertools.count():
                read.append(number)
                yield Document(str(number), f"a{number} b end.")

        with WorkerPool(2, "encode") as pool, EncodedBatches(endless(), how, pool) as encoded:
            for number in range(5):
                assert next(encoded).ids == [str(64 * number + place) for place in range(64)]
                assert len(read) <= 64 * (number + 1) + 5 * 10 + 3 * 10
        assert threading.active_count() < 20

    def test_closing_the_index_ends_an_add_on_another_thread(self, tmp_path):
        begun = threading.Event()

        def slow(number, texts):
            begun.set()
            time.sleep(0.02)

        function = EmbeddingFunction(DIM)
        encoder = encoder_of(function, max_in_flight=2)
        engine.build([], tmp_path / "index", encoder=encoder)
        index = Engine.open(tmp_path / "index", writable=True, encoder=encoder)
        function.fail = slow
        errors = []

        def add():
            try:
                index.add(documents(100_000))
            except engine.IndexClosed as error:
                errors.append(error)

        thread = threading.Thread(target=add)
        thread.start()
        begun.wait()
        with closing(index):
            pass
        thread.join(30)
        assert not thread.is_alive()
        assert len(errors) == 1


class TestOneDocumentAtATime:
    def test_a_failing_call_of_a_function_inside_another_encoder_names_the_documents_too(self, tmp_path):
        """The documents are named also if a custom encoder calls a function encoder for each document."""
        function = EmbeddingFunction(DIM)
        inner = encoder_of(function)

        class Outer:
            name = identity = "outer"
            dim, normalize, beta = DIM, True, None
            vector_kinds, trained_representation = inner.vector_kinds, None
            windows, encode_query = inner.windows, inner.encode_query

        with opened(tmp_path / "index", Outer()) as index:
            function.fail = lambda _, texts: 1 / 0 if "a7 b0 end." in texts else None
            source = iter(documents(40))
            with pytest.raises(EncodingFailed, match=r"the first is 'd7'.*ZeroDivisionError") as error:
                index.add(source)
            function.fail = None
            index.add([*error.value.documents, *source])
            index.commit()
            assert [each[0] for each in contents(index)] == [f"d{number}" for number in range(40)]
