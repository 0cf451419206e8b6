from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, FirstM, KMeans, Mean, Pieces
from quarry.engine.search.hits.hit_builder import find_matches
from quarry.engine.search.passages import PassagePlace
from quarry.formats.documents.spans import pack_spans
from quarry.formats.documents.store import StoredDocument
from quarry.formats.errors import CorruptFile

PATH = Path("somewhere.seg")
SPANS = [[(0, 5)], [(6, 10), (12, 17)], [(0, 17)]]


def stored(spans, title="", text="First part. Second one"):
    return StoredDocument(title, text, {}, pack_spans(spans))


def test_max_names_the_best_centroid_alone():
    found = find_matches(stored(SPANS), np.array([0.2, 0.9, 0.5], np.float32), None, PassagePlace(PATH))
    assert [(match.spans, match.text, match.weight) for match in found] == [
        (((6, 10), (12, 17)), "part … Secon", 1.0)
    ]
    assert found[0].score == pytest.approx(0.9)


def test_softmax_names_all_by_weight():
    scores = np.array([0.2, 0.9, 0.5], np.float32)
    found = find_matches(stored(SPANS), scores, 2.0, PassagePlace(PATH))
    weights = np.exp(2 * scores) / np.exp(2 * scores).sum()
    assert [match.text for match in found] == ["part … Secon", "First part. Secon", "First"]
    np.testing.assert_allclose([match.weight for match in found], weights[[1, 2, 0]], rtol=1e-6)


def test_hundreds_of_equal_centroids_are_all_named():
    spans = [[(number, number + 1)] for number in range(500)]
    found = find_matches(stored(spans, text="x" * 500), np.full(500, 0.3, np.float32), 1.0, PassagePlace(PATH))
    assert [match.spans for match in found] == [((number, number + 1),) for number in range(500)]
    assert sum(match.weight for match in found) == pytest.approx(1)


def test_a_centroid_without_weight_is_left_out():
    found = find_matches(stored(SPANS), np.array([0, 1000, 0], np.float32), 10.0, PassagePlace(PATH))
    assert [match.weight for match in found] == [1.0]


def test_the_title_is_part_of_the_text():
    found = find_matches(
        stored([[(0, 3)], [(4, 8)]], "One", "Two three"), np.array([1, 1], np.float32), 1.0, PassagePlace(PATH)
    )
    assert [match.text for match in found] == ["One", "Two "]


def test_spans_of_another_document():
    with pytest.raises(CorruptFile, match=r"somewhere\.seg.*expected 2; found 3"):
        find_matches(stored(SPANS), np.ones(2, np.float32), None, PassagePlace(PATH))


LONG = " ".join(f"Sentence {number} speaks of thing{number}. Nobody knew." for number in range(60))
DOCUMENTS = [
    {"id": "long", "title": "A title é文", "text": LONG},
    {"id": "short", "text": "thing3 alone"},
    {"id": "one", "text": "thing3"},
]


@pytest.mark.parametrize("beta", [None, 12.0])
@pytest.mark.parametrize("representation", [Pieces(8), KMeans(5), FirstM(4), Mean()], ids=lambda r: r.name)
def test_the_engine_explains(tmp_path, beta, representation):
    encoder = WordEncoder(beta=beta)
    engine.build(DOCUMENTS, tmp_path / "index", encoder=encoder, representation=representation)
    with Engine.open(tmp_path / "index", encoder=encoder) as index:
        hits = index.search("thing3", explain=True, mode="dense")
        assert [hit.matches for hit in index.search("thing3", mode="dense")] == [()] * 3
    assert {hit.id for hit in hits} == {"long", "short", "one"}
    for hit in hits:
        full = f"{hit.title}\n{hit.text}" if hit.title else hit.text
        weights = [match.weight for match in hit.matches]
        assert sum(weights) == pytest.approx(1, abs=1e-5)
        assert weights == sorted(weights, reverse=True)
        assert sum(match.weight * match.score for match in hit.matches) == pytest.approx(hit.score, abs=1e-5)
        if beta is None:
            assert weights == [1.0]
        for match in hit.matches:
            assert match.text == " … ".join(full[low:high] for low, high in match.spans)
            assert all(0 <= low < high <= len(full) for low, high in match.spans)
            assert match.text.strip()


def test_the_best_part_is_the_requested_one(tmp_path):
    encoder = WordEncoder()
    engine.build(DOCUMENTS, tmp_path / "index", encoder=encoder, representation=Pieces(8))
    with Engine.open(tmp_path / "index", encoder=encoder) as index:
        hits = index.search("Sentence 41 speaks of thing41", explain=True, mode="dense")
    assert hits[0].id == "long"
    assert "thing41" in hits[0].matches[0].text
    assert len(hits[0].matches[0].text) < 100
