from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.training.tiny_run import write_collection

from quarry.formats.errors import InvalidSetting
from quarry.training.data.batches import BatchSource, Mixture
from quarry.training.data.example_store import ExampleStore, ExampleWriter
from quarry.training.data.refusal import Refusal
from quarry.training.data.sources import SourceSettings, open_source_store


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    folder = write_collection(tmp_path / "collection")
    return open_source_store(
        SourceSettings(name="s", kind="beir", path=folder), tmp_path / "store", Refusal.of_nothing()
    )


def source(
    store: ExampleStore, name: str = "s", seed: int = 0, by_document: bool = False, **sizes: int
) -> BatchSource:
    chosen = {"batch_size": 8, "group_size": 4, "n_negatives": 0} | sizes
    return BatchSource(name, store, seed=seed, by_document=by_document, **chosen)


def test_an_epoch_has_every_example_once(store: ExampleStore) -> None:
    drawn = source(store)
    for epoch in range(2):
        batches = [drawn.batch(number) for number in range(epoch * 6, epoch * 6 + 6)]
        queries = Counter(query for batch in batches for query in batch.queries)
        assert queries == Counter(store.query(each) for each in range(48))
    assert drawn.batch(0).queries != drawn.batch(6).queries


def test_batches_depend_on_seed_and_number_alone(store: ExampleStore) -> None:
    forwards, backwards = source(store), source(store)
    first = [forwards.batch(number) for number in range(13)]
    again = [backwards.batch(number) for number in reversed(range(13))][::-1]
    for left, right in zip(first, again, strict=True):
        assert left.queries == right.queries
        assert left.documents == right.documents
        assert np.array_equal(left.targets, right.targets)
    assert source(store, seed=1).batch(0).queries != first[0].queries


def test_batches_have_runs_of_one_article(store: ExampleStore) -> None:
    groups = {store.query(each): int(group) for each, group in enumerate(store.example_groups())}
    for number in range(6):
        for run in np.array([groups[query] for query in source(store).batch(number).queries]).reshape(2, 4):
            assert len(set(run.tolist())) == 1
    mixed = [
        len({groups[query] for query in source(store, group_size=1).batch(number).queries}) for number in range(6)
    ]
    assert max(mixed) > 2


def test_the_queries_of_a_document_stay_together_in_its_group(tmp_path: Path) -> None:
    with writer(tmp_path) as writing:
        for article in range(4):
            numbers = [writing.document(f"text {article} {each}", f"{article}", "here") for each in range(4)]
            for query in range(3):
                for each, number in enumerate(numbers):
                    writing.example(f"query {article} {each} {query}", [number], [], "here")
        store = writing.finish({})
    drawn = source(store, by_document=True, batch_size=12, group_size=6)
    orders = set()
    for epoch in range(2):
        batches = [drawn.batch(number) for number in range(epoch * 4, epoch * 4 + 4)]
        assert len({query for batch in batches for query in batch.queries}) == 48
        for batch in batches:
            for run in (batch.queries[:6], batch.queries[6:]):
                documents = [query.rpartition(" ")[0] for query in run]
                assert len({document.split()[1] for document in documents}) == 1
                assert documents == [documents[0]] * 3 + [documents[5]] * 3
            assert len(batch.documents) == 4
            for row, query in enumerate(batch.queries):
                assert batch.documents[batch.targets[row]] == f"text {query[6:9]}"
        orders.add(tuple(query for batch in batches for query in batch.queries))
    assert len(orders) == 2
    again = source(store, by_document=True, batch_size=12, group_size=6)
    assert again.batch(5).queries == drawn.batch(5).queries


def test_documents_are_there_once_and_relevance_is_complete(store: ExampleStore) -> None:
    for number in range(6):
        batch = source(store).batch(number)
        assert len(set(batch.documents)) == len(batch.documents)
        for row, query in enumerate(batch.queries):
            has_words = [query in document for document in batch.documents]
            assert batch.relevant[row].tolist() == has_words
            assert batch.relevant[row, batch.targets[row]]


def writer(tmp_path: Path) -> ExampleWriter:
    return ExampleWriter(tmp_path / "store", Refusal.of_nothing())


def test_hard_negatives_come_along_and_relevant_documents_never(tmp_path: Path) -> None:
    with writer(tmp_path) as writing:
        numbers = [writing.document(f"document {each}", "", "here") for each in range(8)]
        for each in range(4):
            writing.example(f"query {each}", [numbers[each]], [numbers[4 + each]], "here")
        store = writing.finish({})
    drawn = source(store, batch_size=2, group_size=1, n_negatives=2)
    # Mined: 3 is the relevant document of the last query, and -1 means none.
    drawn.use_negatives(np.array([[3, -1], [3, -1], [3, -1], [3, -1]]))
    for number in range(2):
        batch = drawn.batch(number)
        query_numbers = {int(query[-1]) for query in batch.queries}
        assert {int(document[-1]) for document in batch.documents} == query_numbers | {
            4 + each for each in query_numbers
        } | {3}
        for row, query in enumerate(batch.queries):
            assert [int(document[-1]) == int(query[-1]) for document in batch.documents] == batch.relevant[
                row
            ].tolist()


def test_one_of_several_relevant_documents_is_the_target(tmp_path: Path) -> None:
    with writer(tmp_path) as writing:
        numbers = [writing.document(f"document {each}", "", "here") for each in range(3)]
        writing.example("a", numbers[:2], [], "here")
        writing.example("b", [numbers[2]], [], "here")
        store = writing.finish({})
    drawn = source(store, batch_size=2, group_size=1)
    targets = Counter(
        batch.documents[batch.targets[batch.queries.index("a")]] for batch in map(drawn.batch, range(40))
    )
    assert set(targets) == {"document 0", "document 1"}


@pytest.mark.parametrize("sizes", [{"batch_size": 49}, {"group_size": 0}, {"group_size": 9}])
def test_sizes_that_do_not_fit_are_refused(store: ExampleStore, sizes: dict[str, int]) -> None:
    with pytest.raises(InvalidSetting, match="sizes of the batches of 's'"):
        source(store, **sizes)


def test_a_mixture_gives_every_source_its_share_at_any_time(store: ExampleStore) -> None:
    mixture = Mixture([source(store, name) for name in "abc"], [3, 2, 1])
    chosen = [mixture.batch(step).source for step in range(60)]
    for n_steps in range(1, 61):
        counts = Counter(chosen[:n_steps])
        assert all(
            abs(counts[name] - n_steps * share) < 1
            for name, share in zip("abc", (1 / 2, 1 / 3, 1 / 6), strict=True)
        )


def test_a_mixture_can_start_anywhere(store: ExampleStore) -> None:
    def mixture() -> Mixture:
        return Mixture([source(store, "a"), source(store, "b", seed=1)], [2, 1])

    whole = mixture()
    expected = [whole.batch(step).queries for step in range(20)]
    assert mixture().batch(17).queries == expected[17]


@pytest.mark.parametrize("weights", [[], [1.0, 0.0], [1.0]])
def test_bad_weights_are_refused(store: ExampleStore, weights: list[float]) -> None:
    with pytest.raises(InvalidSetting, match="cannot be mixed"):
        Mixture([source(store)] * (2 if weights else 0), weights)


def test_clusters_are_those_of_the_directions() -> None:
    torch = pytest.importorskip("torch", reason="clusters on a device need torch")
    from quarry.training.data.clusters import cluster_vectors

    rng = np.random.default_rng(0)
    centers = np.eye(4, 16) * 5
    labels = rng.integers(0, 4, 80)
    values = (centers[labels] + rng.normal(0, 0.2, (80, 16))) * rng.uniform(0.1, 9, (80, 1))
    found = cluster_vectors(torch.from_numpy(values.astype(np.float32)), 8, seed=0)
    for cluster in set(found.tolist()):
        assert len(set(labels[found == cluster].tolist())) == 1
    assert np.array_equal(found, cluster_vectors(torch.from_numpy(values.astype(np.float32)), 8, seed=0))
    assert np.array_equal(np.sort(cluster_vectors(torch.eye(3), 9, seed=0)), np.arange(3))
    with pytest.raises(InvalidSetting):
        cluster_vectors(torch.eye(3), 0, seed=0)


def test_documents_of_other_examples_with_the_same_query_are_no_negatives(tmp_path: Path) -> None:
    with ExampleWriter(tmp_path / "store", Refusal.of_nothing()) as writer:
        first, second, third = (writer.document(text, "", "test") for text in ("one", "two", "three"))
        writer.example("which", [first], [], "test")
        writer.example("which", [second], [first, third], "test")
        writer.example("what", [third], [first], "test")
        store = writer.finish({})
    assert [store.relevant(each).tolist() for each in range(3)] == [[0, 1], [0, 1], [2]]
    batch = BatchSource("s", store, batch_size=3, group_size=1, n_negatives=2, seed=0).batch(0)
    for row, query in enumerate(batch.queries):
        known = {"which": {0, 1}, "what": {2}}[query]
        assert set(batch.numbers[batch.relevant[row]].tolist()) == known & set(batch.numbers.tolist())
        assert set(batch.positives[row].tolist()) == known
        assert not known & set(batch.numbers[batch.negatives[row]].tolist())
