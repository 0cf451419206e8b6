"""BM25 over compressed postings and segments is compared with its formula and with bm25s."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter

import numpy as np
import pytest
from support.indexes.format_samples import reread
from support.indexes.stored import section_of

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.filtering.evaluation import Allowed
from quarry.engine.lexical import bm25, term_scores
from quarry.engine.lexical.bm25 import Bm25
from quarry.engine.lexical.term_scores import Costs
from quarry.formats.container.directory import Directory
from quarry.formats.errors import ChecksumMismatch, InvalidSetting
from quarry.formats.postings.postings import PostingsReader, PostingsWriter

K1, B = 1.2, 0.75
N_DOCS = 1500


class Oracle:
    """Computes the formula over lists of terms, in double precision."""

    def __init__(self, documents, k1=K1, b=B):
        self.counts = [Counter(terms) for terms in documents]
        self.frequency = Counter(term for counts in self.counts for term in counts)
        self.k1, self.b = k1, b
        self.average = sum(map(len, documents)) / len(documents)
        self.lengths = [len(terms) for terms in documents]

    def scores(self, query):
        return np.array([self.score(query, doc) for doc in range(len(self.counts))])

    def score(self, query, doc):
        return sum(self.term_score(term, doc) for term in query if term in self.counts[doc])

    def term_score(self, term, doc):
        n, df, tf = len(self.counts), self.frequency[term], self.counts[doc][term]
        norm = self.k1 * (1 - self.b + self.b * self.lengths[doc] / self.average)
        return math.log(1 + (n - df + 0.5) / (df + 0.5)) * tf / (tf + norm)


def segments(folder, documents, n_segments=1):
    """Write documents to `n_segments` segments of about equal size; return their readers."""
    readers = []
    directory = Directory(folder)
    for number, part in enumerate(np.array_split(np.arange(len(documents)), n_segments)):
        writer = PostingsWriter(directory)
        for doc in part.tolist():
            writer.add(documents[doc])
        name = f"{n_segments}-{number}.seg"
        readers.append(PostingsReader(reread(directory, writer.write, name=name), len(part)))
        writer.close()
    return readers


def flattened(searcher, readers, query, n):
    """Return the n best as (ordinal over all segments, score)."""
    starts = np.cumsum([0] + [reader.n_docs for reader in readers])
    found = searcher.query(query).top(n)
    return list(zip((starts[found.segments] + found.docs).tolist(), found.scores.tolist(), strict=True))


def all_scores(searcher, query):
    """Return the scores of all documents of all segments, 0 for those that do not match."""
    per_segment = []
    for segment, (docs, scores) in zip(searcher.segments, searcher.query(query).scores(), strict=True):
        assert (np.diff(docs) > 0).all()
        assert (scores > 0).all()
        every = np.zeros(segment.n_ordinals, np.float32)
        every[docs] = scores
        per_segment.append(every)
    return np.concatenate(per_segment)


def zipf_documents(n_documents, seed=0, n_terms=2000, mean_length=30):
    generator = np.random.default_rng(seed)
    weights = 1 / np.arange(1, n_terms + 1)
    weights /= weights.sum()
    lengths = generator.poisson(mean_length, n_documents)
    drawn = generator.choice(n_terms, lengths.sum(), p=weights)
    return [[f"t{number}" for number in part] for part in np.split(drawn, np.cumsum(lengths)[:-1])]


def zipf_queries(n_queries, seed=1, n_terms=2000):
    generator = np.random.default_rng(seed)
    numbers = (generator.random((n_queries, 8)) ** 4 * n_terms).astype(int)
    return [[f"t{number}" for number in row[: generator.integers(1, 9)]] for row in numbers]


SPECIAL = [["t0"], ["t0", "t0", "t0"], ["t1999", "t0"], ["absent"], [], ["t3", "absent", "t3", "t1500"]]


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    documents = zipf_documents(N_DOCS)
    folder = tmp_path_factory.mktemp("index")
    return documents, {n: segments(folder, documents, n) for n in (1, 3, 10)}


@pytest.mark.parametrize(("k1", "b"), [(K1, B), (0.9, 0.4), (2.0, 1.0), (1.5, 0.0), (0.0, 0.5)])
def test_scores_are_the_formula(collection, k1, b):
    documents, readers = collection
    searcher, oracle = Bm25(readers[1], [None], k1, b), Oracle(documents, k1, b)
    for query in SPECIAL + zipf_queries(40):
        np.testing.assert_allclose(all_scores(searcher, query), oracle.scores(query), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_segments", [1, 3, 10])
def test_scores_do_not_depend_on_segments(collection, n_segments):
    """Scores have the same bits for any number of segments and any way to compute them."""
    _, readers = collection
    one = Bm25(readers[1], [None])
    many = Bm25(readers[n_segments], [None] * n_segments)
    for query in SPECIAL + zipf_queries(60):
        expected = all_scores(one, query)
        assert all_scores(many, query).tobytes() == expected.tobytes()
        for segment, part in enumerate(np.array_split(expected, n_segments)):
            docs = np.random.default_rng(segment).permutation(len(part))[:50]
            assert many.query(query).score_documents(segment, docs).tobytes() == part[docs].tobytes()
        for n in (1, 10, 100, 5000):
            best = np.lexsort((np.arange(len(expected)), -expected))[:n]
            assert flattened(many, readers[n_segments], query, n) == [
                (doc, expected[doc]) for doc in best.tolist() if expected[doc] > 0
            ]


@pytest.mark.parametrize(("dense", "sparse"), [(0, 0), (0, 10**6), (6, 10**6), (100, 10**6), (10**6, 10**6)])
def test_however_parts_are_held(collection, dense, sparse):
    """Hits do not depend on which terms and queries use dense arrays of scores: none, some or all."""
    _, readers = collection
    expected = Bm25(readers[1], [None])
    wanted = [(query, n) for query in SPECIAL + zipf_queries(40) for n in (1, 20, N_DOCS)]
    answers = [(expected.query(each[0]).top(each[1]), all_scores(expected, each[0])) for each in wanted]
    searcher = Bm25(readers[1], [None], costs=Costs(dense_factor=dense, sparse_factor=sparse))
    for (query, n), (best, every) in zip(wanted, answers, strict=True):
        for found, right in zip(searcher.query(query).top(n)[:3], best[:3], strict=True):
            assert found.tolist() == right.tolist()
        assert all_scores(searcher, query).tobytes() == every.tobytes()


@pytest.mark.parametrize(("per_lookup", "cache_bytes"), [(0, 0), (0, 1 << 20), (4, 20_000), (10**9, 1 << 20)])
def test_frequent_terms_are_looked_up_or_decoded(collection, per_lookup, cache_bytes):
    """Hits and scores have the same bits whether postings are decoded, looked up, or both."""
    _, readers = collection
    flags = [None, np.random.default_rng(7).random(readers[3][1].n_docs) < 0.2, None]
    expected = Bm25(readers[3], flags)
    queries = SPECIAL + zipf_queries(60)
    answers = [(expected.query(each), all_scores(expected, each)) for each in queries]
    costs = Costs(frequent=64, postings_per_lookup=per_lookup)
    searcher = Bm25(readers[3], flags, cache_bytes=cache_bytes, costs=costs)
    docs = np.random.default_rng(8).permutation(N_DOCS // 3)[:200]
    for query, (right, every) in zip(queries, answers, strict=True):
        for n in (1, 20, N_DOCS):
            for found, best in zip(searcher.query(query).top(n)[:3], right.top(n)[:3], strict=True):
                assert found.tolist() == best.tolist()
        for segment in range(3):
            again = searcher.query(query)
            assert again.score_documents(segment, docs).tobytes() == right.score_documents(segment, docs).tobytes()
            assert again.shares(segment, docs).tobytes() == right.shares(segment, docs).tobytes()
            assert again.term_scores(segment, 5) == right.term_scores(segment, 5)
        assert all_scores(searcher, query).tobytes() == every.tobytes()
    assert searcher.cached_bytes <= cache_bytes


def test_the_bound_of_a_frequent_term_is_above_its_scores(collection):
    _, readers = collection
    searcher = Bm25(readers[1], [None])
    (reader,) = readers[1]
    for name in ("t0", "t1", "t5", "t20"):
        entry = reader.find(name)
        lookup = reader.lookup(entry)
        idf = bm25.inverse_document_frequency(N_DOCS, entry.n_docs)
        norms = (K1 * (1 - B + B * reader.lengths / reader.lengths.mean())).astype(np.float32)
        term = term_scores.EncodedTerm.of(entry.n_docs, lookup, norms, float(norms.min()), idf)
        assert all_scores(searcher, [name]).max() <= term.max_score <= idf * 1.001


def test_a_frequent_term_in_many_queries(tmp_path):
    """Documents with only a frequent term that is repeated in the query rank above those with the rare term."""
    documents = [["r", "y"]] * 30 + [["f"] * (1 + number % 7) + ["x"] * 5 for number in range(2000)]
    readers, query = segments(tmp_path, documents), ["r", *["f"] * 400]
    expected = Oracle(documents).scores(query)
    found = flattened(Bm25(readers, [None]), readers, query, 10)
    np.testing.assert_allclose([score for _, score in found], np.sort(expected)[:-11:-1], rtol=1e-5)
    assert min(doc for doc, _ in found) >= 30


def test_the_order_of_the_words_does_not_matter(collection):
    _, readers = collection
    searcher = Bm25(readers[1], [None])
    for query in zipf_queries(30):
        assert all_scores(searcher, query[::-1]).tobytes() == all_scores(searcher, query).tobytes()


@pytest.fixture(scope="module", params=[0.001, 0.1, 0.5, 0.99])
def partly_deleted(request, collection, tmp_path_factory):
    """Return deleted flags (N_DOCS,) bool, the live documents, and their readers in one segment."""
    documents, _ = collection
    deleted = np.random.default_rng(3).random(N_DOCS) < request.param
    live = [terms for terms, gone in zip(documents, deleted.tolist(), strict=True) if not gone]
    return deleted, live, segments(tmp_path_factory.mktemp("live"), live)


@pytest.mark.parametrize("n_segments", [1, 3, 10])
def test_deleted_documents_count_for_nothing(collection, partly_deleted, n_segments):
    """Scores have the same bits as in an index without the deleted documents."""
    _, readers = collection
    deleted, live, live_readers = partly_deleted
    searcher = Bm25(readers[n_segments], np.array_split(deleted, n_segments))
    expected, oracle = Bm25(live_readers, [None]), Oracle(live)
    assert (searcher.n_docs, searcher.average_length) == (expected.n_docs, expected.average_length)
    places = np.flatnonzero(~deleted).tolist()
    for query in SPECIAL + zipf_queries(30):
        scores = all_scores(searcher, query)
        assert not scores[deleted].any()
        assert scores[~deleted].tobytes() == all_scores(expected, query).tobytes()
        np.testing.assert_allclose(scores[~deleted], oracle.scores(query), rtol=1e-5, atol=1e-6)
        for n in (1, 10, N_DOCS):
            best = [(places[doc], score) for doc, score in flattened(expected, live_readers, query, n)]
            assert flattened(searcher, readers[n_segments], query, n) == best


@pytest.mark.parametrize(("dense", "sparse"), [(0, 0), (0, 10**6), (100, 10**6), (10**6, 10**6)])
def test_deleted_documents_however_parts_are_held(collection, dense, sparse):
    _, readers = collection
    flags = np.array_split(np.random.default_rng(4).random(N_DOCS) < 0.3, 3)
    queries = SPECIAL + zipf_queries(30)
    expected = Bm25(readers[3], flags)
    answers = [flattened(expected, readers[3], query, 20) for query in queries]
    searcher = Bm25(readers[3], flags, costs=Costs(dense_factor=dense, sparse_factor=sparse))
    assert [flattened(searcher, readers[3], query, 20) for query in queries] == answers


def test_a_term_that_only_deleted_documents_have(tmp_path):
    documents = [["a", "b"], ["b"], ["a", "c"]]
    searcher = Bm25(segments(tmp_path, documents), [np.array([False, False, True])])
    assert all_scores(searcher, ["c"]).tolist() == [0, 0, 0]
    assert searcher.query(["a", "c"]).term_scores(0, 0).keys() == {"a"}
    expected = Oracle(documents[:2])
    np.testing.assert_allclose(all_scores(searcher, ["a", "b", "c"])[:2], expected.scores(["a", "b"]), rtol=1e-5)


def test_a_segment_of_deleted_documents_only(collection):
    _, readers = collection
    assert len(Bm25(readers[1], [np.ones(N_DOCS, bool)]).query(["t0", "t1", "t500"]).top(10).docs) == 0


def test_no_segments():
    searcher = Bm25([], [])
    assert searcher.query(["x"]).scores() == []
    assert len(searcher.query(["x"]).top(10).docs) == 0


def test_documents_without_terms(tmp_path):
    readers = segments(tmp_path, [[], ["a"], []])
    for b in (0.0, 1.0):
        assert flattened(Bm25(readers, [None], b=b), readers, ["a"], 10)[0][0] == 1
    empty = segments(tmp_path, [[], []], 2)
    assert len(Bm25(empty, [None, None]).query(["a"]).top(10).docs) == 0


def test_equal_scores_are_in_the_order_of_the_documents(tmp_path):
    documents = [["a", "b"] if number % 3 else ["c", "b"] for number in range(3000)]
    for n_segments in (1, 4):
        readers = segments(tmp_path, documents, n_segments)
        found = flattened(Bm25(readers, [None] * n_segments), readers, ["a"], 5)
        assert [doc for doc, _ in found] == [1, 2, 4, 5, 7]


def test_what_each_term_adds(collection):
    documents, readers = collection
    searcher, oracle = Bm25(readers[3], [None] * 3), Oracle(documents)
    query = ["t0", "t2", "t2", "t40", "absent"]
    for doc in range(0, N_DOCS, 37):
        segment = next(n for n in range(3) if doc < sum(len(reader.lengths) for reader in readers[3][: n + 1]))
        start = sum(len(reader.lengths) for reader in readers[3][:segment])
        found = searcher.query(query).term_scores(segment, doc - start)
        assert found.keys() == set(query) & set(documents[doc])
        for term, score in found.items():
            assert score == pytest.approx(query.count(term) * oracle.term_score(term, doc), rel=1e-5)


def test_of_too_many_terms_the_rarest_count(tmp_path):
    documents = [["a", "b", "c"], ["a", "b"], ["a"], ["d"]]
    readers = segments(tmp_path, documents, 2)
    oracle = Oracle(documents)
    found = all_scores(Bm25(readers, [None] * 2, costs=Costs(max_terms=2)), ["a", "absent", "b", "c", "zero"])
    np.testing.assert_allclose(found, oracle.scores(["b", "c"]), rtol=1e-5)


def test_the_rarest_terms_are_those_of_live_documents(tmp_path):
    """Rarity counts live documents: "a" is the most frequent term of all documents, "c" of the live ones."""
    live = [["a", "b", "c"], ["b", "c"], ["c"], ["x"]]
    documents = [*live[:2], *[["a", "d"]] * 5, *live[2:]]
    flags = [np.array(["d" in terms for terms in part]) for part in (documents[:5], documents[5:])]
    found = all_scores(
        Bm25(segments(tmp_path, documents, 2), flags, costs=Costs(max_terms=2)), ["a", "b", "c", "d"]
    )
    expected = Oracle(live).scores(["a", "b"])
    np.testing.assert_allclose(found[~np.concatenate(flags)], expected, rtol=1e-5)


def test_a_query_of_ten_thousand_words(collection):
    documents, readers = collection
    oracle = Oracle(documents)
    query = [f"t{number}" for number in range(2000)] * 5
    present = sorted(term for term in set(query) if oracle.frequency[term])
    kept = sorted(present, key=lambda term: oracle.frequency[term])[: Costs.max_terms]
    assert len(kept) < len(present)
    for n_segments in (1, 3):
        found = all_scores(Bm25(readers[n_segments], [None] * n_segments), query)
        expected = [oracle.score(kept * 5, doc) for doc in range(200)]
        np.testing.assert_allclose(found[:200], expected, rtol=1e-4)


@pytest.mark.parametrize("settings", [{"k1": -1}, {"k1": math.inf}, {"k1": math.nan}, {"b": -0.1}, {"b": 1.1}])
def test_settings_out_of_bounds(settings):
    with pytest.raises(InvalidSetting):
        Bm25([], [], **settings)


@pytest.mark.parametrize("cache_bytes", [0, 5_000, 100_000])
def test_a_small_cache_changes_nothing(collection, cache_bytes):
    _, readers = collection
    flags = [None, np.random.default_rng(7).random(readers[3][1].n_docs) < 0.2, None]
    large, small = Bm25(readers[3], flags), Bm25(readers[3], flags, cache_bytes=cache_bytes)
    for query in zipf_queries(40) + zipf_queries(40):
        assert all_scores(small, query).tobytes() == all_scores(large, query).tobytes()
    assert small.cached_bytes <= cache_bytes


def test_many_threads_search_at_once(collection):
    _, readers = collection
    searcher = Bm25(readers[3], [None] * 3, cache_bytes=50_000)
    queries = zipf_queries(60)
    expected = [flattened(Bm25(readers[3], [None] * 3), readers[3], query, 20) for query in queries]
    wrong = []

    def search(seed):
        order = np.random.default_rng(seed).permutation(len(queries)).tolist()
        wrong.extend(
            number for number in order if flattened(searcher, readers[3], queries[number], 20) != expected[number]
        )

    threads = [threading.Thread(target=search, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_damaged_postings_are_reported(tmp_path):
    (reader,) = segments(tmp_path, zipf_documents(300))
    path = tmp_path / "1-0.seg"
    data, postings = bytearray(path.read_bytes()), section_of(path, "postings")
    data[postings] = b"\xff" * len(data[postings])
    path.write_bytes(data)
    with pytest.raises(ChecksumMismatch, match="postings"):
        Bm25([reader], [None]).query(["t0", "t1"]).top(10)


def cranfield(data_folder):
    folder = data_folder("cranfield")
    analyzer = Analyzer()
    with (folder / "corpus.jsonl").open(encoding="utf-8") as lines:
        documents = [analyzer.terms(f"{each['title']}\n{each['text']}") for each in map(json.loads, lines)]
    with (folder / "queries.jsonl").open(encoding="utf-8") as lines:
        queries = [analyzer.terms(each["text"]) for each in map(json.loads, lines)]
    return documents, queries


def test_a_real_collection(data_folder, tmp_path):
    documents, queries = cranfield(data_folder)
    oracle = Oracle(documents)
    readers = segments(tmp_path, documents, 4)
    searcher = Bm25(readers, [None] * 4)
    for query in queries[::8]:
        expected = oracle.scores(query)
        np.testing.assert_allclose(all_scores(searcher, query), expected, rtol=1e-5, atol=1e-6)
        found = flattened(searcher, readers, query, 10)
        np.testing.assert_allclose([score for _, score in found], np.sort(expected)[:-11:-1], rtol=1e-5)


def test_bm25s_gives_the_same_scores(data_folder, tmp_path):
    bm25s = pytest.importorskip("bm25s", reason="bm25s is not installed")
    documents, queries = cranfield(data_folder)
    readers = segments(tmp_path, documents, 3)
    searcher = Bm25(readers, [None] * 3)
    peer = bm25s.BM25(k1=K1, b=B, method="lucene", backend="numpy")
    peer.index(documents, show_progress=False)
    for query in queries:
        every = all_scores(searcher, query)
        docs, scores = peer.retrieve([query], k=100, show_progress=False)
        np.testing.assert_allclose(every[docs[0]], scores[0], atol=1e-4)
        ours = [score for _, score in flattened(searcher, readers, query, 100)]
        np.testing.assert_allclose(ours, scores[0][: len(ours)], atol=1e-4)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 1.0])
def test_a_filter_leaves_the_best_of_what_passes(collection, share):
    """Filtered scores have the same bits as unfiltered ones, whether few or many documents pass."""
    _, readers = collection
    flags = np.random.default_rng(5).random(N_DOCS) < share
    flags[:2] = share > 0
    for n_segments in (1, 10):
        searcher = Bm25(readers[n_segments], [None] * n_segments)
        allowed = [Allowed(part) for part in np.array_split(flags, n_segments)]
        for query in SPECIAL + zipf_queries(30):
            looked_up = searcher.query(query)
            every = [
                np.where(part.flags, all_of(part, scores), 0)
                for part, scores in zip(allowed, looked_up.scores(), strict=True)
            ]
            found = looked_up.top(10, allowed)
            best = np.sort(np.concatenate(every))[::-1][: len(found.docs)]
            assert len(found.docs) == min(10, np.count_nonzero(np.concatenate(every)))
            assert found.scores.tobytes() == best.tobytes() == found.lexical.tobytes()
            for segment, doc, score in zip(
                found.segments.tolist(), found.docs.tolist(), found.scores, strict=True
            ):
                assert every[segment][doc] == score


def all_of(allowed, scored):
    every = np.zeros(len(allowed.flags), np.float32)
    every[scored[0]] = scored[1]
    return every
