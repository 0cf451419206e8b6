"""Words of queries that others stand for."""

from __future__ import annotations

import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, InvalidSetting, KMeans, ReadOnlyIndex

ENCODER, OTHER = WordEncoder(), WordEncoder(name="others")
TEXTS = {
    "tv": "a tv for the wall",
    "television": "televisions of all sizes",
    "flat": "a screen that is flat",
    "flat alone": "a flat by the sea",
    "york": "the city of new york",
    "nyc": "nyc by night",
}
SYNONYMS = {"TV": ["television", "flat screen", "absent"], "new york": "nyc"}


def build(path, **settings):
    documents = [{"id": name, "text": text} for name, text in TEXTS.items()]
    engine.build(documents, path, encoder=ENCODER, representation=KMeans(2), **settings)
    return path


def found(index, query, mode="lexical", **options):
    return {hit.id for hit in index.search(query, mode=mode, **options)}


@pytest.mark.parametrize("shards", [None, 2])
def test_synonyms_are_searched_as_one_word(tmp_path, shards):
    with Engine.open(build(tmp_path / "index", shards=shards), writable=True, encoder=ENCODER) as index:
        assert found(index, "tv") == {"tv"}
        before = index.search("television", mode="lexical")
        index.set_synonyms(SYNONYMS)
        assert found(index, "a TV") == {"tv", "television", "flat"}
        assert found(index, "tv", filter={"id": {"$ne": "tv"}}) == {"television", "flat"}
        assert index.search("television", mode="lexical") == before  # in one direction
        assert found(index, "new york") == {"york", "nyc"}
        assert index.search("new york", mode="lexical")[0].id == "york"
        assert found(index, "tv night") == {"tv", "television", "flat", "nyc"}
        (hit,) = index.search("tv", mode="lexical", explain=True, filter={"id": "television"})
        assert set(hit.terms) == {"tv|televis|flat screen|absent"}
        index.delete("tv")
        index.add([{"id": "new", "text": "a television on a tv"}])
        index.commit()
        assert found(index, "tv") == {"television", "flat", "new"}
        assert found(index, "tv", "hybrid") >= {"television", "flat", "new"}
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        assert index.synonyms == {"TV": ["television", "flat screen", "absent"], "new york": ["nyc"]}
        assert found(index, "tv") == {"television", "flat", "new"}
        with pytest.raises(ReadOnlyIndex):
            index.set_synonyms({})


def test_words_of_a_key_of_several_words_have_their_own_synonyms(tmp_path):
    with Engine.open(build(tmp_path / "index"), writable=True, encoder=ENCODER) as index:
        index.set_synonyms({**SYNONYMS, "tv night": ["nyc"]})
        assert found(index, "tv night") == found(index, "night tv") == {"tv", "television", "flat", "nyc"}
        (hit,) = index.search("tv night", mode="lexical", explain=True, filter={"id": "television"})
        assert set(hit.terms) == {"tv|televis|flat screen|absent"}


def test_scores_are_those_of_one_word(tmp_path):
    """A group has the score of a word that all documents with one of its alternatives have instead."""
    texts = ["tv tv here now", "television here now", "other words here now"]
    same = ["word word here now", "word here now", "other words here now"]
    scores = []
    for number, (each, query) in enumerate([(texts, "tv"), (same, "word")]):
        path = tmp_path / str(number)
        engine.build(each, path, encoder=ENCODER, representation=KMeans(2), language="none")
        with Engine.open(path, writable=True, encoder=ENCODER) as index:
            index.set_synonyms({"tv": ["television"]})
            scores.append([hit.score for hit in index.search(query, mode="lexical")])
    assert scores[0] == scores[1]


def test_they_are_given_at_build_and_kept_with_another_encoder(tmp_path):
    path = build(tmp_path / "index", synonyms=SYNONYMS)
    with Engine.open(path, writable=True, encoder=ENCODER) as index:
        index.merge()
        index.reencode(OTHER)
        assert found(index, "tv") == {"tv", "television", "flat"}
        index.set_synonyms({})
        assert (index.synonyms, found(index, "tv")) == ({}, {"tv"})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([("a", "b")], "a mapping of words"),
        ({"tv": []}, "a list of 1 to 64 texts"),
        ({"tv": {"a": 1}}, "a list of 1 to 64 texts"),
        ({"tv": [1]}, "characters with a word"),
        ({"the": ["tv"]}, "characters with a word"),
        ({"tv": ["..."]}, "characters with a word"),
        ({1: ["tv"]}, "characters with a word"),
        ({f"word{number}": ["x"] for number in range(10_001)}, "at most 10000 words"),
    ],
)
def test_wrong_synonyms_are_refused(tmp_path, wrong, message):
    with pytest.raises(InvalidSetting, match=f"synonyms .*{message}"):
        build(tmp_path / "index", synonyms=wrong)


@pytest.mark.parametrize("shards", [None, 2])
def test_a_mistyped_word_has_the_synonyms_of_the_one_that_was_meant(tmp_path, shards):
    """Corrections come first, to words of documents or to words that have synonyms alone."""
    texts = {
        "sneaker": "red sneakers",
        "trainer": "blue trainers",
        "sofa": "a sofa",
        "coach": "a coach and a trainer",
    }
    documents = [{"id": name, "text": text} for name, text in texts.items()]
    engine.build(documents, tmp_path / "index", encoder=ENCODER, representation=KMeans(2), shards=shards)
    with Engine.open(tmp_path / "index", writable=True, encoder=ENCODER) as index:
        assert found(index, "sneakrs") == {"sneaker"}
        index.set_synonyms({"sneakers": ["trainers"], "couch": ["sofa"], "settees": ["sofa"], "tv": ["sofa"]})
        assert found(index, "sneakrs") == found(index, "sneakers") == {"sneaker", "trainer", "coach"}
        assert found(index, "sneakrs", typos=False) == set()
        hits = index.search("sneakrs", mode="lexical", explain=True)
        assert [(set(hit.terms), hit.mistyped) for hit in hits] == [
            ({"sneaker|trainer"}, {"sneaker|trainer": "sneakr"})
        ] * 3
        assert all(hit.words for hit in hits)
        right = {hit.id: hit.score for hit in index.search("sneakers", mode="lexical")}
        assert {hit.id: hit.score for hit in hits} == pytest.approx(
            {name: each * 0.7 for name, each in right.items()}
        )
        assert found(index, "cuoch") == found(index, "setees") == {"sofa"}  # no document has a couch
        assert found(index, "coich") == {"coach"} | found(index, "couch")  # within one edit of both
        assert found(index, "tw") == set()  # too short to be corrected
        assert found(index, "cuoch", "hybrid") == set(texts)
        assert {each.value for each in index.facets("id", query="cuoch").values} == {"sofa"}
        index.set_synonyms({})
        assert (found(index, "cuoch"), found(index, "sneakrs")) == (set(), {"sneaker"})


def test_vectors_are_of_the_corrected_word(tmp_path):
    with Engine.open(build(tmp_path / "index"), writable=True, encoder=ENCODER) as index:
        index.set_synonyms({"towns": ["city"]})
        right, wrong = (index.search(query, explain=True) for query in ("town", "tovn"))
        assert [hit.dense_score for hit in wrong] == [hit.dense_score for hit in right]
