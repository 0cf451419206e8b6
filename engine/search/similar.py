"""The query of a search for documents like a given one: its mean vector, and its most informative words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quarry.engine.analysis.words import split_words
from quarry.engine.arguments import shown
from quarry.engine.documents.document import full_text
from quarry.engine.lexical.bm25 import Collection, inverse_document_frequency
from quarry.engine.options import DEFAULT_K1
from quarry.engine.scoring.metric import Metric, metric_queries
from quarry.engine.scoring.query_vectors import Queries, Vectors
from quarry.engine.scoring.stored_vectors import StoredVectors
from quarry.formats.errors import InvalidQuery
from quarry.formats.snapshot import Snapshot

__all__ = ["SimilarQuery", "find_document"]

_MAX_WORDS = 25  # as in Lucene's MoreLikeThis


@dataclass(frozen=True, eq=False)
class SimilarQuery:
    """A stored document as a query.

    Attributes:
        text: the document's full text; empty if only vectors are stored.
        mean: (1, dim) float32, the mean of its vectors.
    """

    text: str
    mean: Vectors

    def vector(self, metric: Metric) -> Queries:
        """Return the mean of the document's vectors as a query: (1, stored_dim) float32."""
        return metric_queries(metric, self.mean)

    def words(self, terms: Callable[[str], list[str]], collection: Collection) -> str:
        """Return the up to 25 words of the document that tell most about it, joined to a text.

        They are those whose terms have the largest tf / (tf + k1) · idf, the summand of BM25 without the length of
        the document.

        Args:
            terms: the analyzer: returns the terms of a text.
            collection: the frequencies of these terms.
        """
        analyzed = {word: terms(word) for word in dict.fromkeys(split_words(self.text))}
        counts = Counter(terms(self.text))
        scores = {
            term: tf / (tf + DEFAULT_K1) * inverse_document_frequency(collection.n_docs, n_docs)
            for term, tf in counts.items()
            if (n_docs := collection.document_frequency(term))
        }
        chosen: dict[str, float] = {}
        covered: set[str] = set()
        for word, word_terms in analyzed.items():
            new = [term for term in word_terms if term in scores and term not in covered]
            covered.update(new)
            if new:
                chosen[word] = max(scores[term] for term in new)
        best = sorted(chosen, key=lambda word: -chosen[word])[:_MAX_WORDS]
        return " ".join(best)


def find_document(snapshot: Snapshot, doc_id: str, index: Path) -> SimilarQuery:
    """Return a stored document as a query.

    Args:
        snapshot: the snapshot of the index, or of the shard that the document belongs to.
        doc_id: id of the document.
        index: folder of the index, for the message.

    Raises:
        InvalidQuery: there is no document with that id.
    """
    place = snapshot.find(doc_id)
    if place is None:
        raise InvalidQuery("`like` names a document that is not in the index", path=index, actual=shown(doc_id))
    segment, doc = place
    stored = segment.reader.documents[doc]
    vectors = Metric.of(snapshot.manifest).vectors(StoredVectors(segment).of_document(doc))
    return SimilarQuery(
        full_text(stored.title, stored.text), vectors.mean(axis=0, keepdims=True, dtype=np.float32)
    )
