"""Corrections of typos: distances are compared with a slow oracle, and searches use the public interface."""

from __future__ import annotations

import collections
import inspect
import os
import random
import re
import socket
import threading
from contextlib import closing

import pytest
from support.indexes.sharded import columns
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.analysis.edits import one_edit
from quarry.engine.lexical.close_terms import (
    CloseTerm,
    CloseTerms,
    Expansion,
    correct_text,
    find_close_terms,
    is_expandable,
    select_expansions,
)
from quarry.formats.container.directory import Directory
from quarry.formats.errors import InvalidSetting
from quarry.formats.snapshot import Snapshot

ENCODER = WordEncoder()
GENERATOR = random.Random(5)
LETTERS = "abcde"
WORDS = sorted({"".join(GENERATOR.choices(LETTERS, k=GENERATOR.randint(4, 10))) for _ in range(600)})
FOREIGN = ["hþhe", "kþhler", "москва", "москвы", "þlðve", "elðve"]


def slow_distance(one: str, other: str) -> int:
    """Return the optimal string alignment distance, computed over a table."""
    table = {(row, 0): row for row in range(len(one) + 1)} | {
        (0, column): column for column in range(len(other) + 1)
    }
    for row in range(1, len(one) + 1):
        for column in range(1, len(other) + 1):
            differs = one[row - 1] != other[column - 1]
            table[row, column] = min(
                table[row - 1, column] + 1, table[row, column - 1] + 1, table[row - 1, column - 1] + differs
            )
            if row > 1 and column > 1 and one[row - 2 : row] == other[column - 2 : column][::-1]:
                table[row, column] = min(table[row, column], table[row - 2, column - 2] + 1)
    return table[len(one), len(other)]


def mistyped(word: str, generator: random.Random) -> str:
    at = generator.randrange(len(word))
    letter = generator.choice(LETTERS + "þ")
    return generator.choice(
        [
            word[:at] + letter + word[at:],
            word[:at] + word[at + 1 :],
            word[:at] + letter + word[at + 1 :],
            word[:at] + word[at + 1 : at + 2] + word[at : at + 1] + word[at + 2 :],
        ]
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("terms") / "index"
    docs = [{"text": " ".join(WORDS[low : low + 20])} for low in range(0, len(WORDS), 20)]
    engine.build([*docs, {"text": " ".join(FOREIGN)}], path, encoder=ENCODER, language="none")
    return path


@pytest.mark.parametrize("n_edits", [1, 2])
def test_close_terms_are_those_of_a_slow_search(path, n_edits):
    generator = random.Random(n_edits)
    with closing(Snapshot(Directory(path))) as snapshot:
        close = CloseTerms(snapshot.segments[0].reader.postings)
        for word in [*generator.sample(WORDS, 25), *FOREIGN]:
            query = mistyped(word, generator)
            if n_edits == 2:
                query = mistyped(query, generator) if query else word
            found = {(each.name, each.distance) for each in close.find(query, n_edits)} if query else set()
            distances = {each: slow_distance(query, each) for each in [*WORDS, *FOREIGN]}
            assert found == {(each, n) for each, n in distances.items() if 1 <= n <= n_edits}, query


def test_all_segments_are_searched(path, tmp_path):
    with closing(Snapshot(Directory(path))) as snapshot:
        reader = snapshot.segments[0].reader.postings
        assert find_close_terms([reader, reader], WORDS[0] + "a", 1, lambda _: ()) == set(
            CloseTerms(reader).find(WORDS[0] + "a", 1)
        )


def terms_of_pydoc():
    """The terms of real texts: the documentation of Python's library."""
    analyzer = Analyzer("english")
    texts = [
        text for module in (collections, inspect, os, random, re, socket, threading) for text in docs_of(module)
    ]
    return sorted({term for text in texts for term in analyzer.terms(text) if is_expandable(term)})


def docs_of(module):
    return [
        member.__doc__ for member in vars(module).values() if isinstance(getattr(member, "__doc__", None), str)
    ]


LETTERS_OF_WORDS = "abcdefghijklmnopqrstuvwxyzþш"


def test_close_terms_of_real_words_are_those_of_a_slow_search(tmp_path):
    terms = terms_of_pydoc()
    assert len(terms) > 900
    long = ["q" * 31, "q" * 32, "ш" * 32, "cafþteria", "cafðteria"]  # at the limits of lengths, and beyond ASCII
    engine.build([{"text": " ".join([*terms, *long])}], tmp_path / "index", encoder=ENCODER, language="none")
    generator = random.Random(7)
    analyzer = Analyzer("english")
    with closing(Snapshot(Directory(tmp_path / "index"))) as snapshot:
        reader = snapshot.segments[0].reader.postings
        close = CloseTerms(reader)
        for word in [*generator.sample(terms, 25), *long]:
            at = generator.randrange(len(word))
            query = word[:at] + generator.choice(LETTERS_OF_WORDS) + word[at + generator.randrange(2) :]
            similar = [each for each in [*terms, *long] if abs(len(each) - len(query)) <= 2]
            distances = {each: slow_distance(query, each) for each in similar}
            for n_edits in (1, 2):
                wanted = {(each, n) for each, n in distances.items() if 1 <= n <= n_edits}
                assert {(each.name, each.distance) for each in close.find(query, n_edits)} == wanted, query
            if not is_expandable(query):
                continue
            related = set(analyzer.stems(list(one_edit(query)))) & set(terms) - {query}
            wanted = {(each, 1) for each, n in distances.items() if n == 1} | {(each, 1) for each in related}
            assert find_close_terms([reader], query, 1, analyzer.edited_stems) == wanted, query


def test_a_dictionary_without_words_has_no_close_terms(tmp_path):
    engine.build([{"text": "12 ab 東京都庁"}], tmp_path / "index", encoder=ENCODER)
    with closing(Snapshot(Directory(tmp_path / "index"))) as snapshot:
        close = CloseTerms(snapshot.segments[0].reader.postings)
        assert [close.find(term, n) for term in ("abcd", "a" * 32, "шшшш") for n in (1, 2)] == [[]] * 6
        assert close.select_known(["abcd", "ab", "шшшш", "a" * 40]) == []


@pytest.mark.parametrize("term", ["abc", "80070005", "x86a", "c++", "a_b_c_d", "東京都庁", "q" * 33, ""])
def test_codes_and_short_words_are_not_expanded(term):
    assert not is_expandable(term)


def test_frequent_terms_of_the_smallest_distance_are_selected():
    close = [CloseTerm("near", 1), CloseTerm("rare", 1), CloseTerm("gone", 1), CloseTerm("far", 2)]
    chosen = select_expansions(close, {"near": 16, "rare": 4, "far": 900})
    assert [each.name for each in chosen] == ["near", "rare"]
    assert [each.weight for each in chosen] == pytest.approx([0.7, 0.35])
    assert [each.name for each in select_expansions(close, {"far": 2})] == ["far"]
    assert select_expansions(close, {}) == ()


DOCUMENTS = [
    {"id": "president", "text": "The president signed the treaty in Vienna."},
    {"id": "moon", "text": "The moon raises the tides of the ocean twice a day. Telescopes show it."},
    {"id": "code", "text": "Error 80070005 means that access was denied by printers."},
    {"id": "festival", "text": "A festival of music was held in summer."},
]


@pytest.fixture
def index(tmp_path):
    engine.build(DOCUMENTS, tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER, writable=True) as index:
        yield index


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("trreaty", "president"),
        ("rteaty", "president"),  # at the first letter
        ("xreaty", "president"),
        ("oceean", "moon"),
        ("presdient", "president"),  # of another stem
        ("tretay", "president"),
        ("feztivall summer", "festival"),
        ("tellescopp", "moon"),  # two errors in a long word
        ("acess denied", "code"),
    ],
)
def test_mistyped_words_are_found_in_lexical_and_hybrid_mode(index, query, found):
    assert index.search(query, mode="lexical")[0].id == found
    assert index.search(query, k=1, dense_weight=0.3)[0].id == found
    assert index.search(query, k=1)[0].id == found  # the vector is that of the corrected query
    if " " not in query:
        assert index.search(query, mode="lexical", typos=False) == []


@pytest.mark.parametrize("query", ["80070006", "moom2", "sumer", "mon", "zzzzzzzz", "treaty5"])
def test_words_without_typos_find_the_same(index, query):
    strict = index.search(query, mode="lexical", typos=False)
    found = index.search(query, mode="lexical")
    if query == "sumer":
        assert [hit.id for hit in found] == ["festival"]
    else:
        assert columns(found) == columns(strict) == []


def test_words_that_documents_have_are_never_replaced(index):
    index.add([{"id": "rare", "text": "tretay oceans"}])
    index.commit()
    hits = index.search("tretay", mode="lexical", explain=True)
    assert [hit.id for hit in hits] == ["rare"]
    assert hits[0].mistyped == {}
    index.delete("rare")
    index.commit()
    assert [hit.id for hit in index.search("tretay", mode="lexical")] == ["president"]


def test_a_replacement_scores_less_and_is_explained(index):
    right = index.search("the treaty", mode="lexical")[0]
    hit = index.search("the traety", mode="lexical", explain=True)[0]
    assert hit.score == pytest.approx(0.7 * right.score, rel=1e-5)
    assert set(hit.terms) == {"treati"}
    assert dict(hit.mistyped) == {"treati": "traeti"}
    assert [hit.text[word.start : word.end] for word in hit.words] == ["treaty"]
    assert hit.to_dict()["mistyped"] == {"treati": "traeti"}
    assert index.search("the treaty", mode="lexical", explain=True)[0].mistyped == {}


@pytest.mark.parametrize("value", ["yes", 2, None])
def test_another_value_of_the_option_is_refused(index, value):
    with pytest.raises(InvalidSetting, match="typos"):
        index.search("treaty", typos=value)


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_shards_have_the_ranking_of_one_index(tmp_path, mode):
    generator = random.Random(3)
    words = [word for word in WORDS if len(word) > 4][:150]
    docs = [{"id": f"{number:03d}", "text": " ".join(generator.choices(words, k=8))} for number in range(200)]
    gone = [each["id"] for each in docs[::4]]
    for name, options in (("one", {}), ("three", {"shards": 3})):
        engine.build(docs, tmp_path / name, encoder=ENCODER, **options)
        with Engine.open(tmp_path / name, encoder=ENCODER, writable=True) as index:
            index.delete(gone)
            index.commit()
    queries = [f"{mistyped(generator.choice(words), generator)} {generator.choice(words)} qq" for _ in range(40)]
    with (
        Engine.open(tmp_path / "one", encoder=ENCODER, backend="exact") as one,
        Engine.open(tmp_path / "three", encoder=ENCODER, backend="exact") as three,
    ):
        n_expanded = 0
        for query in queries:
            alone, together = (each.search(query, k=300, mode=mode, explain=True) for each in (one, three))
            assert sorted(columns(alone)) == sorted(columns(together))
            by_id = {hit.id: hit for hit in together}
            assert all(dict(hit.mistyped) == dict(by_id[hit.id].mistyped) for hit in alone)
            assert all(hit.terms == by_id[hit.id].terms for hit in alone)
            n_expanded += any(hit.mistyped for hit in alone)
    assert n_expanded > 10


def test_a_corrected_text_keeps_everything_else():
    analyzer = Analyzer("english")
    expansions = {
        "presdient": [Expansion("presid", 0.7)],  # the stem of the corrected word
        analyzer.terms("goverment")[0]: [Expansion(*analyzer.terms("government"), 0.7)],
        "москвв": [Expansion("москв", 0.7)],
    }
    text = "Who, then, was PRESDIENT of the Goverment in Москвв? éé"
    assert correct_text(text, expansions, analyzer) == "Who, then, was president of the government in Москвв? éé"
    assert correct_text("xyz", {"xyz": [Expansion("unreachable", 0.4)]}, analyzer) == "xyz"
