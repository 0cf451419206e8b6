"""Passages of hits, and the words in them that match a query."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, FirstM, KMeans, Mean, Pieces
from quarry.engine.search.passages import PassageFinder, PassagePlace, QueryWords
from quarry.formats.documents.spans import pack_spans
from quarry.formats.documents.store import StoredDocument
from quarry.formats.errors import CorruptFile

PATH = Path("somewhere.seg")
LONG = " ".join(f"Sentence {number} speaks of thing{number}. Nobody knew." for number in range(60))
DOCUMENTS = [
    {"id": "long", "title": "A title é文", "text": LONG},
    {"id": "short", "text": "thing3 alone"},
    {"id": "other", "text": "Nothing at all."},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("passages") / "index"
    engine.build(DOCUMENTS, path, encoder=WordEncoder(), representation=Pieces(8))
    return path


@pytest.fixture(scope="module")
def index(path):
    with Engine.open(path, encoder=WordEncoder()) as index:
        yield index


def full(hit):
    return f"{hit.title}\n{hit.text}" if hit.title else hit.text


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_the_best_passage_matches_the_query(index, mode):
    for number in (0, 17, 41, 59):
        hit = next(hit for hit in index.search(f"sentence {number} thing{number}", mode=mode) if hit.id == "long")
        best = hit.passages[0]
        assert f"thing{number}" in best.text
        assert len(best.text) < 100
        assert best.text == " … ".join(full(hit)[low:high] for low, high in best.spans)
        assert f"thing{number}" in [best.text[low:high] for low, high in best.words]


@pytest.mark.parametrize("representation", [Pieces(8), KMeans(5), Mean()], ids=lambda each: each.name)
@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_passages_are_ranked_and_within_the_document(tmp_path, representation, mode):
    encoder = WordEncoder()
    engine.build(DOCUMENTS, tmp_path / "index", encoder=encoder, representation=representation)
    with Engine.open(tmp_path / "index", encoder=encoder) as index:
        hits = index.search("what thing7 speaks of nobody", mode=mode)
    assert hits
    for hit in hits:
        scores = [passage.score for passage in hit.passages]
        assert 1 <= len(scores) <= 3
        assert scores == sorted(scores, reverse=True)
        assert scores[-1] >= scores[0] - 0.1 * abs(scores[0]) - 1e-6
        for passage in hit.passages:
            assert passage.text == " … ".join(full(hit)[low:high] for low, high in passage.spans)
            marked = [passage.text[low:high] for low, high in passage.words]
            assert {word.lower() for word in marked} <= {"thing7", "speaks", "nobody"}


def test_passages_of_nearly_equal_scores_are_all_given(tmp_path):
    text = " ".join(f"common words of part {number} come before these ends" for number in range(6))
    encoder = WordEncoder()
    engine.build([{"text": text}], tmp_path / "index", encoder=encoder, representation=Pieces(9))
    with Engine.open(tmp_path / "index", encoder=encoder) as index:
        assert len(index.search("common words come", mode="lexical")[0].passages) == 3
        assert len(index.search("part 4", mode="lexical")[0].passages) == 1


def test_dense_passages_are_scored_by_their_vectors(index):
    hit = next(hit for hit in index.search("thing9", mode="dense", explain=True) if hit.id == "long")
    assert hit.passages[0].score == pytest.approx(hit.dense_score, abs=1e-6)
    assert hit.passages[0].spans == hit.matches[0].spans


def test_vectors_have_passages_without_words(index):
    (hits,) = index.search_vectors([WordEncoder().encode_query("thing9")], k=3)
    best = next(hit for hit in hits if hit.id == "long").passages[0]
    assert "thing9" in best.text
    assert best.words == ()


def test_explained_hits_name_the_words_that_matched(index):
    hit = next(hit for hit in index.search("knowing sentences of thing9", explain=True) if hit.id == "long")
    found = {(full(hit)[word.start : word.end], word.terms) for word in hit.words}
    assert {("Sentence", ("sentenc",)), ("thing9", ("thing9",))} <= found
    assert {term for word in hit.words for term in word.terms} == set(hit.terms)
    assert index.search("knowing sentences")[0].words == ()


@pytest.mark.parametrize(("representation", "is_whole"), [(Pieces(4), False), (FirstM(4), True), (Mean(), True)])
def test_the_whole_text_is_a_passage_if_it_is_not_divided(tmp_path, representation, is_whole):
    text = "A bishop moves diagonally. Yeast makes the dough rise. The Moon raises the tides."
    encoder = WordEncoder()
    engine.build([{"text": text}], tmp_path / "index", encoder=encoder, representation=representation)
    with Engine.open(tmp_path / "index", encoder=encoder) as index:
        for passage in index.search("bishop moves yeast tides")[0].passages:
            assert (len(passage.text) > 70) == is_whole


def test_words_of_scripts_without_spaces_are_joined():
    words = QueryWords({"東京": 1.0, "京都": 1.0, "タワ": 2.0}, "english", 1)
    text = "東京都のタワー"
    assert [text[word.start : word.end] for word in words.find(text)] == ["東京都", "タワ"]
    assert words.find(text)[0].terms == ("東京", "京都")


def test_passages_outlive_the_index_and_can_be_pickled(path):
    with Engine.open(path, encoder=WordEncoder()) as index:
        hits = index.search("thing3 speaks")
    again = pickle.loads(pickle.dumps(hits))
    assert [hit.passages for hit in again] == [hit.passages for hit in hits]
    assert json.loads(json.dumps(hits[0].to_dict()))["passages"][0]["text"] == hits[0].passages[0].text


def test_a_passage_of_several_spans_marks_words_in_its_text():
    stored = StoredDocument("", "one red fox. Two grey cats. One red hen.", {}, pack_spans([[(0, 11), (28, 39)]]))
    finder = PassageFinder(
        np.ones(1, np.float32), QueryWords({"red": 1.0, "cat": 1.0}, "english", 1), 0.5, PassagePlace(PATH)
    )
    (passage,) = finder.find(stored)
    assert passage.text == "one red fox … One red hen"
    assert [passage.text[low:high] for low, high in passage.words] == ["red", "red"]


def test_spans_of_another_document_are_refused():
    stored = StoredDocument("", "one two", {}, pack_spans([[(0, 3)], [(4, 7)]]))
    with pytest.raises(CorruptFile, match=r"somewhere\.seg.*expected 3; found 2"):
        PassageFinder(np.ones(3, np.float32), None, 1.0, PassagePlace(PATH)).find(stored)


@pytest.mark.parametrize(
    ("query", "found", "words"),
    [
        ("古い寺", "kyoto", ["古い寺"]),
        ("首都", "tokyo", ["首都"]),
        ("대한민국", "seoul", ["대한민국"]),
        ("中华人民", "beijing", ["中华人民"]),
        ("タワー", "tower", ["ﾀﾜｰ"]),  # half-width in the text
    ],
)
def test_texts_without_spaces_are_found_by_pairs_of_characters(tmp_path, query, found, words):
    texts = {
        "tokyo": "東京都は日本の首都です。",
        "kyoto": "京都には古い寺がたくさんあります。",
        "seoul": "서울은 대한민국의 수도이다.",
        "beijing": "北京是中华人民共和国的国都。",
        "tower": "東京のﾀﾜｰは高い。",
    }
    docs = [{"id": key, "text": text} for key, text in texts.items()]
    engine.build(docs, tmp_path / "index", encoder=WordEncoder(), language="none")
    with Engine.open(tmp_path / "index", encoder=WordEncoder()) as index:
        hits = index.search(query, mode="lexical")
    assert hits[0].id == found
    best = hits[0].passages[0]
    assert [best.text[low:high] for low, high in best.words] == words
