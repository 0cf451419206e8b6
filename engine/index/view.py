"""One generation of an index, ready to be searched: what changes together at a refresh."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from quarry.engine.documents.document import Document
from quarry.engine.filtering.cache import DocumentFilter
from quarry.engine.filtering.filter import Condition
from quarry.engine.filtering.unknown_fields import UnknownFields
from quarry.engine.gpu.device import Device
from quarry.engine.gpu.device_vectors import DeviceVectors
from quarry.engine.index.memory import plan_memory
from quarry.engine.index.statistics import index_statistics, resource_statistics
from quarry.engine.lexical.query import Bm25Query
from quarry.engine.lexical.searcher import LexicalSearcher
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.scoring.query_vectors import Queries, Vectors, check_vectors, host_vectors
from quarry.engine.scoring.ranking import Ranking
from quarry.engine.search.explanation import matches
from quarry.engine.search.hits import Hit, Hits
from quarry.engine.search.hybrid import HybridSearcher
from quarry.engine.search.searcher import Searcher
from quarry.formats.documents.store import PackedDocument
from quarry.formats.manifest import EncoderRecord
from quarry.formats.snapshot import Snapshot

__all__ = ["IndexView"]


class IndexView:
    """A snapshot with its searchers, from queries to hits; safe to use from several threads.

    Args:
        snapshot: of that generation.
        options: resources to use.
        unknown: the fields that callers were warned about, of all generations.
        before: view of another generation, whose backends are reused for the segments that are the same.
        device: of backend "gpu"; None: as `options` say.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        options: OpenOptions,
        unknown: UnknownFields,
        before: IndexView | None = None,
        device: Device | None = None,
    ) -> None:
        self.snapshot = snapshot
        self._segments = self.snapshot.segments  # what is being searched stays, even if the snapshot is closed
        self._options = options
        self._plan = plan_memory(self.snapshot, options.memory_bytes)
        self._dense: Searcher = Searcher(
            snapshot, options, self._plan.backend_bytes, before._dense if before else None, device
        )
        self._lexical = LexicalSearcher(self.snapshot, self._plan.posting_bytes)
        self.filter = DocumentFilter(self._segments, self._plan.filter_bytes, self._lexical.terms, unknown)
        n_docs = [segment.record.n_docs - segment.record.n_deleted for segment in self._segments]
        self._hybrid = HybridSearcher(self._dense, self._lexical, n_docs)

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self.snapshot.manifest.settings.dim

    @property
    def encoder(self) -> EncoderRecord:
        """The encoder of the vectors."""
        return self.snapshot.manifest.encoder

    @property
    def n_documents(self) -> int:
        """Number of documents that are not deleted."""
        return len(self.snapshot)

    def has(self, doc_id: str) -> bool:
        """Return whether there is a document with an id."""
        return self.snapshot.find(doc_id) is not None

    def count(self, condition: Condition) -> int:
        """Return the number of documents that pass a filter."""
        return self.filter.count(condition)

    def statistics(self) -> dict[str, object]:
        """Describe the generation and what searches it; see `quarry.engine.index.statistics`."""
        return index_statistics(self.snapshot) | self.resources()

    def resources(self) -> dict[str, object]:
        """What searches the segments, and the memory that is held for it; see `quarry.engine.index.statistics`."""
        held = {
            "backends": self._dense.resident_bytes,
            "postings": self._lexical.resident_bytes,
            "filters": self.filter.resident_bytes,
            "documents": self._plan.document_bytes,
            "quantizers": self._plan.quantizer_bytes,
        }
        return resource_statistics(
            self.snapshot, self._options, self._dense.choices, held, self._dense.device_bytes
        )

    def documents(self, ids: Iterable[str]) -> list[Document]:
        """Those that are there, in this order."""
        found = []
        for doc_id in ids:
            place = self.snapshot.find(doc_id)
            if place:
                stored = place[0].reader.documents[place[1]]
                found.append(Document(doc_id, stored.text, stored.title, stored.metadata))
        return found

    def search_dense(self, vectors: Queries, options: SearchOptions) -> list[Hits]:
        """The hits for each of (n, dim) query vectors."""
        self._check(vectors)
        answers = self._dense.search(vectors, options, self.filter.allowed(options.condition))
        if not options.explain:
            return [self._hits(answer, None, None) for answer in answers]
        pairs = zip(host_vectors(vectors), answers, strict=True)
        return [self._hits(answer, vector, None) for vector, answer in pairs]

    def search_lexical(self, texts: list[str], options: SearchOptions) -> list[Hits]:
        """The hits for each query by its words alone."""
        allowed = self.filter.allowed(options.condition)
        return [
            self._hits(query.top(options.k, allowed), None, query if options.explain else None)
            for query in map(self._lexical.query, texts)
        ]

    def search_hybrid(self, vectors: Queries, texts: list[str], options: SearchOptions) -> list[Hits]:
        """The hits for each query by its vector and its words."""
        self._check(vectors)
        answers = self._hybrid.search(vectors, texts, options, self.filter.allowed(options.condition))
        return [
            self._hits(answer, vector, query) if options.explain else self._hits(answer, None, None)
            for vector, answer, query in answers
        ]

    def _check(self, vectors: Queries) -> None:
        """Check the numbers of queries; of those on a device, the backends do so when they have answered."""
        if not isinstance(vectors, DeviceVectors):
            check_vectors(vectors)
        elif not self._segments:
            host_vectors(vectors)

    def _hits(self, ranking: Ranking, vector: Vectors | None, query: Bm25Query | None) -> Hits:
        """The hits for documents found, in their order; explained by what is given of the query."""
        ids, documents = self._stored(ranking)
        nothing = [None] * len(ids)
        dense = nothing if ranking.dense is None else ranking.dense.tolist()
        lexical = nothing if ranking.lexical is None else ranking.lexical.tolist()
        columns = zip(ids, ranking.scores.tolist(), documents, dense, lexical, strict=True)
        found = [
            Hit(doc_id, score, document, dense_score=meaning, lexical_score=words)
            for doc_id, score, document, meaning, words in columns
        ]
        hits = Hits(found, ranking.exactness)
        if vector is not None or query is not None:
            self._explain(hits, documents, ranking, vector, query)
        return hits

    def _stored(self, ranking: Ranking) -> tuple[list[str], list[PackedDocument]]:
        """Ids and documents, in the order of the ranking."""
        stored: dict[int, tuple[str, PackedDocument]] = {}
        numbers = set(ranking.segments.tolist())
        for number in numbers:
            places = np.flatnonzero(ranking.segments == number)
            reader, docs = self._segments[number].reader, ranking.docs[places]
            ids, documents = reader.ids.many(docs), reader.documents.packed(docs)
            if len(numbers) == 1:
                return ids, documents
            stored |= zip(places.tolist(), zip(ids, documents, strict=True), strict=True)
        pairs = [stored[place] for place in range(len(stored))]
        return [doc_id for doc_id, _ in pairs], [document for _, document in pairs]

    def _explain(
        self,
        hits: list[Hit],
        documents: list[PackedDocument],
        ranking: Ranking,
        vector: Vectors | None,
        query: Bm25Query | None,
    ) -> None:
        places = zip(hits, documents, ranking.segments.tolist(), ranking.docs.tolist(), strict=True)
        for hit, document, segment, doc in places:
            if vector is not None:
                scores = self._dense.centroid_scores(vector, segment, doc)
                path = self._segments[segment].reader.path
                hit.matches = matches(document.unpack(), scores, self.snapshot.manifest.settings.beta, path)
            if query is not None:
                hit.terms = query.term_scores(segment, doc)
