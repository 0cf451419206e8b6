"""Weights of the title and of searchable fields in lexical search."""

from __future__ import annotations

import math
import shutil
from collections import Counter

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, InvalidSetting, KMeans
from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.cli import commands

ENCODER, OTHER = WordEncoder(), WordEncoder(name="others")
WEIGHTS = {"title": 3, "brand": 2}
K1, B = 1.2, 0.75


def documents(n, seed=0):
    """Return documents of random words, whose fields have the same ones."""
    random = np.random.default_rng(seed)
    names = [f"word{letter}" for letter in "abcdefghijklmnop"]

    def words(low, high):
        return " ".join(random.choice(names, int(random.integers(low, high))))

    return [
        {
            "id": f"d{number}",
            "title": words(0, 5),
            "text": words(1, 40),
            "metadata": {"brand": [words(1, 3), words(1, 3)] if number % 3 else None, "color": words(1, 3)},
        }
        for number in range(n)
    ]


def build(path, given, **settings):
    settings = {"searchable": ["color", "brand"], "field_weights": WEIGHTS, **settings}
    engine.build(given, path, encoder=ENCODER, representation=KMeans(2), **settings)
    return path


def bm25f(given, query, weights=WEIGHTS):
    """Return the scores of documents by Equations 1 to 4 of the paper, with the idf of Lucene."""
    analyzer = Analyzer("english")
    frequencies, lengths = [], []
    for document in given:
        brands = document["metadata"]["brand"] or []
        fields = {
            "title": document["title"],
            "text": document["text"],
            "brand": " ".join([brands] if isinstance(brands, str) else brands),
            "color": document["metadata"]["color"],
        }
        counts = {name: Counter(analyzer.terms(text)) for name, text in fields.items()}
        total = Counter()
        for name, own in counts.items():
            total.update({term: n * weights.get(name, 1) for term, n in own.items()})
        frequencies.append(total)
        lengths.append(sum(weights.get(name, 1) * own.total() for name, own in counts.items()))
    n, average, scores = len(given), sum(lengths) / len(given), np.zeros(len(given))
    for term in analyzer.terms(query):
        having = sum(term in each for each in frequencies)
        idf = math.log(1 + (n - having + 0.5) / (having + 0.5))
        for number, (each, length) in enumerate(zip(frequencies, lengths, strict=True)):
            scores[number] += idf * each[term] / (each[term] + K1 * (1 - B + B * length / average))
    return {document["id"]: score for document, score in zip(given, scores, strict=True) if score > 0}


def check(index, given, query="worda wordd wordk"):
    found = index.search(query, mode="lexical", typos=False, k=1000)
    expected = bm25f(given, query)
    assert {hit.id: hit.score for hit in found} == pytest.approx(expected, rel=1e-5)
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


def changed(given):
    """Return documents after the changes of `change`."""
    given = [dict(each) for each in given if each["id"] != "d7"]
    given[3]["metadata"] = {**given[3]["metadata"], "brand": "worda worda"}
    given[4]["metadata"] = {"color": "wordd", "brand": None}
    return [*given, {"id": "new", "title": "worda", "text": "wordd", "metadata": {"brand": "wordk", "color": ""}}]


def change(index, given):
    index.delete(["d7"])
    index.update_metadata(given[3]["id"], {"brand": "worda worda"})
    index.update_metadata(given[4]["id"], {"color": "wordd", "brand": None})
    index.add(changed(given)[-1:])
    index.commit()


@pytest.mark.parametrize("settings", [{}, {"shards": 3}, {"workers": 2}])
def test_scores_are_those_of_bm25f_after_all_changes(tmp_path, settings):
    given = documents(60)
    with Engine.open(build(tmp_path / "index", given, **settings), encoder=ENCODER, writable=True) as index:
        check(index, given)
        change(index, given)
        check(index, changed(given))
        index.merge()
        check(index, changed(given))
        for hit in index.search("worda wordd", mode="lexical", explain=True):
            assert sum(hit.terms.values()) == pytest.approx(hit.score, rel=1e-5)
        if "shards" not in settings:
            index.reencode(OTHER)
            index.add([{**changed(given)[0], "text": "wordk"}])
            index.commit()
            check(index, [*changed(given)[1:], {**changed(given)[0], "text": "wordk"}])


def test_documents_with_vectors_columns_and_upgrades(tmp_path):
    given = documents(40)
    vectors = np.float32([[1, number] for number in range(40)])
    with_vectors = [{**each, "vectors": [[1, 0]]} for each in given[:20]]
    settings = {"searchable": ["brand", "color"], "field_weights": WEIGHTS, "passage_words": None}
    engine.build(with_vectors, tmp_path / "index", dim=2, **settings)
    with Engine.open(tmp_path / "index", writable=True) as index:
        columns = {name: [each[name] for each in given[20:]] for name in ("title", "text", "metadata")}
        ids = [each["id"] for each in given[20:]]
        index.add_columns(ids=ids, vectors=vectors[20:], titles=columns.pop("title"), **columns_of(columns))
        index.commit()
        check(index, given)
        index.upgrade()
        check(index, given)


def columns_of(columns):
    return {"texts": columns["text"], "metadata": columns["metadata"]}


def test_every_passage_has_the_weighted_terms(tmp_path):
    text = " ".join(f"word{number}" for number in range(40))
    given = [
        {"id": "a", "title": "moon", "text": text, "metadata": {"brand": "zenith"}},
        {"id": "b", "title": "moon " + "x" * 600, "text": text, "metadata": {"brand": "zenith " + "y" * 600}},
    ]
    settings = {"passage_words": 10, "b": 0, "field_weights": {"title": 4, "brand": 5}}
    with Engine.open(build(tmp_path / "index", given, **settings), encoder=ENCODER) as index:
        hits = index.search("moon zenith", mode="lexical", unit="passage", explain=True)
        terms = [[hit.id, dict(hit.terms)] for hit in hits]
    first, (whole,) = [each for name, each in terms if name == "a"], [each for name, each in terms if name == "b"]
    assert len(first) > 2
    assert all(each == first[0] for each in first)
    idf = math.log(1 + (len(first) * 2 - len(first) - 1 + 0.5) / (len(first) + 1.5))
    assert first[0] == pytest.approx({"moon": idf * 4 / 5.2, "zenith": idf * 5 / 6.2}, rel=1e-5)
    assert whole == pytest.approx({"moon": idf * 1 / 2.2, "zenith": idf * 5 / 6.2}, rel=1e-5)  # a long title


def test_phrases_and_words_of_hits_are_those_of_the_text(tmp_path):
    """What counts several times follows nothing: a text is followed by no title."""
    given = [
        {"id": "a", "title": "red moon", "text": "over a sea", "metadata": {"brand": "zenith"}},
        {"id": "b", "title": "moon", "text": "a sea, zenith and red", "metadata": {"brand": "cup"}},
    ]
    with Engine.open(build(tmp_path / "index", given), encoder=ENCODER) as index:

        def found(phrase):
            conditions = index.search(f'"{phrase}"', mode="lexical", operators=True)
            terms = index.search(f'"{phrase}"', mode="lexical", explain=True)
            having = [hit.id for hit in terms if f'"{phrase}' in hit.terms]
            assert having == [hit.id for hit in conditions]
            return having

        assert found("red moon") == ["a"]
        assert not any(
            map(found, ("moon red", "moon moon", "zenith red moon", "zenith zenith", "cup moon", "cup cup"))
        )
        hit = index.search("moon", mode="lexical", k=1, explain=True)[0]
        assert [f"{hit.title}\n{hit.text}"[word.start : word.end] for word in hit.words] == ["moon"]
        assert [hit.passages[0].text[low:high] for low, high in hit.passages[0].words] == ["moon"]


def test_prefixes_count_weighted_words(tmp_path):
    """A word that does not begin with a prefix as a stem does is counted in the texts."""
    given = [
        {"id": "a", "title": "generally", "text": "water", "metadata": {"brand": "flying"}},
        {"id": "b", "title": "water", "text": "generally", "metadata": {"color": "flying"}},
    ]
    with Engine.open(build(tmp_path / "index", given, b=0), encoder=ENCODER) as index:
        for prefix, weight in (("generally*", 3), ("flying*", 2), ("genera*", 3)):
            hits = index.search(prefix, mode="lexical", operators=True)
            assert [hit.id for hit in hits] == ["a", "b"]
            assert hits[0].score / hits[1].score == pytest.approx(weight / (weight + K1) * (1 + K1), rel=1e-5)


def test_weights_of_one_leave_every_file_as_it_was(tmp_path):
    given = documents(20)
    one = build(tmp_path / "one", given, field_weights={"title": 1, "brand": 1})
    none = build(tmp_path / "none", given, field_weights={})
    for path in (one, none):
        with Engine.open(path, encoder=ENCODER) as index:
            scores = {hit.id: hit.score for hit in index.search("worda", mode="lexical", k=100)}
            assert scores == pytest.approx(bm25f(given, "worda", {}), rel=1e-5)

    def segments(path):
        return [file.read_bytes()[64:-64] for file in path.glob("*.seg")]  # their ids are random

    assert segments(one) == segments(none)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"title": 0}, "'title'.*found 0"),
        ({"brand": -1}, "'brand'.*found -1"),
        ({"title": 1.5}, "'title'.*found 1.5"),
        ({"title": True}, "'title'.*found True"),
        ({"title": 101}, "'title'.*from 1 to 100"),
        ({"price": 2}, "'price'.*title, brand"),
        ({"text": 2}, "'text'.*the text counts once"),
        ({3: 2}, "names 3"),
        (["title"], "no mapping"),
    ],
)
def test_wrong_weights_are_refused(tmp_path, wrong, named):
    with pytest.raises(InvalidSetting, match=f"field_weights.*{named}"):
        build(tmp_path / "index", documents(1), searchable=["brand"], field_weights=wrong)
    assert not (tmp_path / "index").exists()


def test_indexes_of_other_weights_are_refused(tmp_path):
    path, other = (
        build(tmp_path / "index", documents(3)),
        build(tmp_path / "other", documents(3), field_weights={}),
    )
    options = {"create": True, "encoder": ENCODER, "representation": KMeans(2), "searchable": ["brand", "color"]}
    Engine.open(path, field_weights={**WEIGHTS, "color": 1}, **options).close()
    with pytest.raises(InvalidSetting, match="another value of field_weights"):
        Engine.open(path, field_weights={"title": 2}, **options)
    with (
        Engine.open(path, writable=True, encoder=ENCODER) as index,
        pytest.raises(InvalidSetting, match="another value of field_weights"),
    ):
        index.add_indexes([other])
    shutil.rmtree(other)
    engine.build(documents(3), other, like=path, encoder=ENCODER)
    with Engine.open(path, writable=True, encoder=ENCODER) as index:
        index.add_indexes([other])
        index.commit()
        check(index, documents(3))


def test_the_command_takes_weights(tmp_path, capsys):
    file, index = tmp_path / "goods.jsonl", str(tmp_path / "index")
    file.write_text('{"id": "a", "text": "cup lamp"}\n{"id": "b", "title": "cup", "text": "lamp"}\n')
    assert commands.main(["build", str(file), index, "--field-weights", '{"title": 5}']) == 0
    with Engine.open(index) as opened:
        assert [hit.id for hit in opened.search("cup", mode="lexical")] == ["b", "a"]
    capsys.readouterr()
    assert commands.main(["build", str(file), index + "2", "--field-weights", '{"sku": 5}']) == 1
    assert "'sku'" in capsys.readouterr().err
    assert commands.main(["build", str(file), index + "2", "--field-weights", "[]"]) == 1
    assert "--field-weights is not a JSON object" in capsys.readouterr().err
