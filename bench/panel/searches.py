"""Searches a collection in every way of the panel, with indexes that are built once and kept."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import ir_measures
import numpy as np
from ir_measures import nDCG

from bench.data.collections import Collection
from quarry.engine import Engine, build
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.options import DEFAULT_B, DEFAULT_K1
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import VERSION
from quarry.formats.snapshot import Snapshot

__all__ = ["SEARCHES", "CachedIndexes", "Measured", "changed_constants", "measure"]

_N_HITS = 10
_CODE_BYTES = 24
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
    """

    def __init__(self, collection: Collection, language: str, encoder: Encoder, cache: Path) -> None:
        self.collection = collection
        self.language = language
        self.encoder = encoder
        key = hashlib.sha256(repr((VERSION, language, encoder.identity)).encode())
        for name, text in collection.documents.items():
            key.update(f"{name}\0{text}\0".encode())
        self._folder = cache / f"{collection.name}-{key.hexdigest()[:12]}"

    def vectors(self) -> Path:
        """Return the index with the default settings."""
        path = self._folder / "vectors"
        if not path.exists():
            documents = ({"id": name, "text": text} for name, text in self.collection.documents.items())
            self._build(documents, path)
        return path

    def codes(self) -> Path:
        """Return the index of codes of 24 bytes alone, made of the vectors that the other one stores."""
        path = self._folder / "codes"
        if not path.exists():
            self._build(self._documents_with_vectors(), path, centroids="none", code_bytes=_CODE_BYTES)
        return path

    def last_vectors(self) -> tuple[list[str], np.ndarray]:
        """Return ids and the last vector of each document: for passages the mean over all of its tokens."""
        ids, rows = [], []
        for document in self._documents_with_vectors():
            ids.append(document["id"])
            rows.append(document["vectors"][-1])
        return ids, np.stack(rows)

    def _documents_with_vectors(self) -> Iterator[dict[str, Any]]:
        snapshot = Snapshot(Directory(self.vectors()))
        try:
            for segment in snapshot.segments:
                table, vectors = segment.reader.centroids, StoredVectors(segment)
                for doc in range(segment.record.n_docs):
                    name = segment.reader.ids[doc]
                    rows = vectors.vectors(table.rows_of(np.array([doc]))[0])
                    yield {"id": name, "text": self.collection.documents[name], "vectors": rows}
        finally:
            snapshot.close()

    def _build(self, documents: Iterator[dict[str, Any]], path: Path, **settings: Any) -> None:  # noqa: ANN401
        unfinished = path.with_name(f"{path.name}.unfinished")
        build(
            documents,
            unfinished,
            encoder=self.encoder,
            language=self.language,
            overwrite=True,
            progress=False,
            **settings,
        )
        unfinished.rename(path)


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
    values = {each.query_id: each.value for each in ir_measures.iter_calc([nDCG @ 10], collection.qrels, ranked)}
    return Measured(
        {query: values.get(query, 0.0) for query in collection.queries}, 1e3 * statistics.median(times)
    )


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


@contextmanager
def _one_vector(indexes: CachedIndexes, _: Mapping[str, Any]) -> Iterator[Search]:
    """All documents by their one mean vector."""
    ids, vectors = indexes.last_vectors()

    def search(text: str) -> list[str]:
        scores = vectors @ indexes.encoder.encode_query(text)
        return [ids[doc] for doc in np.argsort(-scores, kind="stable")[:_N_HITS].tolist()]

    yield search


def _engine(mode: str, *, is_coded: bool = False) -> Callable[..., Any]:
    @contextmanager
    def opened(indexes: CachedIndexes, options: Mapping[str, Any]) -> Iterator[Search]:
        path = indexes.codes() if is_coded else indexes.vectors()
        with Engine.open(path, encoder=indexes.encoder, threads=1) as index:
            yield lambda text: [hit.id for hit in index.search(text, _N_HITS, **{"mode": mode, **options})]

    return opened


SEARCHES: dict[str, Callable[..., Any]] = {
    "bm25s": _bm25s,
    "one vector": _one_vector,
    "dense": _engine("dense"),
    "lexical": _engine("lexical"),
    "hybrid": _engine("hybrid"),
    "codes dense": _engine("dense", is_coded=True),
    "codes hybrid": _engine("hybrid", is_coded=True),
}
"""The columns of the table by name: what opens a search of the indexes of a collection with options."""
