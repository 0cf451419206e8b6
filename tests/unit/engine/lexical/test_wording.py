"""How closely texts follow the wording of a query, against slow computations of the definitions."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import numpy as np
import pytest

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.analysis.words import is_unspaced
from quarry.engine.lexical.proximity import Proximity
from quarry.engine.lexical.wording import ExactWords, Wording, exact_words


def slow_exact(query, weights, words):
    """Compute the score from sets of words and of pairs."""
    weighted = {word for word in query if word in weights}
    pairs = set(pairwise(query))
    shares = []
    if weighted:
        shares.append(
            sum(weights[word] for word in weighted & set(words)) / sum(weights[word] for word in weighted)
        )
    if pairs:
        shares.append(len(pairs & set(pairwise(words))) / len(pairs))
    return sum(shares) / len(shares)


def slow_words(text):
    """Split a text character by character."""
    words, run = [], ""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    for character in folded:
        if character in "\u00ad\u200c\u200d" or "\ufe00" <= character <= "\ufe0f":
            continue
        in_word = character.isalnum() or unicodedata.category(character)[0] == "M"
        if in_word and not is_unspaced(character):
            run += character
            continue
        words += [run] if run else []
        words += [character] if in_word else []
        run = ""
    return [*words, run] if run else words


def test_exact_words_by_hand():
    exact = ExactWords(["the", "red", "ports", "of", "the", "red", "sea"], {"red": 2.0, "ports": 3.0, "sea": 1.0})
    assert exact.score(["the", "red", "ports", "of", "the", "red", "sea"]) == 1.0
    # pairs: the red, red ports, ports of, of the, red sea
    assert exact.score(["of", "the", "red", "port"]) == pytest.approx((2 / 6 + 2 / 5) / 2)
    assert exact.score(["sea", "red"]) == pytest.approx((3 / 6 + 0) / 2)
    assert exact.score(["seared", "portside"]) == exact.score([]) == 0.0


def test_one_share_alone():
    assert ExactWords(["ports"], {"ports": 2.0}).score(["ports", "of"]) == 1.0
    only_pairs = ExactWords(["to", "be", "or"], {})
    assert only_pairs.is_defined
    assert only_pairs.score(["be", "or", "to", "be"]) == 1.0
    assert not ExactWords(["unknown"], {}).is_defined
    assert not ExactWords([], {}).is_defined


@pytest.mark.parametrize("seed", range(20))
def test_exact_words_against_the_definition(seed):
    rng = np.random.default_rng(seed)
    words = [f"{letter}{number}" for letter in "ab" for number in range(15)]  # a1 begins a10
    weights = {word: float(rng.uniform(0.1, 9)) for word in words[:: rng.integers(1, 4)]}
    for length in (2, 5, 12):
        query = rng.choice(words, length).tolist()
        exact = ExactWords(query, weights)
        for n_words in (0, 1, 5, 40, 200):
            text = rng.choice(words, n_words).tolist()
            assert exact.score(text) == pytest.approx(slow_exact(query, weights, text), abs=1e-12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't panic: v3.5 of C++, max_length!", ["don", "t", "panic", "v3", "5", "of", "c", "max", "length"]),
        ("l\u2019\u00e9t\u00e9 \u2013 Gro\u00df-STRASSE", ["l", "\u00e9t\u00e9", "gross", "strasse"]),
        ("e\u0301te\u0301 \ufb01ne", ["\u00e9t\u00e9", "fine"]),
        ("NASA\u306e\u8a08\u753b 7", ["nasa", "\u306e", "\u8a08", "\u753b", "7"]),
        ("\u0939\u093f\u0928\u094d\u0926\u0940 \u0964", ["\u0939\u093f\u0928\u094d\u0926\u0940"]),
        (
            "inter\u00adnational \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            ["international", "\u0645\u06cc\u062e\u0648\u0627\u0647\u0645"],
        ),
        ("a \u2764\ufe0f b", ["a", "b"]),
        ("", []),
        (" ?! \u2026 ", []),
    ],
)
def test_words(text, words):
    assert exact_words(text) == words


def test_words_of_every_character():
    for first in range(0, 0x30000, 64):
        characters = [chr(code) for code in range(first, first + 64) if not 0xD800 <= code < 0xE000]
        text = " x".join(f"{character}y" for character in characters)
        assert exact_words(text) == slow_words(text)


@pytest.mark.parametrize("seed", range(5))
def test_wording_against_the_definition(seed):
    rng = np.random.default_rng(seed)
    analyzer = Analyzer()
    text = "the of ships ship Shipping port ports 1973 crisis in oil-crisis sea SEAS \u00e9t\u00e9 don't was"
    words = text.split()
    weights = {term: float(rng.uniform(0.1, 9)) for word in words[::2] for term in analyzer.terms(word)}
    for _ in range(50):
        query = " ".join(rng.choice(words, rng.integers(1, 9)))
        wording = Wording(query, analyzer.terms(query), weights, analyzer.terms)
        proximity = Proximity(analyzer.terms(query), weights)
        assert wording.is_defined == proximity.is_defined
        if not wording.is_defined:
            continue
        rarest = [
            (part, max([weights.get(term, 0) for term in analyzer.terms(word)] or [0]))
            for word in query.split()
            for part in slow_words(word)
        ]
        known = {
            part: max(weight for other, weight in rarest if other == part) for part, weight in rarest if weight
        }
        for length in (1, 4, 60):
            text = " ".join(rng.choice(words, length))
            exact = slow_exact(slow_words(query), known, slow_words(text))
            near = proximity.score(analyzer.terms(text))
            expected = (3 * near + 2 * exact) / 5 if near else 0
            assert wording.score(text) == pytest.approx(expected, abs=1e-12)
            assert 0 <= wording.score(text) <= 1


def test_the_same_form_scores_more_than_another_of_the_same_stem():
    analyzer = Analyzer()
    query = "when were the ports closed"
    wording = Wording(query, analyzer.terms(query), {"port": 2.0, "close": 1.0}, analyzer.terms)
    texts = ["The ports closed early.", "The port closes early.", "A port. It rained. It closes."]
    scores = [wording.score(text) for text in texts]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 3


@pytest.mark.parametrize(
    ("query", "better", "worse"),
    [
        ("parseArgs error", "an error: parse args. parseArgs!", "an error: parse args."),
        ("python 3.5 release", "python release 3.5", "python release 3-6, 5"),
        ("O'Brien's port", "the port of O'Brien's", "the port of OBrien and s"),
        ("\u4f60\u597d\u4e16\u754c", "\u4f60\u597d\u4e16\u754c", "\u597d\u4e16\u754c\u4f60\u597d"),
    ],
)
def test_words_that_are_divided_have_weights(query, better, worse):
    analyzer = Analyzer()
    terms = analyzer.terms(query)
    wording = Wording(query, terms, dict.fromkeys(terms, 1.0), analyzer.terms)
    assert wording.is_defined
    assert wording.score(better) > wording.score(worse)
    assert wording.score(query) == 1.0
