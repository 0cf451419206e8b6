"""Texts in a batch have the same vectors as single texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.models.tiny_checkpoint import write_checkpoint

from quarry.engine.encoding.batch_encoder import encode_queries
from quarry.engine.encoding.runtimes.batched_encoder import batches
from quarry.engine.encoding.runtimes.onnx_encoder import OnnxEncoder
from quarry.exporters.export import export
from quarry.formats.errors import InvalidQuery

TEXTS = ["the cat sat.", "a", "abc def ghi. " * 30, "x y z", "dogs and cats! " * 3, "one more sentence here."]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    """Open the same bundle for single texts and for batches."""
    pytest.importorskip("torch", reason="batch runners return torch tensors")
    from support.models.batched import batched_encoder

    folder = tmp_path_factory.mktemp("batched")
    prompts = {"query": "q: ", "document": "d: "}
    bundle = export(write_checkpoint(folder / "checkpoint", prompts=prompts), folder / "bundle", "fp32")
    return OnnxEncoder(bundle), batched_encoder(bundle.path)


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


@given(st.lists(st.integers(1, 40_000), max_size=60), st.integers(1, 32))
def test_batches_hold_every_text_once_and_keep_their_bounds(lengths, max_batch):
    found = list(batches(lengths, max_batch))
    assert sorted(member for batch in found for member in batch) == list(range(len(lengths)))
    for batch in found:
        assert 1 <= len(batch) <= max_batch
        assert len(batch) == 1 or len(batch) * max(lengths[member] for member in batch) <= 16_384
