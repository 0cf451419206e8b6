from pathlib import Path

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry.formats.errors import InvalidSetting
from quarry.training.data.example_store import ExampleStore, ExampleWriter
from quarry.training.data.negatives import NegativeSettings, mine_negatives
from quarry.training.data.refusal import Refusal

SUBJECTS = ("red", "blue", "green", "black")
OBJECTS = ("house", "tree", "river", "stone", "cloud")


@pytest.fixture
def store(tmp_path: Path) -> ExampleStore:
    """Write twenty documents of two words, five of each color, each with its words as the query."""
    with ExampleWriter(tmp_path / "store", Refusal.of_nothing()) as writer:
        for subject in SUBJECTS:
            for thing in OBJECTS:
                number = writer.document(f"{subject} {thing}", subject, "here")
                writer.example(f"{subject} {thing}", [number], [], "here")
        return writer.finish({})


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_negatives_are_near_and_not_relevant(store: ExampleStore, mode: str) -> None:
    mined = mine_negatives(store, WordEncoder(), NegativeSettings(mode=mode, depth=8, count=3, margin=1.0), seed=0)
    assert mined.shape == (20, 3)
    for example, numbers in enumerate(mined.tolist()):
        assert example not in numbers
        found = [store.document(number) for number in numbers if number >= 0]
        assert len(set(found)) == 3
        words = set(store.query(example).split())
        assert all(words & set(text.split()) for text in found)


def test_quotation_marks_in_a_query_do_not_keep_negatives_away(tmp_path: Path) -> None:
    with ExampleWriter(tmp_path / "store", Refusal.of_nothing()) as writer:
        texts = ["who wrote red house", "red tree", "blue house", "green river"]
        numbers = [writer.document(text, "", "here") for text in texts]
        writer.example('who wrote "red house"', [numbers[0]], [], "here")
        store = writer.finish({})
    mined = mine_negatives(store, WordEncoder(), NegativeSettings(mode="lexical", depth=4, count=4), seed=0)
    assert sorted(mined[0].tolist()) == [-1, -1, numbers[1], numbers[2]]


def test_what_is_relevant_to_a_query_is_no_negative_of_another_example_with_it(tmp_path: Path) -> None:
    with ExampleWriter(tmp_path / "store", Refusal.of_nothing()) as writer:
        numbers = [
            writer.document(text, "", "here") for text in ("red house", "red tree", "red river", "blue tree")
        ]
        for number in numbers[:2]:
            writer.example("red", [number], [], "here")
        store = writer.finish({})
    settings = NegativeSettings(mode="lexical", depth=4, count=4, margin=10.0)
    mined = mine_negatives(store, WordEncoder(), settings, seed=0)
    assert [set(row) - {-1} for row in mined.tolist()] == [{numbers[2]}, {numbers[2]}]


def test_the_same_seed_gives_the_same_negatives(store: ExampleStore) -> None:
    settings = NegativeSettings(depth=8, count=3, margin=1.0)
    first, again = (mine_negatives(store, WordEncoder(), settings, seed=4) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, mine_negatives(store, WordEncoder(), settings, seed=5))


class Below(WordEncoder):
    """Makes queries that all documents have negative scores with, in the same order."""

    def encode_query(self, text: str) -> np.ndarray:
        return super().encode_query(text) - 1


@pytest.mark.parametrize("encoder", [WordEncoder(), Below()])
def test_hits_that_score_nearly_as_the_relevant_document_are_left_out(
    tmp_path: Path, encoder: WordEncoder
) -> None:
    with ExampleWriter(tmp_path / "store", Refusal.of_nothing()) as writer:
        texts = ["red house", "house red", "red tree", "blue river"]
        numbers = [writer.document(text, "", "here") for text in texts]
        writer.example("red house", [numbers[0]], [], "here")
        store = writer.finish({})
    everything = mine_negatives(store, encoder, NegativeSettings(depth=4, count=4, margin=1.0), seed=0)
    filtered = mine_negatives(store, encoder, NegativeSettings(depth=4, count=4, margin=0.95), seed=0)
    # The same words in another order score like the relevant document, so they are not a negative.
    assert numbers[1] not in filtered[0]
    assert numbers[2] in filtered[0]
    assert (everything >= 0).sum() >= (filtered >= 0).sum()


def test_the_first_hits_are_skipped(store: ExampleStore) -> None:
    near = mine_negatives(store, WordEncoder(), NegativeSettings(depth=20, count=20, margin=1.0), seed=0)
    far = mine_negatives(store, WordEncoder(), NegativeSettings(depth=20, count=20, skip=9, margin=1.0), seed=0)
    assert (near[0] >= 0).sum() == 19
    assert (far[0] >= 0).sum() == 11
    assert not any(
        set(store.document(number).split()) & {"red", "house"} for number in far[0][far[0] >= 0].tolist()
    )


@pytest.mark.parametrize(
    "change", [{"mode": "x"}, {"depth": 0}, {"count": 99}, {"skip": 50}, {"margin": 0.0}, {"every": -1}]
)
def test_bad_settings_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting):
        NegativeSettings(**change)  # type: ignore[arg-type]
