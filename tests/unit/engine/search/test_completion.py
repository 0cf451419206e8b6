"""Search as you type: the last word of a text is completed."""

from __future__ import annotations

import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.formats.errors import InvalidSetting

ENCODER = WordEncoder()
TEXTS = {
    "router": "A wireless router for the home.",
    "phones": "Wireless headphones, a computer and a wirelike cord.",
    "fence": "Fencing wire of steel.",
    "zurich": "Zürich has trams and high-speed trains.",
    "tokyo": "東京都の天気",
    "law": "A theory of international law.",
}
DOCUMENTS = [{"id": name, "text": text} for name, text in TEXTS.items()]


@pytest.fixture(scope="module", params=[None, 2], ids=["one", "shards"])
def index(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("completed") / "index"
    engine.build(DOCUMENTS, folder, encoder=ENCODER, shards=request.param)
    with Engine.open(folder, encoder=ENCODER) as opened:
        yield opened


def found(index, text, **options):
    return [(hit.id, hit.score, hit.relevance) for hit in index.search(text, k=len(TEXTS), **options)]


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("wirel", "wireless"),  # in two documents, wirelike in one
        ("steel WIREL", "steel wireless"),
        ("wirelik", "wirelike"),
        ("comp", "computer"),  # a word, not its stem
        ("internat", "international"),  # whose stem is shorter
        ("the spe", "the speed"),  # a part of a compound
        ("zur", "zürich"),
        ("wire", "wire"),  # a word of the documents stays
        ("wirel ", "wirel "),  # has ended
        ("wirel?", "wirel?"),
        ("w", "w"),
        ("wires of the", "wires of the"),  # a stop word
        ("wierless", "wierless"),  # no word begins so
        ("東", "東"),
        ("東京都の天", "東京都の天"),
    ],
)
def test_the_text_that_is_encoded_is_completed(index, typed, completed):
    assert found(index, typed, mode="dense", prefix=True) == found(index, completed, mode="dense")
    by_text = {hit.id: hit.dense_score for hit in index.search(completed, k=len(TEXTS))}
    assert by_text == {hit.id: hit.dense_score for hit in index.search(typed, k=len(TEXTS), prefix=True)}


def test_words_with_the_beginning_are_found_below_the_completed_one(index):
    ids = {
        typed: [each[0] for each in found(index, typed, mode="lexical", prefix=True)]
        for typed in ("wirel", "wire")
    }
    assert set(ids["wirel"]) == {"router", "phones"}
    assert ids["wire"][0] == "fence"
    assert set(ids["wire"]) == {"fence", "router", "phones"}
    assert index.search("wirel", mode="lexical", prefix=True, total=True).total == 2


@pytest.mark.parametrize("typed", ["the", "w", "wirel ", "wierless", "zzzzz", "", "東", "東京"])
def test_what_is_not_completed_is_searched_for_as_it_is(index, typed):
    assert found(index, typed, mode="lexical", prefix=True) == found(index, typed, mode="lexical")


def test_conditions_are_not_completed(index):
    for typed in ("steel -wirel", "steel +wirel", "id:fenc"):
        given = {"mode": "lexical", "operators": True}
        assert found(index, typed, prefix=True, **given) == found(index, typed, **given)


def test_a_rare_word_that_is_complete_stays_among_many_longer_ones(tmp_path):
    texts = [*(f"A carton of {number}" for number in range(200)), "A car", "Cartography"]
    docs = [{"id": f"{number:03d}", "text": text} for number, text in enumerate(texts)]
    engine.build(docs, tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER) as index:
        for typed, completed in (("car", "car"), ("cart", "carton"), ("cartog", "cartography")):
            assert found(index, typed, mode="dense", prefix=True) == found(index, completed, mode="dense")
        assert index.search("cart", mode="lexical", prefix=True, total=True).total == 201


def test_several_texts_are_completed_each_by_itself(index):
    texts = ["wirel", "law", "the", "wirel"]
    together = [[hit.id for hit in hits] for hits in index.search(texts, prefix=True)]
    assert together == [[hit.id for hit in index.search(text, prefix=True)] for text in texts]


def test_documents_that_were_deleted_have_no_completions(tmp_path):
    engine.build(DOCUMENTS, tmp_path / "index", encoder=ENCODER)
    with Engine.open(tmp_path / "index", encoder=ENCODER, writable=True) as index:
        index.add([{"id": "added", "text": "Wirelike."}])
        index.delete(["router", "phones"])
        index.commit()
        assert found(index, "wirel", mode="dense", prefix=True) == found(index, "wirelike", mode="dense")
        index.delete([hit.id for hit in index.search("", filter={"id": {"$ne": ""}}, k=9)])
        index.commit()
        assert found(index, "wirel", prefix=True) == []


@pytest.mark.parametrize("value", ["yes", 2, None])
def test_the_option_is_a_flag(index, value):
    with pytest.raises(InvalidSetting, match="prefix"):
        index.search("wirel", prefix=value)
