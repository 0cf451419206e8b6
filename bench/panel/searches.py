"""Searches a collection in every way of the panel, with indexes that are built once and kept."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import ir_measures
from ir_measures import nDCG

from bench.data.collections import Collection
from quarry.engine import Engine, Mean, build
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.options import DEFAULT_B, DEFAULT_K1
from quarry.formats.container.layout import VERSION

__all__ = ["SEARCHES", "CachedIndexes", "Measured", "changed_constants", "measure", "ndcg"]

_N_HITS = 10
_INDEXES: Mapping[str, Mapping[str, Any]] = {
    "vectors": {},
    "mean": {"representation": Mean(), "passage_words": None},
    "codes": {"centroids": "none", "code_bytes": 24},
}
"""The indexes of a collection, and their settings besides the defaults."""
_STOP_WORDS = {"english": "en", "german": "de", "spanish": "es", "russian": "ru", "turkish": "tr"}
Search = Callable[[str], list[str]]
"""A text to the ids of documents, best first."""


class Measured(NamedTuple):
    """The quality and the cost of a search.

    Attributes:
        ndcg: nDCG@10 with linear gain by query id.
        cpu_ms: median processor time from the text of a query to ten hits on one thread, in milliseconds.
    """

    ndcg: dict[str, float]
    cpu_ms: float


class CachedIndexes:
    """The indexes of one collection, built when they are first asked for.

    Args:
        collection: documents, queries and judgments.
        language: the language of the texts.
        encoder: the encoder of documents and queries.
        cache: folder of the indexes of all collections. Those of other texts, encoders or file formats have other
            names.
        settings: the settings of all indexes that do not have their own; by default the defaults of `build`.
    """

    def __init__(
        self,
        collection: Collection,
        language: str,
        encoder: Encoder,
        cache: Path,
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.collection = collection
        self._settings = settings
        self.language = language
        self.encoder = encoder
        key = hashlib.sha256(repr((VERSION, language, encoder.identity, sorted(settings.items()))).encode())
        for name, text in collection.documents.items():
            key.update(f"{name}\0{text}\0".encode())
        self._folder = cache / f"{collection.name}-{key.hexdigest()[:12]}"

    def path(self, name: str) -> Path:
        """Return the folder of one of `_INDEXES`, which is built unless it is there."""
        path = self._folder / name
        if not path.exists():
            unfinished = path.with_name(f"{name}.unfinished")
            build(
                ({"id": key, "text": text} for key, text in self.collection.documents.items()),
                unfinished,
                encoder=self.encoder,
                language=self.language,
                overwrite=True,
                progress=False,
                **{**self._settings, **_INDEXES[name]},
            )
            unfinished.rename(path)
        return path


@contextmanager
def changed_constants(values: Mapping[str, object]) -> Iterator[None]:
    """Give constants of Quarry other values.

    Args:
        values: by dotted name below `quarry`, such as ``engine.search.fusion._RANK_OFFSET``.

    Raises:
        AttributeError: there is no such constant.
    """
    with ExitStack() as stack:
        for name, value in values.items():
            module, _, constant = name.rpartition(".")
            stack.enter_context(patch.object(import_module(f"quarry.{module}"), constant, value))
        yield


def measure(name: str, indexes: CachedIndexes, options: Mapping[str, Any]) -> Measured:
    """Return what one of `SEARCHES` finds for all queries of a collection, one after another.

    Args:
        name: the name of the search.
        indexes: the indexes of the collection.
        options: keywords of `Engine.search`.
    """
    collection = indexes.collection
    ranked: dict[str, dict[str, float]] = {}
    times: list[float] = []
    with SEARCHES[name](indexes, options) as search:
        search(next(iter(collection.queries.values())))  # reads what is read once
        for query, text in collection.queries.items():
            started = time.process_time()
            hits = search(text)
            times.append(time.process_time() - started)
            ranked[query] = {key: -float(rank) for rank, key in enumerate(hits)}
    return Measured(ndcg(collection, ranked), 1e3 * statistics.median(times))


def ndcg(collection: Collection, ranked: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return nDCG@10 by query; 0 of those that found nothing.

    Args:
        collection: its queries and judgments count.
        ranked: scores of documents by query.
    """
    values = {each.query_id: each.value for each in ir_measures.iter_calc([nDCG @ 10], collection.qrels, ranked)}
    return {query: values.get(query, 0.0) for query in collection.queries}


@contextmanager
def _bm25s(indexes: CachedIndexes, _: Mapping[str, Any]) -> Iterator[Search]:
    """BM25 of bm25s with its own analyzer, with stems and stop words where it has those of the language."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer(indexes.language) if indexes.language in Stemmer.algorithms() else None
    stop_words: Any = _STOP_WORDS.get(indexes.language, [])

    def analyze(texts: list[str]) -> Any:  # noqa: ANN401
        return bm25s.tokenize(texts, stopwords=stop_words, stemmer=stemmer, return_ids=False, show_progress=False)

    ids = list(indexes.collection.documents)
    index = bm25s.BM25(k1=DEFAULT_K1, b=DEFAULT_B, method="lucene")
    index.index(analyze(list(indexes.collection.documents.values())), show_progress=False)

    def search(text: str) -> list[str]:
        (terms,) = analyze([text])
        if not terms:
            return []
        numbers, scores = index.retrieve([terms], k=min(_N_HITS, len(ids)), show_progress=False)
        return [ids[doc] for doc, score in zip(numbers[0].tolist(), scores[0].tolist(), strict=True) if score > 0]

    yield search


def _engine(mode: str, name: str = "vectors") -> Callable[..., Any]:
    @contextmanager
    def opened(indexes: CachedIndexes, options: Mapping[str, Any]) -> Iterator[Search]:
        with Engine.open(indexes.path(name), encoder=indexes.encoder, threads=1) as index:
            yield lambda text: [hit.id for hit in index.search(text, _N_HITS, **{"mode": mode, **options})]

    return opened


SEARCHES: dict[str, Callable[..., Any]] = {
    "bm25s": _bm25s,
    "one vector": _engine("dense", "mean"),
    "dense": _engine("dense"),
    "lexical": _engine("lexical"),
    "hybrid": _engine("hybrid"),
    "codes dense": _engine("dense", "codes"),
    "codes hybrid": _engine("hybrid", "codes"),
}
"""The columns of the table by name: what opens a search of the indexes of a collection with options."""
