"""Sorted, boosted and grouped hits are those of a slow sort of all documents that match, with their scores."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest
from support.indexes.word_encoder import WordEncoder

import quarry
from quarry import Engine, InvalidQuery, InvalidSetting, Linear, Log1p, Pin, Recency, Saturation

NOW = "2026-06-01T00:00:00+00:00"
MODES = ("hybrid", "dense", "lexical")
KINDS = [("hybrid", "document"), ("hybrid", "passage"), ("dense", "passage"), ("lexical", "document")]
ALL = {"candidates": 1000}  # more than there are passages, so that all decide the scale of hybrid scores
QUERY = "w1 w5 w30"
ONLY = {"stars": {"$gte": 2}}


def _documents():
    generator = random.Random(8)
    words = [f"w{number}" for number in range(60)]
    weights = [1 / (number + 1) for number in range(60)]
    documents = []
    for number in range(150):
        metadata = {
            "price": generator.choice([9.5, 10, 10, 19.25, 2**53, 2**53 + 1, 0.1 * number]),
            "stars": generator.randrange(6),
            "brand": generator.choice(["Acme", "Zeta", "Öko", "acme"]),
            "date": f"2026-0{generator.randint(1, 6)}-1{number % 10}",
            "new": number % 3 == 0,
            "sizes": generator.sample([36, 38.5, 40, 42], 2),
            "note": "long " * 30 + str(number % 4),
            "stock": {"count": number % 2},
            "rows": number if number % 2 else str(number),
        }
        if number % 9 == 0:
            metadata["price"] = None
        if number % 7 == 0:
            del metadata["brand"], metadata["date"]
        text = " ".join(generator.choices(words, k=generator.choice([4, 15, 40]), weights=weights))
        documents.append({"id": f"d{number:03d}", "title": f"t{number % 5}", "text": text, "metadata": metadata})
    return documents


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    """One index of several segments with deleted documents, and one of shards, both of passages of ten words."""
    path, documents = tmp_path_factory.mktemp("arranged"), _documents()
    for name, n_shards in (("whole", None), ("sharded", 3)):
        quarry.build(documents[:70], path / name, encoder=WordEncoder(), shards=n_shards, passage_words=10)
        with Engine.open(path / name, encoder=WordEncoder(), writable=True) as index:
            index.add([*documents[70:], {"id": "gone", "text": "w1", "metadata": {"price": "none", "gone": 1}}])
            index.commit()
            index.delete(["gone", "d003"])
            index.add([{**documents[4], "metadata": {"price": 3}}])
            index.commit()
    opened = [Engine.open(path / name, encoder=WordEncoder()) for name in ("whole", "sharded")]
    assert len(opened[0].get(["d004"])) == 1
    yield opened
    for each in opened:
        each.close()


@pytest.fixture(params=[0, 1], ids=["whole", "sharded"])
def index(request, indexes):
    return indexes[request.param]


def _value(hit, path, *, largest):
    if path in ("id", "title"):
        return getattr(hit, path) or None
    found = hit.metadata
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    found = [each for each in (found if isinstance(found, list) else [found]) if each is not None]
    return (max if largest else min)(found) if found else None


def _sorted(hits, fields):
    order = sorted(hits, key=lambda hit: (-hit.score, hit.id, hit.passage or 0))
    for field in reversed(fields):
        path, is_down = field.removeprefix("-"), field.startswith("-")
        values = {id(hit): _value(hit, path, largest=is_down) for hit in order}
        with_value = [hit for hit in order if values[id(hit)] is not None]
        with_value.sort(key=lambda hit: values[id(hit)], reverse=is_down)
        order = with_value + [hit for hit in order if values[id(hit)] is None]
    return order


def _grouped(order, path, n, size):
    groups = {}
    for hit in order:
        groups.setdefault(_value(hit, path, largest=False), []).append(hit)
    return [(name, hit) for name, several in list(groups.items())[:n] for hit in several[:size]]


def _names(hits):
    return [(hit.id, hit.passage, hit.dense_score, hit.lexical_score) for hit in hits]


SORTS = [
    ["price"],
    ["-price"],
    ["brand", "-stars"],
    ["-date", "price"],
    ["new", "-title", "sizes"],
    ["-sizes"],
    ["note", "-id"],
    ["stock.count"],
]


@pytest.mark.parametrize(("mode", "unit"), KINDS)
def test_hits_are_sorted_by_fields(index, mode, unit):
    every = index.search(QUERY, k=1000, mode=mode, filter=ONLY, unit=unit, **ALL)
    for fields in SORTS:
        given = {"mode": mode, "filter": ONLY, "unit": unit, "sort": fields, **ALL}
        wanted = _names(_sorted(every, fields))
        assert _names(index.search(QUERY, k=7, offset=2, **given)) == wanted[2:9], fields
    hits = index.search(QUERY, k=1000, sort="stars", mode=mode, unit=unit, filter=ONLY, total=True)
    assert [hit.relevance for hit in hits] == [None] * len(every)
    assert len(hits) == hits.total == len(every)
    assert hits.exactness == "exact"


def test_hybrid_scores_of_sorted_hits_have_the_scale_of_the_candidates(index):
    """Documents beyond the candidates may have scores below 0; those of candidates are those of other searches."""
    given = {"candidates": 20, "k": 10}
    hits = index.search(QUERY, sort="stars", **given)
    known = {hit.id: hit.score for hit in index.search(QUERY, k=10, candidates=20)}
    every = {
        hit.id: hit.score for hit in index.search(QUERY, k=200, boost={"stars": Linear(weight=0)}, candidates=200)
    }
    boosted = index.search(QUERY, k=10, boost={"stars": Linear(weight=0)}, candidates=20)
    assert [(hit.id, hit.score) for hit in boosted] == list(known.items())
    assert len(every) == 149
    assert len(hits) == 10


BOOSTS = {
    "recency": ({"date": Recency(half_life="30d", weight=0.5, now=NOW)}, lambda hit: 0.5 * _recency(hit)),
    "log": ({"stars": Log1p(weight=0.3)}, lambda hit: 0.3 * math.log1p(_number(hit, "stars"))),
    "linear": ({"sizes": Linear(weight=0.01)}, lambda hit: 0.01 * _number(hit, "sizes")),
    "two": (
        {"price": {"saturation": {"pivot": 10, "weight": 1}}, "stock.count": Linear()},
        lambda hit: _saturation(_number(hit, "price")) + 0.2 * _number(hit, "stock.count"),
    ),
}


def _number(hit, path):
    return _value(hit, path, largest=True) or 0


def _saturation(value):
    return value / (value + 10)


def _recency(hit):
    text = _value(hit, "date", largest=True)
    if text is None:
        return 0
    days = (datetime.fromisoformat(NOW) - datetime.fromisoformat(text).replace(tzinfo=UTC)).total_seconds() / 86400
    return 2 ** (-max(days, 0) / 30)


@pytest.mark.parametrize(("mode", "unit"), KINDS)
def test_boosts_are_added_to_all_scores(index, mode, unit):
    given = {"mode": mode, "unit": unit, "filter": ONLY, **ALL}
    every = index.search(QUERY, k=1000, **given)
    for name, (boost, added) in BOOSTS.items():
        wanted = {(hit.id, hit.passage): hit.score + added(hit) for hit in every}
        hits = index.search(QUERY, k=12, boost=boost, **given)
        scores = [wanted[hit.id, hit.passage] for hit in hits]
        assert [hit.score for hit in hits] == pytest.approx(scores, rel=1e-5), name
        assert scores == pytest.approx(sorted(wanted.values(), reverse=True)[:12], rel=1e-5), name


@pytest.mark.parametrize("mode", MODES)
def test_pinned_documents_are_first(index, mode):
    every = [hit.id for hit in index.search(QUERY, k=1000, mode=mode, **ALL)]
    ids = [every[-1], "none", every[10], "d003"]
    pinned = [hit.id for hit in index.search(QUERY, k=20, mode=mode, boost={"id": Pin(ids)}, **ALL)]
    assert pinned == [every[-1], every[10], *(each for each in every if each not in ids)][:20]
    hits = index.search(QUERY, k=200, mode=mode, boost={"new": {"pin": {"values": [True]}}, "id": Pin([every[0]])})
    groups = [(hit.metadata.get("new") is not True, hit.id != every[0]) for hit in hits]
    assert groups == sorted(groups)


@pytest.mark.parametrize(("mode", "unit"), KINDS)
def test_groups(index, mode, unit):
    every = index.search(QUERY, k=1000, mode=mode, unit=unit, **ALL)
    for path, fields in (("brand", []), ("id", []), ("stars", ["-price"]), ("sizes", ["title"]), ("title", [])):
        given = {"group_by": path, "mode": mode, "unit": unit, **ALL} | ({"sort": fields} if fields else {})
        for size in (1, 3):
            order = _grouped(_sorted(every, fields), path, 4, size)
            hits = index.search(QUERY, k=4, group_size=size, **given)
            assert [(hit.group, *_names([hit])[0]) for hit in hits] == [
                (name, *_names([hit])[0]) for name, hit in order
            ]
            assert list(hits.groups) == list(dict.fromkeys(name for name, _ in order))
        later = index.search(QUERY, k=2, offset=2, group_size=3, **given)
        assert _names(later) == _names([hit for hit in hits if hit.group in list(hits.groups)[2:]])


def test_months_and_years_begin_with_their_first_day(tmp_path):
    dates = ["2025", "2025-12", "2025-12-02", "2026-1", "May 2025"]
    documents = [{"id": each, "text": "w1", "vectors": [1, 0, 0, 0], "metadata": {"date": each}} for each in dates]
    quarry.build(documents, tmp_path / "index", dim=4)
    boost = {"date": Recency(half_life="1d", weight=1, now="2025-12-02")}
    with Engine.open(tmp_path / "index") as dated:
        scores = {hit.id: hit.score for hit in dated.search("w1", mode="lexical", boost=boost)}
    added = {each: scores[each] - scores["May 2025"] for each in dates}
    assert added == pytest.approx({**dict.fromkeys(dates, 0), "2025-12": 0.5, "2025-12-02": 1}, abs=1e-5)


@pytest.mark.parametrize("shards", [None, 3])
def test_recency_needs_a_time(tmp_path, shards):
    """A field without any time is refused, whatever matches; a text that is none is no value beside others."""
    values = ["soon", "late", "x" * 200, None, ["later", "2026-13-01"]]
    documents = [
        {"id": f"d{number}", "text": "w1", "vectors": [1, 0], "metadata": {"when": each, "n": number}}
        for number, each in enumerate(values)
    ]
    quarry.build(documents, tmp_path / "index", dim=2, shards=shards)
    boost = {"when": {"recency": {"half_life": "30d"}}}
    with Engine.open(tmp_path / "index", writable=True) as index:
        for query, options in (
            ("w1", {"mode": "lexical"}),
            (None, {"vector": [1, 0]}),
            ("", {"filter": {"n": 1}}),
        ):
            for _ in range(2):
                with pytest.raises(
                    InvalidSetting, match=r"'when' is a time; expected .*; found '(soon|late|x|2026-13)"
                ):
                    index.search(query, boost=boost, **options)
        for path, found in (("id", "d"), ("text", "a text")):
            with pytest.raises(InvalidSetting, match=rf"'{path}' is a time; expected .*; found '{found}"):
                index.search("w1", mode="lexical", boost={path: boost["when"]})
        index.add(
            [{"id": "new", "text": "w1", "vectors": [1, 0], "metadata": {"when": ["no time", "2026-01-05"]}}]
        )
        index.commit()
        for _ in range(2):
            assert len(index.search("w1", mode="lexical", boost=boost)) == 6
        index.delete(["new"])
        index.commit()
        with pytest.raises(InvalidSetting, match="'when' is a time"):
            index.search("w1", mode="lexical", boost=boost)


def test_an_empty_query_browses(index):
    every = sorted(index.ids(filter=ONLY))
    for query in ("", " ", None):
        hits = index.search(query, k=1000, filter=ONLY, total=True)
        assert [hit.id for hit in hits] == every
        assert {(hit.score, hit.relevance) for hit in hits} == {(0, None)}
        assert hits.total == len(every)
    documents = {each.id: each.metadata.get("price") for each in index.documents()}
    wanted = sorted(documents, key=lambda each: (documents[each] is None, documents[each] or 0, each))
    assert [hit.id for hit in index.search(sort="price", k=200)] == wanted
    assert [hit.id for hit in index.search("", sort="price", k=5, offset=3, mode="dense")] == wanted[3:8]
    recent = {"date": Recency(half_life="9d", now="2026-07-01")}
    assert [hit.id for hit in index.search(boost=recent, k=5)] == [
        hit.id for hit in index.search(sort="-date", k=5)
    ]
    assert index.search("", mode="lexical") == []
    assert [len(each) for each in index.search(["", "w1"], mode="lexical", filter={"stars": 1}, k=3)] == [3, 3]
    for mode in MODES:  # an empty text beside others is as one alone
        for options in (
            {"sort": "-price"},
            {"filter": ONLY, "total": True},
            {"boost": recent},
            {"group_by": "stars"},
        ):
            queries, given = ["", "w1", " ", "w2 w3", ""], {"mode": mode, "k": 4, **options}
            alone = [index.search(query, **given) for query in queries]
            assert [each.to_dict() for each in index.search(queries, **given)] == [
                each.to_dict() for each in alone
            ]
    assert index.search([], sort="price") == []
    with pytest.raises(InvalidQuery):
        index.search(["", "w1"], k=3)
    conditions, words = index.search(["stars:1", "w1"], k=3, operators=True)
    assert [hit.metadata["stars"] for hit in conditions] == [1, 1, 1]
    assert words == index.search("w1", k=3)
    grouped = index.search(filter=ONLY, group_by="stars", group_size=2)
    assert [hit.group for hit in grouped] == [number for number in list(grouped.groups) for _ in range(2)]


def test_documents_are_listed_in_the_order_of_fields(index):
    documents = list(index.documents())
    for fields in SORTS:
        order = sorted(documents, key=lambda each: each.id)
        for field in reversed(fields):
            path, is_down = field.removeprefix("-"), field.startswith("-")
            values = {each.id: _value(each, path, largest=is_down) for each in order}
            with_value = [each for each in order if values[each.id] is not None]
            with_value.sort(key=lambda each: values[each.id], reverse=is_down)
            order = with_value + [each for each in order if values[each.id] is None]
        assert list(index.documents(sort=fields)) == order, fields
    assert list(index.documents(sort=fields, offset=5, limit=3)) == order[5:8]
    assert list(index.documents(sort=fields, limit=0)) == []
    some = {each.id for each in index.documents(filter=ONLY)}
    assert list(index.documents(sort=fields, filter=ONLY)) == [each for each in order if each.id in some]
    with pytest.raises(InvalidSetting, match="the nearest are 'price'"):
        index.documents(sort="prices")


def test_the_number_of_documents_that_match(index):
    with_words = len(index.search(QUERY, k=1000, mode="lexical"))
    for options, n in (
        ({"mode": "lexical"}, with_words),
        ({"mode": "lexical", "unit": "passage"}, len(index.search(QUERY, k=9999, mode="lexical", unit="passage"))),
        ({"mode": "lexical", "filter": ONLY}, len(index.search(QUERY, k=1000, mode="lexical", filter=ONLY))),
        ({}, 149),
        ({"filter": ONLY}, index.count(ONLY)),
        ({"mode": "dense", "filter": ONLY, "group_by": "brand"}, index.count(ONLY)),
    ):
        assert index.search(QUERY, k=2, total=True, **options).total == n, options
    assert index.search(QUERY).total is None
    assert index.search(QUERY, total=True, min_relevance=None).to_dict()["total"] == 149


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sort": "prise"}, "the nearest are 'price'"),
        ({"sort": "rows"}, "all of one type"),
        ({"sort": "gone"}, "no document has the field 'gone'"),
        ({"sort": []}, "sort is not a field"),
        ({"sort": ["price", "-price"]}, "sort is not a field"),
        ({"sort": 3}, "sort is not a field"),
        ({"group_by": "brands"}, "the nearest are 'brand'"),
        ({"group_by": 3}, "group_by is not a field"),
        ({"group_by": "brand", "group_size": 0}, "group_size is out of range"),
        ({"group_size": 2}, "only groups have a size"),
        ({"boost": {"brand": Log1p()}}, "other types"),
        ({"boost": {"rows": Linear()}}, "other types"),
        ({"boost": {"nothing": Linear()}}, "no document has the field 'nothing'"),
        ({"boost": {"stars": Pin(["5"])}}, "other types"),
        ({"boost": {"stars": 2}}, "the boost of the field 'stars'"),
        ({"boost": {"stars": {"log": {}}}}, "boost of 'stars': unknown setting; expected recency, log1p"),
        ({"boost": {"stars": {"saturation": {}}}}, "lacks an attribute"),
        ({"boost": {"stars": {"log1p": {"wait": 1}}}}, "the boost of 'stars': unknown setting"),
        ({"boost": {"stars": {"log1p": {"weight": -1}}}}, "boost of 'stars': weight is out of range"),
        ({"boost": {"date": {"recency": {"half_life": "a month"}}}}, "half_life is not a time"),
        ({"boost": {}}, "boosts are not a mapping"),
        ({"boost": {"stars": Log1p()}, "sort": "price"}, "two ways"),
        ({"sort": "price", "rerank": 20}, "two ways"),
    ],
)
def test_what_cannot_be_done_is_said(index, options, problem):
    with pytest.raises(InvalidSetting, match=problem.replace("(", r"\(")):
        index.search(QUERY, **options)


def test_wrong_boosts_are_refused():
    for make in (
        lambda: Recency(half_life="0d"),
        lambda: Recency(half_life="3d", now="today"),
        lambda: Saturation(pivot=0),
        lambda: Log1p(weight=-0.1),
        lambda: Linear(weight=math.nan),
        lambda: Pin([]),
        lambda: Pin("abc"),
        lambda: Pin([1, "a"]),
        lambda: Pin([math.nan]),
    ):
        with pytest.raises(InvalidSetting):
            make()


def test_a_boost_of_squared_distances_is_in_their_unit(tmp_path):
    generator = np.random.default_rng(3)
    rows = generator.standard_normal((40, 8)).astype(np.float32)
    documents = [
        {"id": f"{number:02d}", "text": "", "vectors": rows[number : number + 1], "metadata": {"n": number % 5}}
        for number in range(40)
    ]
    quarry.build(documents, tmp_path / "index", dim=8, metric="l2")
    with Engine.open(tmp_path / "index") as index:
        vector = rows[3] + 0.1
        plain = {hit.id: hit.score + 2.0 * hit.metadata["n"] for hit in index.search(vector=vector, k=40)}
        hits = index.search(vector=vector, k=40, boost={"n": Linear(weight=2)})
    assert [hit.score for hit in hits] == pytest.approx([plain[hit.id] for hit in hits], abs=1e-4)
    assert all(first.score >= second.score for first, second in pairwise(hits))
