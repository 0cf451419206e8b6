"""A search over shards has the same ranking and scores as one index, to the last bit."""

from __future__ import annotations

import random
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product

import numpy as np
import pytest
from support.combinations import pairs_of
from support.indexes.sharded import (
    ENCODER,
    build_contiguous,
    columns,
    random_documents,
    random_queries,
    random_text,
)

from quarry import engine
from quarry.engine import Engine, UnknownFieldWarning
from quarry.formats.errors import InvalidFilter, InvalidQuery, InvalidSetting

DOCUMENTS = random_documents(260)
QUERIES = random_queries(12)
LAYOUTS = ["hashed 1", "hashed 5", "hashed 13", "contiguous 5"]
FILTERS = [None, {"number": {"$gte": 4}}, {"$not": {"number": 2}}, {"number": 99}]


def change(index):
    """Delete and replace some documents in two commits."""
    index.delete([f"document {number:04d}" for number in range(0, 260, 3)])
    index.commit()
    index.add([{"id": f"document {number:04d}", "text": f"w1 w{number % 90} new"} for number in range(0, 260, 10)])
    index.commit()


def opened(path, **options):
    return Engine.open(path, encoder=ENCODER, **({"backend": "exact", "threads": 2} | options))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Build indexes of the same documents, as one ("one") and divided, also after deletions (" changed")."""
    root = tmp_path_factory.mktemp("shards")
    for suffix in ("", " changed"):
        engine.build(DOCUMENTS, root / f"one{suffix}", encoder=ENCODER)
        for layout in LAYOUTS:
            kind, n_shards = layout.split()
            if kind == "hashed":
                engine.build(DOCUMENTS, root / (layout + suffix), encoder=ENCODER, shards=int(n_shards))
            elif not suffix:  # shards that are not divided by the hash cannot be changed
                build_contiguous(DOCUMENTS, root / layout, int(n_shards))
    for path in root.glob("* changed"):
        with opened(path, writable=True) as index:
            change(index)
    return root


def answers(index, *, queries=QUERIES, **options):
    return [(columns(hits), hits.exactness) for hits in index.search(queries, **options)]


CASES = [
    {"mode": mode, "filter": only, "candidates": candidates, "fusion": fusion}
    for mode, only, (candidates, fusion) in (
        *pairs_of(["hybrid"], FILTERS, list(product((None, 20), ("linear", "rrf")))),
        *pairs_of(["dense", "lexical"], FILTERS, [(None, "linear")]),
    )
]


@pytest.fixture(scope="module")
def wanted(folder):
    """Return a function that asks an index without shards once for all cases."""

    @cache
    def found(name):
        with opened(folder / name) as one:
            return len(one), [quietly(one, case) for case in CASES]

    return found


def quietly(index, case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownFieldWarning)
        return answers(index, queries=QUERIES[:6], **case)


@pytest.mark.parametrize(
    "layout", [*LAYOUTS, *(f"{each} changed" for each in LAYOUTS if each.startswith("hashed"))]
)
def test_rankings_are_those_of_one_index(folder, wanted, layout):
    n_documents, alone = wanted("one changed" if layout.endswith("changed") else "one")
    with opened(folder / layout) as sharded:
        assert len(sharded) == n_documents
        for case, expected in zip(CASES, alone, strict=True):
            assert quietly(sharded, case) == expected, case


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_explanations_are_those_of_one_index(folder, mode):
    with opened(folder / "one changed") as one, opened(folder / "hashed 5 changed") as sharded:
        for query in QUERIES:
            alone = one.search(query, mode=mode, explain=True)
            together = sharded.search(query, mode=mode, explain=True)
            assert [hit.to_dict() for hit in together] == [hit.to_dict() for hit in alone]


def test_merging_fused_hits_of_shards_is_not_the_same(folder):
    """Fused scores of a shard are normalized over its candidates, so that merging them gives other rankings."""
    parts = [opened(path) for path in sorted((folder / "contiguous 5").glob("shard-*"))]
    with opened(folder / "one") as one:
        whole = [columns(hits) for hits in one.search(QUERIES)]
    merged = []
    for query in QUERIES:
        found = [hit for part in parts for hit in columns(part.search(query))]
        merged.append(sorted(found, key=lambda hit: -hit[1])[:10])
    for part in parts:
        part.close()
    assert len(parts) == 5
    assert (
        sum(
            [hit[0] for hit in ours] != [hit[0] for hit in theirs]
            for ours, theirs in zip(merged, whole, strict=True)
        )
        > 6
    )


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_equal_scores_are_in_the_order_of_ids_however_many_shards_there_are(tmp_path, mode):
    numbers = random.Random(6).sample(range(150), 150)
    documents = [{"id": f"copy {number:03d}", "text": f"w1 w{number % 3}"} for number in numbers]
    found = []
    for n_shards in (None, 1, 2, 5, 13):
        path = tmp_path / str(n_shards)
        engine.build(documents, path, encoder=ENCODER, shards=n_shards)
        with opened(path) as index:
            found.append([columns(hits) for hits in index.search(["w1 w2", "w2"], k=70, mode=mode)])
    assert all(each == found[0] for each in found)
    tied = [hit[0] for hit in found[0][0] if hit[1] == found[0][0][0][1]]
    assert tied == sorted(tied)
    assert len(tied) == 50


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    """Build indexes with many equal scores, whose documents are added in random order in several commits."""
    root, generator = tmp_path_factory.mktemp("alike"), random.Random(7)
    documents = [
        {
            "id": f"{number:03d}",
            "text": f"w{number % 2} {' '.join(generator.choices(['w2', 'w3', 'w4', 'w5'], k=number % 3))}",
            "metadata": {"number": number % 5},
        }
        for number in generator.sample(range(400), 400)
    ]
    for shards in (None, 1, 2, 5):
        path = root / str(shards)
        engine.build(documents[:250], path, encoder=ENCODER, shards=shards)
        with opened(path, writable=True) as index:
            index.add(documents[250:])
            index.delete([f"{number:03d}" for number in range(0, 400, 9)])
            index.commit()
    return root


@pytest.mark.parametrize("candidates", [None, 12, 40])
def test_candidates_with_equal_scores_are_cut_alike(alike, candidates):
    """Fused scores depend on all candidates, so that documents tied at a cut affect the scores of others."""
    queries = ["w1", "w0 w2", "w3 w4 w1", "w5"]
    cases = [
        {"mode": mode, "fusion": fusion, "filter": only, "candidates": candidates, "offset": offset}
        for mode, fusion in (("hybrid", "linear"), ("hybrid", "rrf"), ("lexical", "linear"), ("dense", "linear"))
        for only in (None, {"number": {"$ne": 2}})
        for offset in (0, 2)
    ]
    found = {}
    for path in alike.iterdir():
        with opened(path) as index:
            found[path.name] = [answers(index, queries=queries, **case) for case in cases]
    for number, case in enumerate(cases):
        for shards in ("1", "2", "5"):
            assert found[shards][number] == found["None"][number], (shards, case)


def test_a_merge_changes_no_order(alike, tmp_path):
    with opened(alike / "None") as index:
        index.snapshot(tmp_path / "copy")
        before = answers(index, queries=["w1", "w0 w2"], k=60)
    with opened(tmp_path / "copy", writable=True) as copy:
        copy.merge()
        assert answers(copy, queries=["w1", "w0 w2"], k=60) == before


@pytest.mark.parametrize("backend", ["auto", "scan"])
def test_backends_that_find_everything_agree_with_one_index(folder, backend):
    with opened(folder / "one", backend=backend) as one, opened(folder / "hashed 5", backend=backend) as sharded:
        assert answers(sharded, mode="dense") == answers(one, mode="dense")
        assert sharded.stats()["backend"]["requested"] == backend


def test_a_filter_is_checked_against_the_values_of_all_shards(folder):
    with opened(folder / "one") as one, opened(folder / "hashed 13") as sharded:
        for only in ({"mixed": "50"}, {"mixed": {"$gt": 3}}, {"id": {"$in": ["document 0007", "document 0100"]}}):
            assert answers(sharded, filter=only) == answers(one, filter=only)
            assert sharded.count(only) == one.count(only) > 0
        for index in (one, sharded):
            with pytest.raises(InvalidFilter, match="number"):
                index.search("w1", filter={"number": "four"})
            with pytest.warns(UnknownFieldWarning, match="nearest fields are 'number'"):
                index.search("w1", filter={"numbre": 4})
            index.search("w2", filter={"numbre": 4})  # a second warning would be an error


def test_documents_are_found_by_their_ids(folder):
    with opened(folder / "one changed") as one, opened(folder / "hashed 5 changed") as sharded:
        ids = ["document 0001", "no such", "document 0000", "document 0003", "\ud800"]
        assert sharded.get(ids) == one.get(ids)
        assert (
            [each in sharded for each in ids] == [each in one for each in ids] == [True, False, True, False, False]
        )


def test_vectors_and_invalid_queries(folder):
    with opened(folder / "one") as one, opened(folder / "hashed 5") as sharded:
        vectors = [ENCODER.encode_query(query) for query in QUERIES]
        alone = [columns(hits) for hits in one.search_vectors(vectors)]
        assert [columns(hits) for hits in sharded.search_vectors(vectors)] == alone
        assert sharded.search([]) == []
        assert columns(sharded.search("...", mode="lexical")) == []
        with pytest.raises(InvalidQuery, match="finite"):
            sharded.search_vectors([[float("nan")] * 32])
        with pytest.raises(InvalidSetting, match="no reranker"):
            sharded.search("w1", rerank=10)


def test_many_threads_may_search_while_terms_are_learned(folder):

    generator = random.Random(5)
    queries = [random_text(generator, 4) for _ in range(40)]
    with opened(folder / "one") as one, opened(folder / "hashed 5") as sharded:
        expected = [columns(one.search(query)) for query in queries]
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda query: columns(sharded.search(query)), queries)) == expected


class CountingReranker:
    """Scores a text by the frequency of the query's first word."""

    name = "count"

    def scores(self, query, texts):
        return np.array([text.split().count(query.split()[0]) for text in texts], np.float32)


def test_reranked_hits_are_those_of_one_index(folder):
    reranker = CountingReranker()
    with (
        opened(folder / "one", reranker=reranker) as one,
        opened(folder / "hashed 5", reranker=reranker) as sharded,
    ):
        alone, together = (index.search(QUERIES, k=5, rerank=30) for index in (one, sharded))
        assert [columns(hits) for hits in together] == [columns(hits) for hits in alone]
        assert all(hits.coverage.is_complete for hits in together)
        assert [hits.coverage for hits in alone] == [None] * len(QUERIES)
