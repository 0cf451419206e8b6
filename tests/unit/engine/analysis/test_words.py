"""Normal forms of texts with many marks in a row."""

from __future__ import annotations

import random
import unicodedata

import pytest

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.analysis.positions import locate_words
from quarry.engine.analysis.words import VOICED_MARKS, find_cuts, normalize_text, split_words

MARKS = "\u0301\u0323\u0308\u0345\u20dd\u0903\uff9e"  # of several combining classes, and two that are never moved
OTHERS = ["e", "a ", "\ufb03", "\u2014", "\u20ac\u2026", "\u1112\u1161", "\uff8a\uff9e"]


def slow_cuts(text):
    """Count the marks before each character."""
    cuts, n_marks = [], 0
    for place, character in enumerate(text):
        is_mark = unicodedata.category(character).startswith("M") or character in VOICED_MARKS
        n_marks = n_marks + 1 if is_mark else 0
        if n_marks == 31:
            cuts.append(place)
            n_marks = 1
    return cuts


@pytest.mark.parametrize("seed", range(20))
def test_cuts_against_the_definition(seed):
    rng = random.Random(seed)
    for _ in range(50):
        runs = [
            "".join(rng.choices(MARKS, k=rng.choice([0, 1, 5, 29, 30, 31, 32, 60, 61, 200]))) for _ in range(6)
        ]
        text = "".join(rng.choice(OTHERS) + run for run in runs)
        cuts = find_cuts(text)
        assert cuts == slow_cuts(text)
        parts = [text[low:high] for low, high in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        normal = normalize_text(text)
        assert normal == "".join(unicodedata.normalize("NFKC", part) for part in parts)
        if not cuts:
            assert normal == unicodedata.normalize("NFKC", text)
        assert [each.word for each in locate_words(text)] == split_words(text)


def test_a_long_text_of_marks_is_analyzed():
    """It took minutes: the time grew with the square of the number of marks."""
    text = "\u0430" + "\u0301\u0323" * 60_000
    assert len(split_words(text)) == 1
    (term,) = Analyzer("english").terms(text)
    assert term.startswith("\u0430\u0323")  # the letter with the mark that sorts first
    assert len(list(locate_words(text))) == 1


@pytest.mark.parametrize("unit", ["\uff9e\u0327", "\uff9e", "\u1161", "\u3314", "\u0344"])
def test_long_texts_of_other_characters_that_join_are_analyzed(unit):
    text = "\u30ab" + unit * 20_000 + " \ufb01"
    analyzer = Analyzer("english")
    located = [term for each in analyzer.located_terms(text) for term in each.terms]
    assert located == analyzer.terms(text)


def test_every_character_that_begins_with_a_mark_in_normal_form_is_taken_for_one():
    characters = map(chr, range(0x110000))
    joining = {each for each in characters if unicodedata.combining(unicodedata.normalize("NFKC", each)[0])}
    assert {each for each in joining if not unicodedata.category(each).startswith("M")} == set(VOICED_MARKS)
