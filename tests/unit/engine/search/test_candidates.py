"""Hybrid and lexical search through the public interface."""

from __future__ import annotations

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.engine.search.fusion import fuse
from quarry.formats.errors import EncoderMismatch, InvalidQuery, InvalidSetting

DOCS = [
    {"id": "ports", "title": "Networking", "text": "Error 0x80070005 means the port is closed."},
    {"id": "files", "text": "Access to a file was denied, so nothing could be read."},
    {"id": "birds", "text": "Birds fly south when the winter comes."},
    {"id": "parse", "text": "Call parse_args to parse the words of a command line."},
    {"id": "walks", "text": "They walked along the river, walking slowly."},
]


@pytest.fixture
def encoder():
    return WordEncoder()


@pytest.fixture
def index(tmp_path, encoder):
    engine.build(DOCS, tmp_path / "idx", encoder=encoder)
    with Engine.open(tmp_path / "idx", encoder=encoder, writable=True) as opened:
        yield opened


def ids(hits):
    return [hit.id for hit in hits]


@pytest.mark.parametrize(
    ("query", "found"),
    [("error 0x80070005", "ports"), ("0X80070005", "ports"), ("parse_args", "parse"), ("walk", "walks")],
)
@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_exact_words_are_found(index, query, found, mode):
    assert ids(index.search(query, k=1, mode=mode, dense_weight=0.2)) == [found]


def test_every_hit_of_hybrid_search_has_both_exact_scores(index):
    query = "the error of a walking bird"
    hits = index.search(query, k=5)
    dense = {hit.id: hit.score for hit in index.search(query, k=5, mode="dense")}
    lexical = {hit.id: hit.score for hit in index.search(query, k=5, mode="lexical")}
    assert len(hits) == len(DOCS)
    assert {hit.id: hit.dense_score for hit in hits} == dense
    assert {hit.id: hit.lexical_score for hit in hits if hit.lexical_score} == lexical
    assert 0 < len(lexical) < len(DOCS)


@pytest.mark.parametrize("fusion", ["linear", "rrf"])
def test_hits_are_ranked_by_the_fused_scores(index, fusion):
    query = "the error of a walking bird"
    hits = index.search(query, k=5, fusion=fusion, dense_weight=0.4)
    assert len(hits) == len(DOCS)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    dense, lexical = ([getattr(hit, name) for hit in hits] for name in ("dense_score", "lexical_score"))
    fused = fuse(np.array(dense, np.float32), np.array(lexical, np.float32), fusion, 0.4)
    assert scores == pytest.approx(fused, rel=1e-6)


def test_a_document_that_only_one_side_finds_is_scored_by_the_other(tmp_path, encoder):
    docs = [{"id": str(number), "text": f"word{number} common"} for number in range(600)]
    engine.build(docs, tmp_path / "idx", encoder=encoder)
    with Engine.open(tmp_path / "idx", encoder=encoder) as index:
        hits = index.search("word3 word500", k=2, candidates=2, dense_weight=0.0)
        assert set(ids(hits)) == {"3", "500"}
        exact = {hit.id: hit.score for hit in index.search("word3 word500", k=600, mode="dense")}
        assert all(hit.dense_score == pytest.approx(exact[hit.id], abs=1e-6) for hit in hits)


def test_lexical_scores_do_not_depend_on_segments(tmp_path, encoder):
    engine.build(DOCS, tmp_path / "one", encoder=encoder)
    engine.build(DOCS[:1], tmp_path / "many", encoder=encoder)
    with Engine.open(tmp_path / "many", encoder=encoder, writable=True) as many:
        for doc in DOCS[1:]:
            many.add([doc])
            many.commit()
        with Engine.open(tmp_path / "one", encoder=encoder) as one:
            for query in ("the error of a walking bird", "parse words"):
                left, right = (each.search(query, k=5, mode="lexical") for each in (one, many))
                assert [(hit.id, hit.score) for hit in left] == [(hit.id, hit.score) for hit in right]


def test_deleted_and_replaced_documents_are_not_found_by_their_old_words(index):
    index.delete(["ports"])
    index.add([{"id": "birds", "text": "Fish swim."}])
    index.commit()
    assert ids(index.search("0x80070005 birds", mode="lexical")) == []
    assert ids(index.search("fish", mode="lexical")) == ["birds"]
    assert "ports" not in ids(index.search("error 0x80070005", k=5))


def test_a_hit_says_which_terms_matched(index):
    (hit,) = index.search("error walking 0x80070005", k=1, explain=True)
    assert set(hit.terms) == {"error", "0x80070005"}
    assert sum(hit.terms.values()) == pytest.approx(hit.lexical_score, rel=1e-5)
    assert hit.matches[0].weight == 1.0
    assert index.search("error", k=1)[0].terms == {}


@pytest.mark.parametrize("query", ["", "  ", "the of and", "!?", 'AND "(* ~'])
def test_a_query_without_terms_finds_nothing_by_words(index, query):
    assert index.search(query, mode="lexical") == []


def test_a_query_of_stop_words_is_answered_by_meaning(index):
    hits = index.search("the of and", k=5)
    assert len(hits) == len(DOCS)
    assert all(hit.lexical_score == 0 for hit in hits)


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_an_empty_query_has_no_meaning(index, mode):
    with pytest.raises(InvalidQuery, match="query 1"):
        index.search(["walk", ""], mode=mode)


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_a_very_long_query(index, mode):
    query = " ".join(f"word{number}" for number in range(10_000)) + " 0x80070005"
    hits = index.search(query, k=3, mode=mode)
    assert len(hits) == (1 if mode == "lexical" else 3)
    assert mode != "lexical" or hits[0].id == "ports"


def test_query_syntax_is_text_like_any_other(index):
    query = '+error "port*" title:(networking) AND NOT'
    assert ids(index.search(query, mode="lexical")) == ["ports"]
    assert len(index.search(query, k=5, operators=False)) == len(DOCS)


@pytest.mark.parametrize(
    "options", [{"mode": "sparse"}, {"fusion": "max"}, {"dense_weight": 1.5}, {"dense_weight": True}]
)
def test_bad_options_are_refused(index, options):
    with pytest.raises(InvalidSetting):
        index.search("walk", **options)


def test_vectors_have_no_words(index, encoder):
    vector = encoder.encode_query("walk")[None]
    assert index.search_vectors(vector, k=1)[0][0].lexical_score is None
    with pytest.raises(InvalidSetting, match="vectors are searched in dense mode"):
        index.search_vectors(vector, mode="hybrid")


def test_words_are_found_without_the_encoder_of_the_index(index, tmp_path):
    with Engine.open(tmp_path / "idx") as opened:
        assert ids(opened.search("0x80070005", mode="lexical")) == ["ports"]
        with pytest.raises(EncoderMismatch):
            opened.search("0x80070005")


def test_the_language_is_stored_and_used_again(tmp_path, encoder):
    engine.build(["die Häuser"], tmp_path / "idx", encoder=encoder, language="german")
    with Engine.open(tmp_path / "idx", encoder=encoder, writable=True) as index:
        index.add(["viele Katzen"])
        index.commit()
        assert len(index.search("Katze", mode="lexical")) == 1
        assert len(index.search("Haus", mode="lexical")) == 1


@pytest.mark.parametrize("settings", [{"language": "klingon"}, {"k1": -1}, {"b": 2}, {"b": "0.5"}])
def test_bad_settings_are_refused_before_anything_is_written(tmp_path, encoder, settings):
    with pytest.raises(InvalidSetting):
        engine.build(["text"], tmp_path / "idx", encoder=encoder, **settings)
    assert not (tmp_path / "idx").exists()


class ShortestFirst:
    """A reranker that prefers short texts."""

    name = "shortest first"

    def scores(self, query, texts):
        return np.array([-len(text) for text in texts], np.float32)


def test_the_first_hits_are_ranked_again_by_the_reranker(index, encoder, tmp_path):
    with Engine.open(tmp_path / "idx", encoder=encoder, reranker=ShortestFirst()) as opened:
        (plain,) = opened.search(["error of birds"], k=4)
        (again,) = opened.search(["error of birds"], k=2, rerank=4)
    expected = sorted(plain, key=lambda hit: len(hit.title) + len(hit.text) + bool(hit.title))[:2]
    assert ids(again) == ids(expected)
    assert [hit.dense_score for hit in again] == [hit.dense_score for hit in expected]
    assert again[0].score == -len("Birds fly south when the winter comes.")


def test_reranking_needs_a_reranker_and_at_least_k_hits(index):
    with pytest.raises(InvalidSetting, match="reranker="):
        index.search("walk", k=2, rerank=3)
    with pytest.raises(InvalidSetting, match="rerank is out of range"):
        index.search("walk", k=3, rerank=2)


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_an_index_without_documents_answers_nothing(index, mode):
    index.delete([doc["id"] for doc in DOCS])
    index.commit()
    assert index.search("walk", mode=mode) == []
    assert index.search(["walk", "error"], mode=mode) == [[], []]


def test_an_answer_is_exact_where_every_document_was_scored(tmp_path, encoder):
    given = [
        {"id": str(number), "text": f"word{number} common", "metadata": {"n": number}} for number in range(900)
    ]
    engine.build(given, tmp_path / "many", encoder=encoder)
    with Engine.open(tmp_path / "many", encoder=encoder, writable=True) as index:
        for fusion in ("linear", "rrf"):
            assert index.search("word3 common", k=5, fusion=fusion).exactness == "approximate"
            assert index.search("word3 common", k=5, fusion=fusion, candidates=900).exactness == "exact"
        index.add([{"id": "new", "text": "word900", "metadata": {"n": 900}}])
        index.delete(str(number) for number in range(20))
        index.commit()
        assert index.search("word30 common", k=5, filter={"n": {"$gte": 700}}).exactness == "exact"
        assert index.search("word30 common", k=5, filter={"n": {"$gte": 400}}).exactness == "approximate"
        assert index.search("word30 common", k=5, filter={"n": {"$lt": 0}}).exactness == "exact"
