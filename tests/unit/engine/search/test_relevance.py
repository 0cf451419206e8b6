"""Relevance of hits: features, background of the collection, limits, and independence of segments and shards."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import xxhash
from support.indexes.calibrated_encoder import CalibratedEncoder
from support.indexes.sharded import random_documents, random_queries
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.engine.lexical.bm25 import inverse_document_frequency
from quarry.engine.options import OpenOptions
from quarry.engine.search.fusion import fuse
from quarry.engine.search.relevance import BackgroundSample, merge_samples, sample_background
from quarry.engine.search.searcher import Searcher
from quarry.formats.container.directory import Directory
from quarry.formats.errors import InvalidSetting
from quarry.formats.snapshot import Snapshot

DOCUMENTS = random_documents(400)
QUERIES = random_queries(8)
MODES = ["hybrid", "dense", "lexical"]
ENCODER = CalibratedEncoder()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Build indexes of the same documents in one segment, several, and shards, also after deletions."""
    root = tmp_path_factory.mktemp("relevance")
    for suffix, removed in (("", set()), (" changed", {each["id"] for each in DOCUMENTS[::3]})):
        kept = [each for each in DOCUMENTS if each["id"] not in removed]
        engine.build(kept, root / f"one{suffix}", encoder=ENCODER)
        engine.build(DOCUMENTS, root / f"shards{suffix}", encoder=ENCODER, shards=3)
        engine.build(DOCUMENTS[:150], root / f"segments{suffix}", encoder=ENCODER)
        for name in ("shards", "segments"):
            with Engine.open(root / f"{name}{suffix}", encoder=ENCODER, writable=True) as index:
                if name == "segments":
                    index.add(DOCUMENTS[150:])
                    index.commit()
                index.delete(removed)
                index.commit()
    return root


@pytest.mark.parametrize("suffix", ["", " changed"])
@pytest.mark.parametrize("mode", MODES)
def test_relevance_does_not_depend_on_segments_shards_and_deletions(folder, mode, suffix):
    found = {}
    for name in ("one", "segments", "shards"):
        with Engine.open(folder / f"{name}{suffix}", encoder=ENCODER, backend="exact") as index:
            answers = index.search(QUERIES, k=12, mode=mode)
            found[name] = [sorted((hit.id, hit.relevance) for hit in hits) for hits in answers]
    assert found["one"] == found["segments"] == found["shards"]
    assert len({relevance for hits in found["one"] for _, relevance in hits}) > 10


def test_the_background_is_that_of_the_documents_with_the_smallest_hashes(folder):
    with closing(Snapshot(Directory(folder / "segments changed"))) as snapshot:
        sample = sample_background(snapshot.segments, Searcher(snapshot, OpenOptions()))
        live = [each["id"] for number, each in enumerate(DOCUMENTS) if number % 3]
        assert sample.hashes.tolist() == sorted(xxhash.xxh3_64_intdigest(doc_id.encode()) for doc_id in live)[:256]
        assert sample.vectors.shape == (256, ENCODER.dim)
        query = ENCODER.encode_query("w1 w2")
        assert sample.spread(query) == pytest.approx(
            np.std([vector @ query for vector in sample.vectors]), rel=1e-5
        )
        half = sample._replace(hashes=sample.hashes[::2], vectors=sample.vectors[::2])
        other = sample._replace(hashes=sample.hashes[1::2], vectors=sample.vectors[1::2])
        assert merge_samples([other, half]).hashes.tolist() == sample.hashes.tolist()


@pytest.mark.parametrize("n", [0, 3, 256])
def test_few_documents_hardly_change_the_spread_of_a_query(n):
    """The variance is that of the documents together with 32 whose variance is the typical one."""
    vectors = np.random.default_rng(n).standard_normal((n, 16)).astype(np.float32)
    sample, query = BackgroundSample(np.arange(n, dtype=np.uint64), vectors), np.full(16, 0.25, np.float32)
    measured = np.std(vectors.astype(np.float64) @ query) if n else 0.0
    assert sample.spread(query) == pytest.approx(measured, rel=1e-5)
    expected = math.sqrt((n * measured**2 + 32 * 0.07**2) / (n + 32))
    assert sample.spread(query, 0.07) == pytest.approx(expected, rel=1e-5)


def test_a_document_that_answers_does_not_make_others_relevant(tmp_path):
    """In an index of three documents, the scores of a query that one of them answers vary much."""
    texts = ["The Moon raises the tides.", "Bread rises because of yeast.", "The night train leaves at nine."]
    engine.build([{"id": text[4:9], "text": text} for text in texts], tmp_path / "index")
    with Engine.open(tmp_path / "index") as index:
        for mode in ("hybrid", "dense"):
            best, *others = index.search("what makes dough grow?", mode=mode)
            assert "Bread" in best.text
            assert best.relevance > 0.5
            assert all(hit.relevance < 0.1 for hit in others)
            assert not index.search("capital of France", mode=mode).answerable


@pytest.mark.parametrize("shards", [None, 2])
def test_what_fields_name_is_as_relevant_as_in_lexical_mode(tmp_path, shards):
    """Encoders do not read searchable fields, so a low dense score says nothing of a document that they name."""
    documents = [{"id": f"P-{n}", "text": f"w{n}", "metadata": {"brand": f"Zenith {n % 2}"}} for n in range(9)]
    settings = {"encoder": ENCODER, "searchable": ["id", "brand"], "shards": shards}
    engine.build(documents, tmp_path / "index", **settings)
    engine.build(documents, tmp_path / "unnamed", encoder=ENCODER)

    def relevance(name, query, **options):
        with Engine.open(tmp_path / name, encoder=ENCODER) as index:
            return {hit.id: hit.relevance for hit in index.search(query, typos=False, **options)}

    for query in ("zenith", "P-3", "zenith 1", '"zenith 1"'):
        for unit in ("document", "passage"):
            by_words, found = (relevance("index", query, unit=unit, mode=mode) for mode in ("lexical", "hybrid"))
            named = {each for each, value in by_words.items() if value > 0.88}  # all words: 1 / (1 + exp(-2))
            assert named
            assert all(found[each] >= by_words[each] for each in named)
            assert all(found[each] < 0.5 for each in found.keys() - named)
    assert relevance("index", "w3") == relevance("unnamed", "w3")


def test_relevance_is_that_of_the_model(folder):
    query = "w3 w70 nowhere w3"
    texts = {each["id"]: set(each["text"].split()) for each in DOCUMENTS}
    frequency = {word: sum(word in text for text in texts.values()) for word in ("w3", "w70", "nowhere")}
    idf = {word: inverse_document_frequency(len(texts), n) for word, n in frequency.items()}
    with Engine.open(folder / "one", encoder=ENCODER) as index:
        hybrid, lexical = index.search(query, mode="hybrid"), index.search(query, mode="lexical")
    shares = {
        hit.id: sum(idf[word] for word in idf if word in texts[hit.id]) / sum(idf.values())
        for hit in [*hybrid, *lexical]
    }
    for hit in lexical:
        assert hit.relevance == pytest.approx(1 / (1 + math.exp(2 - 4 * shares[hit.id])), rel=1e-4)
    odds = {hit.id: math.log(hit.relevance / (1 - hit.relevance)) for hit in hybrid}
    rest = [odds[hit.id] - 3 * hit.dense_score - 5 * shares[hit.id] for hit in hybrid]
    assert max(rest) - min(rest) < 1e-3  # the same for all documents: intercept and background
    assert rest[0] > -4


@pytest.mark.parametrize("name", ["one", "shards"])
@pytest.mark.parametrize("typical", [0.05, None])
def test_dense_scores_of_a_small_range_count_less_if_the_encoder_has_a_typical_spread(
    folder, monkeypatch, name, typical
):
    calibration = replace(CalibratedEncoder.relevance, typical_spread=typical)
    monkeypatch.setattr(CalibratedEncoder, "relevance", calibration)
    weight, least_range = (0.5, 0.0) if typical is None else (0.65, 9 * typical)
    n = len(DOCUMENTS)
    with Engine.open(folder / name, encoder=ENCODER, backend="exact") as index:
        assert index.stats()["dense_weight"] == weight
        for hits in index.search(QUERIES, k=n, candidates=n):  # all decide the scale
            columns = ([getattr(hit, side) for hit in hits] for side in ("dense_score", "lexical_score"))
            dense, lexical = (np.array(column, np.float32) for column in columns)
            fused = fuse(dense, lexical, "linear", weight, least_range)
            np.testing.assert_allclose([hit.score for hit in hits], fused, rtol=1e-5, atol=1e-6)


def test_less_relevant_hits_are_left_out(folder):
    for name in ("one", "shards"):
        with Engine.open(folder / name, encoder=ENCODER) as index:
            for mode in MODES:
                hits = index.search(QUERIES[0], k=40, mode=mode)
                limit = sorted(hit.relevance for hit in hits)[len(hits) // 2]
                kept = index.search(QUERIES[0], k=40, mode=mode, min_relevance=limit)
                assert [hit.id for hit in kept] == [hit.id for hit in hits if hit.relevance >= limit]
                assert 0 < len(kept) < len(hits) or limit == hits[0].relevance
                assert kept.exactness == hits.exactness
            assert index.search("nowhere", min_relevance=1.0) == []
            (vectors,) = index.search_vectors([ENCODER.encode_query("w1")], min_relevance=0.01)
            assert all(0.01 <= hit.relevance <= 1 for hit in vectors)


def test_answers_know_whether_they_answer(folder):
    with Engine.open(folder / "one", encoder=ENCODER) as index:
        hits = index.search("w1 w2")
        assert hits.answerable is (max(hit.relevance for hit in hits) >= 0.5)
        assert index.search("zzzz qqqq", mode="lexical").answerable is False
        assert index.search("zzzz qqqq").answerable is False


def test_without_a_calibration_relevance_is_unknown(tmp_path):
    engine.build(DOCUMENTS[:5], tmp_path / "index", encoder=WordEncoder())
    for encoder in (WordEncoder(), None):  # the second is the bundled encoder, not that of the index
        with Engine.open(tmp_path / "index", encoder=encoder) as index:
            (hits,) = index.search_vectors([np.ones(32, np.float32)])
            assert [hit.relevance for hit in hits] == [None] * 5
            assert hits.answerable is None
            with pytest.raises(InvalidSetting, match="no calibration"):
                index.search_vectors([np.ones(32, np.float32)], min_relevance=0.5)


@pytest.mark.parametrize("value", [-0.1, 1.1, "0.5", True, math.nan])
def test_a_limit_out_of_range_is_refused(folder, value):
    with (
        Engine.open(folder / "one", encoder=ENCODER) as index,
        pytest.raises(InvalidSetting, match="min_relevance"),
    ):
        index.search("w1", min_relevance=value)


def test_an_empty_index_and_one_of_one_document(tmp_path):
    engine.build([], tmp_path / "none", encoder=ENCODER)
    engine.build(DOCUMENTS[:1], tmp_path / "one", encoder=ENCODER)
    with Engine.open(tmp_path / "none", encoder=ENCODER) as index:
        assert index.search("w1", min_relevance=0.5).answerable is False
    with Engine.open(tmp_path / "one", encoder=ENCODER) as index:
        assert 0 <= index.search("w1")[0].relevance <= 1


NOTES = [
    "The Moon raises the tides twice a day, and higher ones when the Sun helps.",
    "Yeast makes the dough rise before it is baked.",
    "A bishop moves diagonally, a rook along ranks and files.",
    "The treaty was signed in Vienna after long negotiations.",
    "Photosynthesis turns light, water and carbon dioxide into sugar.",
]


def test_the_bundled_encoder_tells_answers_from_nonsense(tmp_path):
    engine.build(NOTES, tmp_path / "index")
    with Engine.open(tmp_path / "index") as index:
        for query in ("how does a bishop move in chess", "why do tides rise twice a day", "what makes dough rise"):
            assert index.search(query).answerable, query
        for query in (
            "install printer driver windows",
            "asdf qwertz uiop",
            "???",
            "東京の天気",
            "best pizza in town",
        ):
            hits = index.search(query)
            assert not hits.answerable, (query, hits[0].relevance)
            assert index.search(query, min_relevance=0.5) == []
