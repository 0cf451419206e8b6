"""Texts within one edit of a word, and those of them that the stemmer changes."""

from __future__ import annotations

import random
import string

import pytest

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.analysis.edits import edited_words, one_edit

ENGLISH = Analyzer("english")
SYLLABLES = [
    "a",
    "con",
    "tra",
    "ven",
    "min",
    "is",
    "po",
    "gen",
    "er",
    "at",
    "sub",
    "lo",
    "qu",
    "ri",
    "y",
    "ee",
    "oll",
]
SUFFIXES = [
    *(
        "",
        "s",
        "es",
        "ed",
        "eed",
        "ing",
        "ly",
        "y",
        "ational",
        "ization",
        "iveness",
        "fulness",
        "ousli",
        "biliti",
        "logi",
    ),
    *(
        "alize",
        "icate",
        "iciti",
        "ical",
        "ness",
        "ative",
        "ement",
        "ance",
        "ence",
        "able",
        "ible",
        "ant",
        "ism",
        "ate",
    ),
    *(
        "ous",
        "ive",
        "ion",
        "ll",
        "er",
        "ator",
        "ogist",
        "less",
        "ful",
        "ied",
        "ss",
        "sses",
        "enci",
        "anci",
        "abli",
    ),
]


def words(n):
    generator = random.Random(n)
    return [
        "".join(generator.choices(SYLLABLES, k=generator.randint(1, 4))) + generator.choice(SUFFIXES)
        for _ in range(n)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_left_out_texts_are_their_own_stems(seed):
    generator = random.Random(seed)
    chosen = [word for word in words(150 + seed) if len(word) >= 4]
    chosen += ["".join(generator.choices(string.ascii_lowercase, k=generator.randint(4, 9))) for _ in range(50)]
    for word in chosen:
        every = set(one_edit(word))
        few = edited_words(word, "english")
        assert len(few) == len(set(few))
        assert set(few) <= every | {word}
        left_out = sorted(every.difference(few))
        assert ENGLISH.stems(left_out) == left_out, word


def test_the_stems_of_edited_texts_are_those_of_all():
    for word in [
        "presdient",
        "treti",
        "goverment",
        "runing",
        "hapily",
        "xxxx",
        "skyes",
        "dyinge",
        "clas",
        "arsenall",
    ]:
        every = list(one_edit(word))
        wanted = set(ENGLISH.stems(every))
        assert wanted - ENGLISH.edited_stems(word) <= set(every) | {word}, word
        assert ENGLISH.edited_stems(word) <= wanted | {*ENGLISH.stems([word])}


@pytest.mark.parametrize("language", ["german", "none"])
def test_nothing_is_left_out_in_other_languages(language):
    assert set(edited_words("haus", language)) == set(one_edit("haus"))


def test_words_of_other_alphabets_have_no_edited_texts():
    assert edited_words("москва", "english") == edited_words("höhe", "english") == []


def test_one_edit():
    found = set(one_edit("ab"))
    assert {"ba", "a", "b", "xab", "axb", "abx", "xb", "ax"} <= found
    assert not found & {"", "abxx", "xx", "bax"}
