"""Measured settings of searches are compared with counts document by document, and with searches."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support.indexes.format_samples import quantizer
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.quantization.calibration import calibrated
from quarry.engine.quantization.coder import VectorCoder
from quarry.engine.quantization.training import train_quantizer
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.snapshot import Snapshot

DIM = 24


def topics(generator, n, spread=1.5, dim=DIM):
    centres = np.random.default_rng(99).standard_normal((40, dim))
    vectors = centres[generator.integers(0, 40, n)] + spread * generator.standard_normal((n, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def collection(n_docs=1500, seed=0):
    """Return rows and their document numbers, one to five rows per document."""
    generator = np.random.default_rng(seed)
    owners = np.repeat(np.arange(n_docs), generator.integers(1, 6, n_docs))
    return topics(generator, len(owners)), owners


def queries(n=60):
    return topics(np.random.default_rng(5), n)


def in_batches(vectors, owners, size):
    for low in range(0, len(vectors), size):
        yield vectors[low : low + size], owners[low : low + size]


def measured(made, vectors, owners, query_vectors, size=700, **options):
    return calibrated(made, in_batches(vectors, owners, size), query_vectors, 1, **options).search_settings


def decoded(made, lists, codes):
    """Return the vectors that codes represent, rotated: (n, dim) float64."""
    halves = codes if made.nbits == 8 else np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)
    values = made.score_codebook.astype(np.float64)[np.arange(halves.shape[1]), halves].reshape(len(codes), -1)
    return values + made.coarse[lists] if made.by_residual else values


def found_by_codes(made, vectors, owners, query, setting):
    """Return the share of the best documents by decoded codes that a search finds; tied ones count as found."""
    turned = made.rotate(query[None])[0].astype(np.float64)
    lists, codes = VectorCoder(made, 1).code(vectors)
    scores = decoded(made, lists, codes) @ turned
    best = np.full(owners.max() + 1, -np.inf)
    np.maximum.at(best, owners, scores)
    least = np.sort(best)[-setting.k] - 1e-6
    nearest = np.argsort(-(made.coarse.astype(np.float64) @ turned))[: setting.nprobe]
    read = np.flatnonzero(np.isin(lists, nearest))
    rescored = read[np.argsort(-scores[read])[: setting.rows]]
    documents = np.unique(owners[rescored])
    reached = np.full(len(best), -np.inf)
    np.maximum.at(reached, owners[rescored], scores[rescored])
    return min(1.0, np.count_nonzero(reached[documents] >= least) / setting.k)


def needed_rows(made, vectors, owners, query, k, nprobe):
    """Return the number of rows to rescore to find each of the best k documents in the first lists, float64.

    Rows whose scores differ by less than the rounding error count as better.
    """
    turned = made.rotate(query[None])[0].astype(np.float64)
    scores = vectors.astype(np.float64) @ query
    best = {}
    for owner, score in zip(owners.tolist(), scores, strict=True):
        best[owner] = max(score, best.get(owner, -np.inf))
    wanted = sorted(best, key=lambda owner: -best[owner])[:k]
    lists, codes = VectorCoder(made, 1).code(vectors)
    near = made.coarse.astype(np.float64) @ turned
    first = set(np.argsort(-near)[:nprobe].tolist())
    rough = decoded(made, lists, codes) @ turned
    read = np.array([each in first for each in lists.tolist()])
    rows = []
    for owner in wanted:
        own = [row for row in np.flatnonzero(owners == owner) if read[row]]
        rows.append(min((np.sum(rough[read] > rough[row] - 1e-5) for row in own), default=np.inf))
    return rows


def recall(made, vectors, owners, query_vectors, k, nprobe, rows):
    needed = [needed_rows(made, vectors, owners, query, k, nprobe) for query in query_vectors]
    return np.mean(np.array(needed) <= rows)


@pytest.fixture(scope="module")
def trained():
    vectors, owners = collection()
    return train_quantizer(vectors, 32, 4, 0, 1), vectors, owners


@pytest.mark.parametrize(("k", "aim"), [(10, 0.997), (100, 0.991)])
def test_as_much_is_found_as_was_aimed_at_and_no_less_would_do(trained, k, aim):
    made, vectors, owners = trained
    query_vectors = queries(20)
    setting = {each.k: each for each in measured(made, vectors, owners, query_vectors)}[k]
    found = recall(made, vectors, owners, query_vectors, k, setting.nprobe, setting.rows)
    assert aim <= found <= aim + 1 / (len(query_vectors) * k) + 1e-9
    assert recall(made, vectors, owners, query_vectors, k, setting.nprobe, setting.rows - 1) < aim


def test_the_cheapest_of_all_pairs(trained):
    """If lists cost nothing, more lists and fewer rows are read than if rows cost nothing."""
    made, vectors, owners = trained
    found = {}
    for price in (0.01, 1e6):
        found[price] = measured(made, vectors, owners, queries(), codes_per_row=price)[0]
    assert found[0.01].nprobe < found[1e6].nprobe
    assert found[0.01].rows > found[1e6].rows


@pytest.mark.parametrize("variant", [{}, {"by_residual": True}, {"input_dim": DIM}, {"nbits": 8, "apart": True}])
def test_all_kinds_of_quantizers(variant):
    vectors, owners = collection(300)
    made = quantizer(nlist=6, dim=12 if "input_dim" in variant else DIM, n_sub=4, **variant)
    query_vectors = queries(8)
    (setting,) = measured(made, vectors, owners, query_vectors, targets={5: 0.9})
    found = recall(made, vectors, owners, query_vectors, 5, setting.nprobe, setting.rows)
    assert found >= 0.9
    assert recall(made, vectors, owners, query_vectors, 5, setting.nprobe, setting.rows - 1) < 0.9


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_batches_do_not_matter(size):
    """Batches may end within a document, and a document may have rows in several batches."""
    vectors, owners = collection(250)
    made = train_quantizer(vectors, 8, 4, 0, 1)
    assert measured(made, vectors, owners, queries(), size) == measured(made, vectors, owners, queries(), 60)


def test_more_hits_read_no_fewer_lists(trained):
    """If a hundred hits need fewer lists than ten, the best of them would be missed."""
    made, vectors, owners = trained
    ten, hundred = measured(made, vectors, owners, queries(), targets={10: 1.0, 100: 0.5})
    assert hundred.nprobe >= ten.nprobe > 1


def test_only_what_is_kept_counts(trained):
    """At most `max_rows` rows by codes are kept; documents that only more rows would find count as not found."""
    made, vectors, owners = trained
    (ten, hundred) = measured(made, vectors, owners, queries(), max_rows=40)
    assert 1 <= ten.rows < 40
    assert 1 <= hundred.rows < 40


def test_what_older_readers_know_is_measured_alike(trained):
    made, vectors, owners = trained
    query_vectors, before = queries(20), replace(made, probe_recall=np.ones(32, np.float32), candidate_rows=2000)
    found = calibrated(before, in_batches(vectors, owners, 700), query_vectors, 1)
    assert found.candidate_rows == found.search_settings[0].rows
    expected = [
        recall(made, vectors, owners, query_vectors, 10, n, np.finfo(float).max) for n in (1, 2, 5, 13, 32)
    ]
    np.testing.assert_allclose(found.probe_recall[[0, 1, 4, 12, 31]], expected, atol=1e-6)
    assert found.identity() != before.identity()


def test_no_queries_measure_nothing(trained):
    made, vectors, owners = trained
    before = replace(made, candidate_rows=7)
    assert calibrated(before, in_batches(vectors, owners, 99), np.empty((0, DIM), np.float32), 1) is before


@pytest.mark.parametrize(("n_docs", "expected"), [(5, []), (10, []), (11, [10]), (100, [10]), (101, [10, 100])])
def test_as_many_hits_as_documents_need_no_measurement(n_docs, expected):
    vectors, owners = collection(n_docs)
    made = train_quantizer(collection()[0], 8, 4, 0, 1)
    assert [each.k for each in measured(made, vectors, owners, queries())] == expected


class TestCodesOnly:
    """Without full vectors, the best documents are those by decoded codes."""

    @pytest.mark.parametrize("rank", [DIM, 2])
    @pytest.mark.parametrize(("k", "target"), [(10, 0.999), (100, 0.995)])
    def test_the_target_is_reached(self, rank, k, target):
        """The target is also reached for vectors of rank two, where nearly all scores are tied."""
        vectors, owners = collection()
        vectors[:, rank:] = 0
        made = train_quantizer(vectors, 32, 4, 0, 1)
        query_vectors = queries(40)
        query_vectors[:, rank:] = 0
        settings = calibrated(
            made, in_batches(vectors, owners, 700), query_vectors, 1, codes_only=True
        ).search_settings
        (setting,) = (each for each in settings if each.k == k)
        found = [found_by_codes(made, vectors, owners, query, setting) for query in query_vectors]
        assert np.mean(found) >= target

    def test_full_vectors_count_unless_decoded_vectors_are_scaled(self, trained):
        """By codes of 2 bytes the best documents by full vectors are far behind, and need many rows."""
        made, vectors, owners = trained
        of_unequal, of_unit = (
            calibrated(
                replace(made, unit_length=unit_length),
                in_batches(vectors, owners, 700),
                queries(),
                1,
                codes_only=True,
            ).search_settings
            for unit_length in (False, True)
        )
        for one, other in zip(of_unequal, of_unit, strict=True):
            assert one.k == other.k
            assert one.rows > 1.5 * other.rows

    def test_rows_that_rounded_tables_rank_first_are_read_too(self, trained):
        made, vectors, owners = trained
        same = replace(made, unit_length=True)
        for setting in calibrated(
            same, in_batches(vectors, owners, 700), queries(), 1, codes_only=True
        ).search_settings:
            assert setting.rows >= 4 * setting.k


class TestDegenerate:
    @pytest.mark.parametrize("n_kinds", [1, 3])
    @pytest.mark.parametrize("scatter", [0, 1e-8])
    def test_identical_documents_are_not_enough(self, n_kinds, scatter):
        generator = np.random.default_rng(3)
        vectors = topics(generator, n_kinds)[generator.integers(0, n_kinds, 2000)]
        vectors += (scatter * generator.standard_normal(vectors.shape)).astype(np.float32)
        made = train_quantizer(vectors, 16, 4, 0, 1)
        assert measured(made, vectors, np.arange(2000), queries()) == ()

    def test_groups_of_identical_documents(self):
        """In groups of thirty identical documents the ten best are undetermined, so nothing is measured."""
        vectors = np.repeat(collection(300)[0][:200], 30, axis=0)
        made = train_quantizer(vectors, 16, 4, 0, 1)
        assert measured(made, vectors, np.arange(6000), queries()) == ()

    def test_codes_that_tell_nothing_apart(self, trained):
        """If all codes score the same, all rows that are read must be rescored."""
        made, vectors, owners = trained
        flat = np.ones_like(made.encode_codebook)
        same = replace(made, encode_codebook=flat, score_codebook=flat)
        query_vectors, sizes = queries(), np.bincount(VectorCoder(made, 1).code(vectors)[0], minlength=32)
        ranks = np.argsort(-(query_vectors @ made.coarse.T), axis=1)
        for setting in measured(same, vectors, owners, query_vectors):
            read = sizes[ranks[:, : setting.nprobe]].sum(axis=1)
            assert setting.rows >= np.quantile(read, 0.95)

    def test_lists_that_are_all_the_same(self, trained):
        made, vectors, owners = trained
        coarse = np.tile(made.coarse[:1], (32, 1))
        assert {each.nprobe for each in measured(replace(made, coarse=coarse), vectors, owners, queries())} == {32}

    def test_queries_of_zeros_are_not_enough(self, trained):
        made, vectors, owners = trained
        assert measured(made, vectors, owners, np.zeros((20, DIM), np.float32)) == ()

    def test_one_row_is_longer_than_all_others(self, trained):
        """One very long row does not make the differences of all others count as rounding."""
        made, vectors, owners = trained
        longer = vectors.copy()
        longer[100] *= 60_000
        assert [each.k for each in measured(made, longer, owners, queries())] == [10, 100]


WORDS = [f"w{number}" for number in range(300)]


def texts(n, seed):
    generator = np.random.default_rng(seed)
    for number in range(n):
        subject = generator.integers(0, 280)
        words = generator.choice(WORDS[subject : subject + 20], generator.integers(6, 40))
        yield {"id": f"{seed}-{number}", "text": " ".join(words), "title": WORDS[subject] if number % 3 else ""}


def settings_of(path):
    snapshot = Snapshot(Directory(path))
    found = {segment.quantizer.search_settings for segment in snapshot.segments if segment.quantizer}
    snapshot.close()
    return found


SMALL_LISTS = Thresholds(list_rows=1000)
build = partial(engine.build, thresholds=SMALL_LISTS)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build an index of 800 texts once."""
    path = tmp_path_factory.mktemp("texts") / "index"
    build(texts(800, 0), path, encoder=WordEncoder(), representation=KMeans(4))
    return path


class TestIndex:
    def test_a_build_measures_what_real_queries_take(self, tmp_path):
        """With default settings, queries that are not in the sample find nearly what a scan finds."""
        encoder = WordEncoder()
        build(texts(3000, 0), tmp_path, encoder=encoder, representation=KMeans(4))
        (settings,) = settings_of(tmp_path)
        assert [each.k for each in settings] == [10, 100]
        generator = np.random.default_rng(9)
        query_texts = [
            " ".join(generator.choice(WORDS[low : low + 15], 4)) for low in generator.integers(0, 285, 200)
        ]
        with Engine.open(tmp_path, encoder=encoder, backend="cpu_faiss") as fast:
            found = {k: fast.search(query_texts, k=k, mode="dense") for k in (10, 100)}
        with Engine.open(tmp_path, encoder=encoder, backend="scan") as exact:
            for k, aim in ((10, 0.99), (100, 0.98)):
                best = exact.search(query_texts, k=k, mode="dense")
                shares = [
                    len({hit.id for hit in hits} & {hit.id for hit in truth}) / k
                    for hits, truth in zip(found[k], best, strict=True)
                ]
                assert np.mean(shares) > aim

    def test_an_index_of_codes_finds_what_a_scan_of_its_codes_finds(self, tmp_path):
        """Words in a plane have few codes, so that most documents are tied."""

        class Plane(WordEncoder):
            def vector(self, word):
                vector = super().vector(word).copy()
                vector[2:] = 0
                return vector / np.linalg.norm(vector)

        encoder = Plane(dim=16)
        documents = [{"id": str(number), "text": f"w{number}"} for number in range(3000)]
        build(documents, tmp_path, encoder=encoder, centroids="none")
        query_texts = [f"w{number}" for number in range(0, 3000, 20)]
        with Engine.open(tmp_path, encoder=encoder, backend="cpu_faiss") as fast:
            found = fast.search(query_texts, k=10, mode="dense")
        with Engine.open(tmp_path, encoder=encoder, backend="scan") as scan:
            best = scan.search(query_texts, k=10, mode="dense")
        shares = [
            np.mean([hit.score >= truth[-1].score - 1e-4 for hit in hits])
            for hits, truth in zip(found, best, strict=True)
        ]
        assert np.mean(shares) >= 0.99

    @pytest.mark.parametrize(("metric", "scatter"), [("cosine", 0.0), ("ip", 0.3), ("l2", 0.3)])
    def test_codes_of_given_vectors_find_what_a_scan_of_them_finds(self, tmp_path, metric, scatter):
        """Also for other numbers of hits than calibrated ones, and with vectors of unequal lengths."""
        generator = np.random.default_rng(0)
        words = generator.standard_normal((3000, 96))
        shares = 1 / np.arange(1, 3001)
        document_texts = generator.choice(3000, (1500, 20), p=shares / shares.sum())
        lengths = np.exp(scatter * generator.standard_normal(1500))

        def vectors_of(texts):
            found = np.array([words[[int(word[1:]) for word in text.split()]].sum(axis=0) for text in texts])
            return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)

        encoder = engine.FunctionEncoder(vectors_of, dim=96, name="words")
        documents = []
        for number, (numbers, length) in enumerate(zip(document_texts, lengths, strict=True)):
            text = " ".join(f"w{each}" for each in numbers)
            vector = (length * vectors_of([text])).astype(np.float32)
            documents.append({"id": str(number), "text": text, "vectors": vector})
        engine.build(documents, tmp_path, encoder=encoder, centroids="none", metric=metric)
        query_vectors = [vectors_of([" ".join(each["text"].split()[3:11])])[0] for each in documents[::30]]
        with (
            Engine.open(tmp_path, encoder=encoder, backend="cpu_faiss") as fast,
            Engine.open(tmp_path, encoder=encoder, backend="scan") as scan,
        ):
            for k in (10, 50, 100, 200):
                pairs = zip(*(each.search_vectors(query_vectors, k) for each in (fast, scan)), strict=True)
                found = [len({hit.id for hit in one} & {hit.id for hit in other}) / k for one, other in pairs]
                assert np.mean(found) >= 0.99

    @pytest.mark.parametrize("change", ["retrain", "grown"])
    def test_a_merge_measures_too(self, built, tmp_path, change):
        encoder, path = WordEncoder(), tmp_path / "index"
        if change == "retrain":
            shutil.copytree(built, path)
        else:
            build(texts(100, 0), path, encoder=encoder, representation=KMeans(4))
        with Engine.open(path, thresholds=SMALL_LISTS, writable=True, encoder=encoder) as index:
            index.add(texts(200, 1))
            index.delete([f"0-{number}" for number in range(0, 100, 3)])
            index.commit()
            if change == "grown":
                index.add(texts(130, 2))
                index.commit()
            index.merge(retrain=change == "retrain")
            assert index.stats()["n_segments"] == 1
        (settings,) = settings_of(path)
        assert [each.k for each in settings] == [10, 100]

    def test_another_encoder_measures_nothing(self, built, tmp_path):
        """Retraining without the index's encoder measures no search settings."""
        path = shutil.copytree(built, tmp_path / "index")
        before = settings_of(path)
        with Engine.open(path, thresholds=SMALL_LISTS, writable=True) as index:
            index.merge(retrain=True)
        assert settings_of(path) == {()} != before

    def test_the_same_documents_measure_the_same(self, built, tmp_path):
        build(texts(800, 0), tmp_path, encoder=WordEncoder(), representation=KMeans(4))
        assert settings_of(tmp_path) == settings_of(built) != {()}

    def test_an_encoder_that_cannot_encode_queries_builds_all_the_same(self, tmp_path, caplog):
        class Half(WordEncoder):
            def encode_query(self, text):
                raise RuntimeError("documents only")

        build(texts(800, 0), tmp_path, encoder=Half(), representation=KMeans(4))
        assert settings_of(tmp_path) == {()}
        assert "documents only" in caplog.text
