"""Shards answer all queries as one index does, to the last bit, also after all kinds of changes."""

from __future__ import annotations

import pytest
from support.indexes.parity import ENCODER, LIKE, QUERIES, change, dicts, questions, varied_documents

from quarry import engine
from quarry.engine import Engine, InvalidQuery

DOCUMENTS = varied_documents(110)
METRICS = ("ip", "cosine", "l2")
SHARDS = (None, 1, 5, 13)


def opened(path, **options):
    return Engine.open(path, encoder=ENCODER, **({"backend": "exact", "threads": 1} | options))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("parity")
    for metric in METRICS:
        for shards in SHARDS if metric == "l2" else (None, 5):
            path = root / f"{metric} {shards}"
            engine.build(DOCUMENTS, path, encoder=ENCODER, shards=shards, metric=metric, threads=1)
            with opened(path, writable=True) as index:
                change(index)
    return root


@pytest.fixture(scope="module")
def answers(folder):
    """Return the answers of each index to all queries, by name."""
    found = {}
    for path in folder.iterdir():
        with opened(path) as index:
            found[path.name] = {name: ask(index) for name, ask in questions().items()}
    return found


@pytest.mark.parametrize("metric", METRICS)
def test_shards_answer_as_one_index(answers, metric):
    one, sharded = answers[f"{metric} None"], answers[f"{metric} 5"]
    for name in one:
        assert sharded[name] == one[name], name
    assert one["hybrid, relevant"] != one["hybrid, explained"]
    assert all(hits for hits, *_ in one["lexical, like"])
    assert one["lexical, explained"] != one["lexical, without corrections"]


@pytest.mark.parametrize("shards", [1, 13])
def test_any_number_of_shards_answers_alike(answers, shards):
    for name, answer in answers["l2 5"].items():
        assert answers[f"l2 {shards}"][name] == answer, name


def test_copied_and_merged_shards_answer_alike(folder, tmp_path):
    def found(index):
        return dicts(index.search(QUERIES, explain=True)), dicts(index.search(like=each) for each in LIKE)

    with opened(folder / "l2 5") as index:
        before = found(index)
        index.snapshot(tmp_path / "copy")
    with opened(tmp_path / "copy", writable=True) as copy:
        assert found(copy) == before
        assert copy.verify().n_documents == len(copy)
        copy.merge()
        assert found(copy) == before


def test_documents_with_single_characters_of_unspaced_scripts_are_searched_alike(tmp_path):
    words = ("日", "apple", "baker", "駅", "cider")
    texts = [" ".join(words[(row * 7 + place * row) % 5] for place in range(2 + row % 5)) for row in range(30)]
    documents = [{"id": f"d{row}", "text": text} for row, text in enumerate(texts)]
    found = []
    for shards in (None, 3):
        engine.build(documents, tmp_path / str(shards), encoder=ENCODER, shards=shards, threads=1)
        with opened(tmp_path / str(shards)) as index:
            found.append([dicts([index.search(like=f"d{row}", mode="lexical")]) for row in range(30)])
    assert found[0] == found[1]
    assert any(hits for each in found[0] for hits in each)


def test_a_document_that_is_not_there_is_named_with_the_index(folder):
    for shards in SHARDS:
        path = folder / f"l2 {shards}"
        with opened(path) as index, pytest.raises(InvalidQuery) as caught:
            index.search(like="nobody")
        assert (caught.value.path, caught.value.actual) == (path, "'nobody'")
