"""Analysis with positions finds the same terms as analysis without, at their positions."""

from __future__ import annotations

import unicodedata

import pytest

from quarry.engine.analysis.analyzer import Analyzer

TEXTS = [
    "",
    "The ferry sails at noon; the ferries' crews don't.",
    "parse_args, camelCase and C++ or C# at 3.14",
    "cafe\u0301 o\u00f9 l'on boit du the\u0301",  # combining accents
    "\ufb01nal o\ufb03ce",  # ligatures, which are longer in normal form
    "\uff26\uff35\uff2c\uff2c width, \uff8a\uff9e\uff9d\uff84\uff9e",  # half-width kana, shorter in normal form
    "東京都に住んでいます。Tokyo タワー",
    "\u1112\u1161\u11ab\u1100\u1173\u11af 한글",  # Hangul as letters and as syllables
    "soft\u00adhyphen and zero\u200dwidth",
    "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22",
    "\u3300\u3314 \u3314\u6771\u4eac \u3300",  # characters that are several in normal form
    "Stra\u00dfe \u0130stanbul \u1e9b\u0323",
    "za"
    + "\u0301\u0323" * 50
    + "lgo e"
    + "\u0301" * 31
    + " e"
    + "\u0323\u0301" * 15,  # more than 30 marks in a row
    "far " * 200
    + "cafe\u0301 \ufb01ne \u2026 "
    + "东京都，" * 200
    + " "
    + "e\u0323\u0301 " * 200,  # several blocks
    "\u0301\u0323" * 40 + "\u1112\u1161\u11ab" + "\u3099\u0323" * 40,
]


@pytest.mark.parametrize("language", ["english", "none"])
@pytest.mark.parametrize("text", TEXTS)
def test_terms_with_positions_are_those_without(language, text):
    analyzer = Analyzer(language)
    located = list(analyzer.located_terms(text))
    assert [term for each in located for term in each.terms] == analyzer.terms(text)
    for start, end, terms in located:
        assert 0 <= start < end <= len(text)
        own = analyzer.terms(text[start:end])
        assert set(terms) <= set(own), (text[start:end], terms)


def test_positions_are_those_of_the_text_as_given():
    analyzer = Analyzer("none")
    text = "the o\ufb03ce in \uff8a\uff9e\uff9d\uff84\uff9e, cafe\u0301"
    found = {text[start:end]: terms for start, end, terms in analyzer.located_terms(text)}
    assert found["o\ufb03ce"] == ("office",)
    assert found["cafe\u0301"] == ("cafe",)
    assert "\uff8a\uff9e\uff9d" in found  # two characters in the normal form


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48", "\u0e17\u0e35\u0e48"),  # Thai: two letters, each with two marks
        ("\u1019\u103c\u1014\u103a\u1019\u102c", "\u1019\u103c"),  # Myanmar
        ("\u1780\u1798\u17d2\u1796\u17bb", "\u1780\u1798\u17d2"),  # Khmer
        ("\u6771\u4eac\u90fd", "\u6771\u4eac"),
    ],
)
def test_letters_keep_their_marks(text, found):
    bounds = [(start, end) for start, end, _ in Analyzer("none").located_terms(text)]
    assert text[slice(*bounds[0])] == found
    for place in {place for each in bounds for place in each} - {len(text)}:
        assert unicodedata.category(text[place])[0] != "M"


@pytest.mark.parametrize("text", TEXTS)
def test_wanted_terms_are_all_found_in_their_places(text):
    analyzer = Analyzer("english")
    located = list(analyzer.located_terms(text))
    for wanted in [frozenset(), *(frozenset(each.terms) for each in located), frozenset({"ferri", "c#", "tokyo"})]:
        expected = [each for each in located if not wanted.isdisjoint(each.terms)]
        found = list(analyzer.located_terms(text, wanted))
        assert [each for each in found if not wanted.isdisjoint(each.terms)] == expected
        assert set(found) <= set(located)
