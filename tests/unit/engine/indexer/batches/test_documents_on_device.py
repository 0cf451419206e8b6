"""Documents of an encoder in batches, on torch's CPU device: their order, vectors and failures."""

from __future__ import annotations

import logging
from contextlib import contextmanager

import numpy as np
import pytest
from support.indexes.format_samples import manifest
from support.models.tiny_checkpoint import write_checkpoint

from quarry import engine
from quarry.engine import Cls, Engine, FirstM, KMeans, Mean, Pieces, Pooled
from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.documents.document import Document
from quarry.engine.indexer.batches.calls import DocumentGroups
from quarry.engine.indexer.batches.encode import DocumentEncoder, EncodedBatches
from quarry.engine.process.worker_pool import WorkerPool
from quarry.engine.scoring.metric import Metric
from quarry.exporters.export import export
from quarry.formats.errors import InvalidDocument

torch = pytest.importorskip("torch", reason="batch runners return torch tensors")

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    """Open the same bundle for single texts and for batches."""
    from support.models.batched import batched_encoder

    folder = tmp_path_factory.mktemp("batched")
    prompts = {"query": "q: ", "document": "d: "}
    bundle = export(write_checkpoint(folder / "checkpoint", prompts=prompts), folder / "bundle", "fp32")
    return engine.open_encoder(bundle.path, runtime="onnx-cpu"), batched_encoder(bundle.path)


def documents(n):
    return [Document(f"d{number}", f"text {number} " + "word " * (number % 7)) for number in range(n)]


@contextmanager
def encoded(encoder, given, representation=Pieces(), **options):  # noqa: B008
    metric = Metric("ip", encoder.dim, encoder.dim, "none")
    how = DocumentEncoder(encoder, representation, Analyzer("english"), metric, manifest().settings)
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


@pytest.mark.parametrize("representation", [Pieces(), KMeans(3), FirstM(3), Mean(), Cls(), Pooled()], ids=repr)
def test_every_representation(encoders, representation, repository):
    encoder = encoders[1]
    paragraphs = [each for each in (repository / "LICENSE").read_text("utf-8").split("\n\n") if each.strip()]
    texts = [*paragraphs[:12], "one", "\u200b", " ".join(paragraphs)[:4000]]
    skipped = []
    given = [Document(str(number), text) for number, text in enumerate(texts)]
    with encoded(encoder, given, representation, on_invalid=skipped.append) as batches:
        (found,) = batches
    assert len(skipped) == 1
    windows = [each for each in encoder.run([encoder.prepare(text) for text in texts]) if each]
    vectors = np.split(found.vectors, np.cumsum(found.counts)[:-1])
    for text, values, n_tokens, expected in zip(found.texts, vectors, found.n_tokens, windows, strict=True):
        right = representation.represent(text, expected, encoder.normalize)
        np.testing.assert_allclose(values, right.values, atol=2e-5)
        assert n_tokens == sum(len(window.values) for window in expected)


def test_a_device_that_fails_is_done_without(encoders, monkeypatch, caplog):
    encoder = encoders[1]
    groups = DocumentGroups(encoder, Pieces())
    prepared = [groups.prepare(text) for text in ("one text.", "another one")]
    expected = groups.run(prepared)

    def full(_):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(encoder, "run_on_device", full)
    with caplog.at_level(logging.WARNING):
        for each, right in zip(groups.run(prepared), expected, strict=True):
            found = Pieces().represent("one text.", each, encoder.normalize)
            np.testing.assert_allclose(found.values, right.values, atol=2e-6)
    assert "out of memory" in caplog.text
    groups.run(prepared)
    assert caplog.text.count("out of memory") == 1
