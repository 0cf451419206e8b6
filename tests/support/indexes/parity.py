"""All kinds of queries, with answers that can be compared to the last bit of every score."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from support.indexes.calibrated_encoder import CalibratedEncoder
from support.indexes.sharded import random_text

from quarry.engine import Engine, Hits

ENCODER = CalibratedEncoder()
FILTER = {"number": {"$gte": 2}}
QUERIES = ["w1 w17 lighthouse", "w3 lighthousse", "harbour w40 w2", "w5 w60 nowhere"]
LIKE = ["document 0004", "given 02", "column 03"]
_MODES = ("dense", "hybrid", "lexical")


class LengthReranker:
    """Scores short texts higher."""

    name = "length"

    def scores(self, query: str, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.array([-len(text) for text in texts], np.float32)


def varied_documents(n: int) -> list[dict[str, Any]]:
    """Return documents with titles, tags and words for typos; their lengths differ, so that no scores tie."""
    generator = random.Random(3)
    rare = ("lighthouse", "harbour", "")
    return [
        {
            "id": f"document {number:04d}",
            "title": f"about w{number}",
            "text": f"{random_text(generator, 12 + number)} {rare[number % 3]}",
            "metadata": {"number": number % 7, "tags": ["even"] if number % 2 == 0 else ["odd", f"t{number % 5}"]},
        }
        for number in range(n)
    ]


def change(index: Engine) -> None:
    """Change an index of `varied_documents` in every way, in several commits."""
    index.update_metadata(filter={"number": 3}, changes={"tags": ["changed"], "number": 30})
    index.update_metadata(["document 0002"], {"number": None})
    index.commit()
    index.delete(filter={"number": 5})
    index.delete(["document 0001", "none"])
    index.commit()
    generator, vectors = random.Random(4), np.random.default_rng(4).standard_normal((8, 2, ENCODER.dim))
    texts = [random_text(generator, 150 + number) for number in range(16)]
    index.add_columns(
        ids=[f"column {number:02d}" for number in range(8)],
        vectors=vectors.astype(np.float32),
        texts=texts[:8],
        metadata={"number": list(range(8))},
    )
    index.add(
        {"id": f"given {number:02d}", "text": text, "vectors": vectors[number, 0].tolist()}
        for number, text in enumerate(texts[8:])
    )
    index.commit()


def dicts(found: Iterable[Hits]) -> list[object]:
    """Return all fields of hits, with their exactness and whether they answer the query."""
    return [([hit.to_dict() for hit in hits], hits.exactness, hits.answerable, hits.total) for hits in found]


def questions() -> Mapping[str, Callable[[Any], object]]:
    """Return functions of an open index by name, whose results depend only on its documents."""
    vectors = np.random.default_rng(9).standard_normal((len(QUERIES), ENCODER.dim)).astype(np.float32)
    found: dict[str, Callable[[Any], object]] = {}
    for mode in _MODES:
        searches: dict[str, dict[str, object]] = {
            "explained": {"explain": True},
            "page": {"offset": 7, "k": 5},
            "filtered": {"filter": FILTER},
            "tagged": {"filter": {"tags": {"$contains": "odd"}}},
            "relevant": {"min_relevance": 0.5},
            "without corrections": {"typos": False},
            "completed": {"prefix": True},
            "few candidates": {"candidates": 25},
            "other weight": {"dense_weight": 0.2},
            "ranks": {"fusion": "rrf"},
            "sorted": {"sort": ["-number", "title"], "total": True},
            "boosted": {"boost": {"number": {"log1p": {"weight": 0.5}}}, "total": True, "filter": FILTER},
            "grouped": {"group_by": "number", "group_size": 2, "k": 3},
        }
        for name, options in searches.items():
            found[f"{mode}, {name}"] = lambda index, options={"mode": mode, **options}: dicts(
                index.search(QUERIES, **options)
            )
        found[f"{mode}, like"] = lambda index, mode=mode: dicts(
            index.search(like=each, mode=mode, k=6, offset=2) for each in LIKE
        )
    found |= {
        "browsing": lambda index: dicts([index.search(filter=FILTER, sort="-number", k=9, total=True)]),
        "vectors": lambda index: dicts(index.search(vector=vectors)),
        "texts and vectors": lambda index: dicts(index.search(QUERIES, vector=vectors)),
        "many vectors": lambda index: dicts(index.search_vectors(vectors, k=30)),
        "facets": lambda index: [index.facets(field) for field in ("number", "tags", "title", "none")],
        "facets of a query": lambda index: index.facets("tags", query=QUERIES[1], filter=FILTER, limit=2),
        "count": lambda index: (index.count(FILTER), index.count({}), len(index)),
        "ids": lambda index: (sorted(index.ids()), sorted(index.ids(filter=FILTER))),
        "documents": lambda index: sorted(index.documents(filter=FILTER), key=lambda each: each.id),
        "get": lambda index: [
            (each.id, each.stored_as, each.vectors.tolist()) for each in index.get([*LIKE, "none"], vectors=True)
        ],
    }
    return found
