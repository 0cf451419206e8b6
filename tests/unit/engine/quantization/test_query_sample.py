"""Sampling of texts that resemble queries, and their vectors."""

from __future__ import annotations

import logging
import random

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry.engine.quantization.query_sample import QuerySample, sample_vectors
from quarry.formats.errors import InvalidQuery

SENTENCES = [
    "A sourdough loaf rises slowly because wild yeast works at its own pace and at no other.",
    "Lava flows!",
    "The same side of the moon always faces the earth, as far as we know.",
    "Why? Because.",
]
TEXT = " ".join(SENTENCES)


def sampled(documents, seed=0, **options):
    sample = QuerySample(seed, **options)
    for title, text in documents:
        sample.add(title, text)
    return sample.texts


def test_a_sentence_is_cut_short():
    """A sample is the first 8 to 16 words of one sentence, or all of it; tiny sentences are skipped."""
    found = set(sampled([("", TEXT)] * 500))
    long = [SENTENCES[0], SENTENCES[2]]
    assert all(any(sentence.startswith(text) for sentence in long) for text in found)
    assert {len(text.split()) for text in found if text.startswith("A sourdough")} == set(range(8, 17))
    assert {text for text in found if text.startswith("The same")} >= {SENTENCES[2]}


def test_a_quarter_are_titles():
    texts = sampled([("Of bread and stone", TEXT)] * 512)
    assert 0.18 < texts.count("Of bread and stone") / 512 < 0.32
    assert "Of bread and stone" not in sampled([("", TEXT)] * 512)


def test_long_titles_are_cut():
    long = " ".join(map(str, range(10_000)))
    assert {len(text.split()) for text in sampled([(long, "")] * 400)} <= {0, 30}


@pytest.mark.parametrize("text", ["", " ", "\n\n", "...", "word", "一", "\x00", "\U0001f600" * 5000])
def test_odd_texts(text):
    assert all(found in (text, text.strip()) or found in text for found in sampled([(text, text)] * 50))


def test_scripts_without_spaces():
    """Without spaces, three characters count as a word, and sentences end at the script's full stop."""
    texts = sampled([("", "面包在烤箱里慢慢变成金黄色。" * 30)] * 200)
    assert set(texts) == {"面包在烤箱里慢慢变成金黄色。"}
    texts = sampled([("", "面包在烤箱里慢慢变成金黄色" * 30)] * 200)
    assert {len(text) for text in texts} <= {3 * n for n in range(8, 17)} | {3 * n - 2 for n in range(8, 18)}


def test_any_part_of_a_long_document():
    """Samples are from any part of a long document and begin at the beginning of a sentence."""
    text = " ".join(f"The sentence of number {n} ends here at last." for n in range(5000))
    texts = sampled([("", text)] * 512)
    numbers = [int(text.split()[4]) for text in texts if len(text.split()) > 4]
    assert len(numbers) > 450  # the others end with the sampled part
    assert all(text.startswith("The sentence") for text in texts)
    assert min(numbers) < 500
    assert max(numbers) > 4500


def test_the_same_documents_give_the_same_texts():
    documents = [(f"title {n}", f"{TEXT} {n}.") for n in range(3000)]
    assert sampled(documents, 3) == sampled(documents, 3) != sampled(documents, 4)
    sampled(documents[:5], (1 << 63) - 1)


def test_every_document_is_as_likely():
    counts = np.zeros(40)
    for seed in range(3000):
        for text in sampled([("", f"document {n} of them") for n in range(40)], seed, n_texts=8):
            counts[int(text.split()[1])] += 1
    assert counts.sum() == 3000 * 8
    assert abs(counts / 600 - 1).max() < 0.2


@pytest.mark.parametrize("n", [1, 511, 512, 513, 100_000])
def test_places_where_documents_are_at_hand(n):
    places = QuerySample.places(n)
    assert len(places) == len(set(places)) == min(n, 512)
    assert places == sorted(places)
    assert 0 <= places[0] <= places[-1] < n
    assert max(np.diff([0, *places, n])) <= -(-n // len(places)) + 1


class TestVectors:
    def test_a_few_repeated_texts_are_not_enough(self):
        texts = [f"word{n % 4}" for n in range(512)]
        assert sample_vectors(WordEncoder(), texts, 2, least=5).shape == (0, 32)
        assert sample_vectors(WordEncoder(), [*texts, "other"], 2, least=5).shape == (5, 32)

    def test_they_are_those_of_queries(self):
        encoder = WordEncoder()
        vectors = sample_vectors(encoder, ["one two", "three"], 2, least=1)
        np.testing.assert_array_equal(vectors, np.stack([encoder.encode_query(t) for t in ("one two", "three")]))

    def test_texts_without_a_vector_are_left_out(self):
        vectors = sample_vectors(WordEncoder(), ["one", " ", "\ud800", "two"], 2, least=1)
        expected = np.stack([WordEncoder().encode_query(text) for text in ("one", "two")])
        np.testing.assert_array_equal(vectors, expected)
        assert sample_vectors(WordEncoder(), [" "], 1, least=1).shape == (0, 32)
        assert sample_vectors(WordEncoder(), [], 1, least=1).shape == (0, 32)

    def test_no_encoder(self):
        assert len(sample_vectors(None, ["one"], 1, least=1)) == 0

    @pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
    def test_numbers_that_no_query_may_have(self, value):
        class Odd(WordEncoder):
            def encode_query(self, text):
                return super().encode_query(text) if text == "good" else np.full(32, value, np.float32)

        np.testing.assert_array_equal(
            sample_vectors(Odd(), ["bad", "good"], 1, least=1), WordEncoder().encode_query("good")[None]
        )

    @pytest.mark.parametrize("error", [RuntimeError("out of order"), NotImplementedError(), MemoryError()])
    def test_a_failing_encoder_does_not_fail_the_build(self, caplog, error):
        class Broken(WordEncoder):
            def encode_query(self, text):
                raise error

        with caplog.at_level(logging.WARNING):
            assert len(sample_vectors(Broken(), ["one", "two"], 2, least=1)) == 0
        assert "not calibrated with queries" in caplog.text

    def test_an_interrupt_is_none_of_these(self):
        class Interrupted(WordEncoder):
            def encode_query(self, text):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sample_vectors(Interrupted(), ["one"], 1, least=1)

    def test_an_encoder_may_refuse_some(self):
        class Picky(WordEncoder):
            def encode_query(self, text):
                if random.Random(text).random() < 0.5:
                    raise InvalidQuery("no")
                return super().encode_query(text)

        texts = [f"word{n}" for n in range(100)]
        assert 20 < len(sample_vectors(Picky(), texts, 2, least=1)) < 80
