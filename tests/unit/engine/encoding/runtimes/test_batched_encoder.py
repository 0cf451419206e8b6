"""Texts in a batch have the same vectors as single texts, and documents keep their order."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.models.tiny_checkpoint import write_checkpoint

from quarry import engine
from quarry.engine import Engine
from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.documents.document import Document
from quarry.engine.encoding.batch_encoder import encode_queries
from quarry.engine.encoding.runtimes.batched_encoder import BatchedEncoder, batches
from quarry.engine.encoding.runtimes.onnx_encoder import OnnxEncoder
from quarry.engine.encoding.runtimes.onnx_runner import OnnxRunner
from quarry.engine.indexer.batches.encode import DocumentEncoder, EncodedBatches
from quarry.engine.process.worker_pool import WorkerPool
from quarry.engine.representation.pieces import Pieces
from quarry.engine.scoring.metric import Metric
from quarry.exporters.export import export
from quarry.formats.errors import InvalidDocument, InvalidQuery

TEXTS = ["the cat sat.", "a", "abc def ghi. " * 30, "x y z", "dogs and cats! " * 3, "one more sentence here."]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    """Open the same bundle for single texts and for batches."""
    pytest.importorskip("torch", reason="batch runners return torch tensors")
    folder = tmp_path_factory.mktemp("batched")
    prompts = {"query": "q: ", "document": "d: "}
    bundle = export(write_checkpoint(folder / "checkpoint", prompts=prompts), folder / "bundle", "fp32")
    return OnnxEncoder(bundle), BatchedEncoder(bundle, partial(OnnxRunner, device="cpu"))


def test_texts_run_together_have_the_vectors_they_have_alone(encoders):
    alone, together = encoders
    found = together.run([together.prepare(text) for text in TEXTS])
    assert len(found[2]) > 1  # some texts have several windows
    for text, windows in zip(TEXTS, found, strict=True):
        expected = list(alone.windows(text))
        assert len(windows) == len(expected)
        for window, right in zip(windows, expected, strict=True):
            np.testing.assert_array_equal(window.starts, right.starts)
            np.testing.assert_array_equal(window.ends, right.ends)
            np.testing.assert_allclose(window.values, right.values, atol=2e-5)
            np.testing.assert_allclose(window.text_mean, right.text_mean, atol=2e-5)
            np.testing.assert_allclose(window.first, right.first, atol=2e-5)


def test_queries_have_the_same_vectors_one_by_one_and_on_threads(encoders):
    alone, together = encoders
    expected = np.stack([alone.encode_query(text) for text in TEXTS])
    np.testing.assert_allclose(encode_queries(together, TEXTS, 3).host, expected, atol=2e-5)
    np.testing.assert_array_equal(encode_queries(alone, TEXTS, 3), expected)
    np.testing.assert_array_equal(encode_queries(alone, TEXTS, 1), expected)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_query_without_a_token_is_named(encoders, threads):
    with pytest.raises(InvalidQuery, match="query 1: the query has no token"):
        encode_queries(encoders[0], ["fine", " ", "fine", ""], threads)


def documents(n):
    return [Document(f"d{number}", f"text {number} " + "word " * (number % 7)) for number in range(n)]


@contextmanager
def encoded(encoder, given, **options):
    how = DocumentEncoder(encoder, Pieces(), Analyzer("english"), Metric("ip", encoder.dim, encoder.dim, "none"))
    with WorkerPool(2, "encode") as pool, EncodedBatches(given, how, pool, **options) as found:
        yield found


def ids_until_error(batches, error, match):
    found = []
    with pytest.raises(error, match=match):
        found.extend(doc_id for batch in batches for doc_id in batch.ids)
    return found


@pytest.mark.parametrize("n", [0, 1, 255, 256, 600])
def test_documents_come_out_in_order(encoders, n):
    with encoded(encoders[1], documents(n)) as found:
        assert [doc_id for batch in found for doc_id in batch.ids] == [each.id for each in documents(n)]


def test_documents_equal_those_of_an_encoder_of_single_texts(encoders):
    with encoded(encoders[0], documents(40)) as alone, encoded(encoders[1], documents(40)) as together:
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_allclose(one.vectors, other.vectors, atol=2e-5)
            assert one.counts.tolist() == other.counts.tolist()
            assert (one.spans, one.terms, one.n_tokens) == (other.spans, other.terms, other.n_tokens)


def with_bad_ones():
    return [*documents(300), Document("blank", "\u200b"), Document("odd", "\ud800"), Document("last", "last")]


def test_documents_that_cannot_be_encoded_are_reported_in_order(encoders):
    with encoded(encoders[1], with_bad_ones()) as found:
        assert ids_until_error(found, InvalidDocument, "'blank'") == [each.id for each in documents(300)]


def test_documents_that_cannot_be_encoded_can_be_skipped(encoders):
    skipped = []
    with encoded(encoders[1], with_bad_ones(), on_invalid=skipped.append) as encoding:
        found = [doc_id for batch in encoding for doc_id in batch.ids]
    assert found[-1] == "last"
    assert len(found) == 301
    assert [str(error).split(":")[0] for error in skipped] == ["document 'blank'", "document 'odd'"]


@pytest.mark.parametrize("n", [3, 256, 300])
def test_changes_before_a_failure_are_kept(encoders, n):
    def failing():
        yield from documents(n)
        raise OSError("the disk is gone")

    with encoded(encoders[1], failing()) as found:
        assert ids_until_error(found, OSError, "the disk is gone") == [each.id for each in documents(n)]


def test_an_index_built_in_batches_opens_with_the_encoder_of_single_texts(encoders, tmp_path):
    alone, together = encoders
    engine.build(
        [{"id": each.id, "text": each.text} for each in documents(50)], tmp_path / "index", encoder=together
    )
    with Engine.open(tmp_path / "index", encoder=alone) as index:
        assert index.search("text 7 word", k=3)[0].id in {each.id for each in documents(50)}


@given(st.lists(st.integers(1, 40_000), max_size=60), st.integers(1, 32))
def test_batches_hold_every_text_once_and_keep_their_bounds(lengths, max_batch):
    found = list(batches(lengths, max_batch))
    assert sorted(member for batch in found for member in batch) == list(range(len(lengths)))
    for batch in found:
        assert 1 <= len(batch) <= max_batch
        assert len(batch) == 1 or len(batch) * max(lengths[member] for member in batch) <= 16_384
