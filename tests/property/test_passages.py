"""Documents cut into passages are searched as if passages were documents, and ranked by the best of theirs."""

from __future__ import annotations

import random
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.indexes.word_encoder import WordEncoder

from quarry import Document, Engine, Hit, Hits, build
from quarry.engine.encoding.passages import cut_into_passages
from quarry.formats.manifest import PassageRecord

WORDS = ["red", "blue", "storm\u2026", "river", "cas\u00adtle", "tower\u00a0old", "old", "quiet", "moon"]
MODES = ("dense", "lexical", "hybrid")
QUERIES = ["storm over the old castle", "red moon river"]
ENCODER = WordEncoder()
MAX_WORDS = 9

sentences = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=7), max_size=7)
documents = st.lists(st.tuples(st.sampled_from(["", "Old storm"]), sentences), min_size=1, max_size=6)


def document(number: int, title: str, parts: list[list[str]]) -> Document:
    text = " ".join(" ".join(part).capitalize() + "." for part in parts)
    return Document(f"d{number}", text or "moon", title, {"n": number})


def passages_of(whole: Document) -> Iterator[Document]:
    """Yield the passages as documents."""
    bounds = cut_into_passages(whole.text, PassageRecord(max_words=MAX_WORDS, overlap=0))
    for number, (start, end) in enumerate(bounds):
        yield Document(f"{whole.id}#{number}", whole.text[start:end], whole.title, whole.metadata)


@contextmanager
def both(
    docs: list[Document], parts: Iterable[Document], shards: int | None = None
) -> Iterator[tuple[Engine, Engine]]:
    """Yield an index of documents in passages, and one whose documents are these passages."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(docs, folder / "cut", encoder=ENCODER, passage_words=MAX_WORDS, shards=shards)
        build(parts, folder / "parts", encoder=ENCODER, passage_words=None)
        with (
            Engine.open(folder / "cut", encoder=ENCODER, writable=True) as cut,
            Engine.open(folder / "parts", encoder=ENCODER, writable=True) as apart,
        ):
            yield cut, apart


def expected(hits: Hits, *, by_document: bool) -> list[tuple[str, int, float]]:
    """Return document, passage and score of the hits of passages; of each document only the best passage."""
    found = [(*hit.id.split("#"), hit.score) for hit in hits]
    numbered = [(doc_id, int(number), pytest.approx(score, abs=1e-5)) for doc_id, number, score in found]
    best = {each[0]: each for each in reversed(numbered)}
    return [each for each in numbered if not by_document or best[each[0]] is each]


def best_parts(hit: Hit) -> list[tuple[str, tuple[tuple[int, int], ...]]]:
    return [(part.text, part.words) for part in hit.passages]


def check(cut: Engine, apart: Engine, **options: object) -> None:
    for mode in MODES:
        wanted = apart.search(QUERIES, k=100, mode=mode, **options)
        passages = cut.search(QUERIES, k=100, mode=mode, unit="passage", **options)
        whole = cut.search(QUERIES, k=100, mode=mode, **options)
        few = cut.search(QUERIES, k=2, mode=mode, **options)
        for hits, own, documents_found, first in zip(wanted, passages, whole, few, strict=True):
            assert [(hit.id, hit.passage, hit.score) for hit in own] == expected(hits, by_document=False)
            best = expected(hits, by_document=True)
            assert [(hit.id, hit.score) for hit in documents_found] == [(each[0], each[2]) for each in best]
            assert [hit.id for hit in first] == [each[0] for each in best[:2]]
            assert [hit.text for hit in own] == [hit.text for hit in hits]
            if not any(hit.title for hit in hits):  # which the passages of documents of their own begin with
                assert list(map(best_parts, own)) == list(map(best_parts, hits))


@pytest.mark.parametrize("shards", [None, 2])
@settings(max_examples=6, deadline=None)
@given(docs=documents)
def test_a_passage_is_searched_like_a_document(shards, docs):
    made = [document(number, *each) for number, each in enumerate(docs)]
    with both(made, [part for each in made for part in passages_of(each)], shards) as (cut, apart):
        check(cut, apart)
        check(cut, apart, filter={"n": {"$lt": 3}})
        cut.update_metadata("d0", {"n": 9})
        for part in passages_of(made[0]):
            apart.update_metadata(part.id, {"n": 9})
        for index in (cut, apart):
            index.commit()
        check(cut, apart, filter={"n": {"$gte": 3}})
        if len(made) > 1:
            cut.delete(["d1"])
            apart.delete([part.id for part in passages_of(made[1])])
            for index in (cut, apart):
                index.commit()
            check(cut, apart)
        for index in (cut, apart):
            index.merge()
        check(cut, apart)
        kept = [each for number, each in enumerate(made) if number != 1 or len(made) == 1]
        assert {each.id: each.text for each in cut.documents()} == {each.id: each.text for each in kept}


def vector_of(text: str) -> npt.NDArray[np.float32]:
    vector = np.random.default_rng(zlib.crc32(text.encode())).normal(size=ENCODER.dim)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def with_vectors(document: Document, spans: list[tuple[int, int]]) -> Document:
    """Return a document with a vector of each span."""
    vectors = np.stack([vector_of(document.full_text[start:end]) for start, end in spans])
    return Document(document.id, document.text, document.title, document.metadata, "", vectors, tuple(spans))


@settings(max_examples=6, deadline=None)
@given(docs=documents, order=st.randoms())
def test_spans_of_given_vectors_are_searched_like_documents(docs, order):
    """Each sentence has a vector, and so have the title and the first three characters of a sentence."""
    made, parts = [], []
    for whole in (document(number, *each) for number, each in enumerate(docs)):
        n_before = len(whole.full_text) - len(whole.text)
        sentences = [(each.start(), each.end()) for each in re.finditer(r"[^ .][^.]*\.?", whole.text)]
        spans = [(low + n_before, end + n_before) for low, high in sentences for end in (high, low + 3)]
        heading = [(0, n_before - 1)] * bool(whole.title)
        all_spans = heading + spans
        order.shuffle(all_spans)
        made.append(with_vectors(whole, all_spans))
        for number, (low, high) in enumerate(sentences):
            part = Document(f"{whole.id}#{number}", whole.text[low:high], whole.title, whole.metadata)
            own = heading * (number == 0) + [(n_before, len(part.full_text)), (n_before, n_before + 3)]
            parts.append(with_vectors(part, own))
    with both(made, parts) as (cut, apart):
        check(cut, apart)
        for each in made:
            (found,) = cut.get(each.id, vectors=True)
            pairs = [dict(zip(one.spans, one.vectors, strict=True)) for one in (each, found)]
            assert pairs[0].keys() == pairs[1].keys()
            assert all(np.allclose(pairs[0][span], pairs[1][span], atol=0.02) for span in pairs[0])


@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize("mode", MODES)
def test_long_documents_do_not_crowd_out_others(tmp_path, shards, mode):
    long = [{"id": f"long{n}", "text": "storm moon " * 2000} for n in range(2)]
    short = [{"id": f"short{n}", "text": "storm castle" + " sea" * n} for n in range(12)]
    build(long + short, tmp_path / "index", encoder=ENCODER, passage_words=4, shards=shards)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        everything = [hit.id for hit in index.search("storm moon", k=14, mode=mode)]
        assert sorted(everything) == sorted(each["id"] for each in long + short)
        for k in (1, 5, 10):
            assert len(index.search("storm moon", k=k, mode=mode)) == k
            assert len(index.search("storm moon", k=3, offset=k, mode=mode)) == 3


@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize("mode", MODES)
def test_passages_with_equal_scores_do_not_crowd_out_other_documents(tmp_path, shards, mode):
    docs = [{"id": f"short{n}", "text": "storm moon."} for n in range(5)]
    docs.append({"id": "long", "text": "storm moon. " * 700})  # of more passages than candidates
    build(docs, tmp_path / "index", encoder=ENCODER, passage_words=2, shards=shards)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        hits = [index.search("storm moon", k=k, mode=mode) for k in (4, 6, 100)]
        assert [[hit.id for hit in each] for each in hits] == [
            sorted(each["id"] for each in docs)[:k] for k in (4, 6, 6)
        ]
        few = index.search("storm moon", k=9, mode=mode, filter={"id": {"$in": ["long", "short1"]}})
        assert [hit.id for hit in few] == ["long", "short1"]


@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize("mode", MODES)
def test_hits_of_long_documents_do_not_depend_on_how_many_are_asked_for(tmp_path, shards, mode):
    """A deeper search has candidates with lower scores, by which the others must not be scaled."""
    draw = random.Random(0)
    topics = [[f"topic{n}word{number}" for number in range(5)] for n in range(4)]
    docs = [{"id": f"d{n}", "text": " ".join(draw.choices(topics[n % 4] + WORDS, k=500))} for n in range(24)]
    build(docs, tmp_path / "index", encoder=ENCODER, passage_words=4, shards=shards)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        for topic in topics:
            query = " ".join([*topic[:2], "storm"])
            whole = [hit.id for hit in index.search(query, k=24, mode=mode)]
            pages = [index.search(query, k=6, offset=first, mode=mode) for first in range(0, 24, 6)]
            assert [hit.id for page in pages for hit in page] == whole


@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize("unit", ["document", "passage"])
def test_hybrid_scores_do_not_depend_on_how_many_hits_are_asked_for(tmp_path, shards, unit):
    """More hits have more candidates, which are scaled as the first ones."""
    rows = np.random.default_rng(0).standard_normal((1200, 4)).astype(np.float32)
    draw = random.Random(0)
    docs = []
    for number in range(600):
        halves = [" ".join(draw.choices(WORDS, k=4)) for _ in range(2)]
        text = " ".join(halves)
        spans = [(0, len(halves[0])), (len(halves[0]) + 1, len(text))]
        vectors = rows[2 * number :][:2]
        docs.append({"id": f"d{number}", "text": text, "vectors": vectors, "spans": spans})
    build(docs, tmp_path / "index", dim=4, shards=shards, passage_words=4)
    with Engine.open(tmp_path / "index") as index:
        found = [
            index.search(" ".join(WORDS[:2]), vector=[1, 2, 3, 4], mode="hybrid", k=k, unit=unit)
            for k in (5, 100, 120, 400)
        ]
    scores = [{(hit.id, hit.passage): hit.score for hit in hits} for hits in found]
    assert [len(each) for each in scores] == [5, 100, 120, 400]
    for fewer, more in pairwise(scores):
        assert fewer == {key: more[key] for key in fewer}


def test_indexes_that_are_cut_otherwise_are_added(tmp_path):
    text = "storm moon river castle " * 6
    for name, words in (("cut", MAX_WORDS), ("whole", None)):
        build([{"id": name, "text": text}], tmp_path / name, encoder=ENCODER, passage_words=words)
    with Engine.open(tmp_path / "cut", encoder=ENCODER, writable=True) as index:
        index.add_indexes([tmp_path / "whole"])
        assert {hit.id for hit in index.search("river castle", k=2)} == {"cut", "whole"}
        passages = index.search("river castle", k=10, unit="passage")
        assert sorted((hit.id, hit.passage) for hit in passages) == [
            ("cut", 0),
            ("cut", 1),
            ("cut", 2),
            ("whole", 0),
        ]
        index.merge()
        assert [hit.text for hit in index.search("river", k=10, unit="passage", filter={"id": "whole"})] == [text]


@pytest.mark.parametrize("title", ["", "Title", "long title " * 8, "long title " * 60, "line\nbreak"])
def test_passages_are_parts_of_the_text_whatever_the_title(tmp_path, title):
    text = "storm moon river castle. " * 10
    build(
        [{"id": "a", "title": title, "text": text}], tmp_path / "index", encoder=ENCODER, passage_words=MAX_WORDS
    )
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        hits = sorted(index.search("moon", k=100, unit="passage"), key=lambda hit: hit.passage)
        assert len(hits) == 5
        assert "".join(hit.text for hit in hits).replace(" ", "") == text.replace(" ", "")
        assert [index.search("moon", k=1)[0].title] == [title]
        assert all(passage.text in f"{title}\n{text}" for hit in hits for passage in hit.passages)


def test_words_of_a_passage_are_where_the_whole_document_has_them(tmp_path):
    title, text = "Old tower", "storm moon river castle. " * 6
    build(
        [{"id": "a", "title": title, "text": text}], tmp_path / "index", encoder=ENCODER, passage_words=MAX_WORDS
    )
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        for hit in index.search("castle", k=10, unit="passage", explain=True):
            words = [f"{title}\n{text}"[word.start : word.end] for word in hit.words]
            assert words == ["castle"] * hit.text.count("castle")
        (whole,) = index.search("castle", explain=True)
        assert [f"{title}\n{text}"[word.start : word.end] for word in whole.words] == ["castle"] * 6


def test_a_document_of_which_one_passage_has_tokens_is_one_passage(tmp_path):
    text = "storm moon " * 4 + "\u2026 " * MAX_WORDS
    docs = [{"id": "a", "text": text}, {"id": "b", "text": "river castle. " * 20}]
    build(docs, tmp_path / "index", encoder=ENCODER, passage_words=MAX_WORDS)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        (hit,) = index.search("storm", k=10, unit="passage", filter={"id": "a"})
        assert (hit.passage, hit.extent, hit.text) == (0, (0, len(text)), text)


def test_passages_among_the_hits_share_their_document(tmp_path):
    text = "storm moon river castle. " * 10
    build([{"id": "a", "text": text}], tmp_path / "index", encoder=ENCODER, passage_words=MAX_WORDS)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        hits = index.search("moon", k=10, unit="passage")
        assert len(hits) == 5
        assert all(hit.metadata is hits[0].metadata for hit in hits)
