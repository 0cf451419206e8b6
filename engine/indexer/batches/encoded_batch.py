"""Documents as columns, ready to be stored: what travels from the reader to the segment in one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from quarry.engine.documents.document import Document
from quarry.engine.indexer.batches.document_encoder import EncodedDocument
from quarry.engine.scoring.metric import Metric
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.documents.spans import pack_spans
from quarry.formats.vectors.centroids import RoundedRows

__all__ = ["EncodedBatch"]


@dataclass(frozen=True, eq=False)
class EncodedBatch:
    """The columns of n documents, with their vectors and terms.

    Attributes:
        ids: of the documents.
        titles: of the documents, "" for none.
        texts: of the documents.
        metadata: of the documents.
        vectors: (n_rows, dim) float32, the vectors of all documents in their order, as stored.
        counts: (n,) int64, how many of them each document has, 1 at least.
        spans: for each document the packed spans of its vectors (see `quarry.formats.documents.spans`).
        terms: for each document its terms, repeated as often as they occur.
        n_tokens: number of tokens that were encoded for each document; None: none.
        rounded: the vectors in the type that the segment stores, if they were rounded already; None, or those of
            another type: the segment rounds them.
    """

    ids: Sequence[str]
    titles: Sequence[str]
    texts: Sequence[str]
    metadata: Sequence[Mapping[str, object]]
    vectors: Float32Array
    counts: Int64Array
    spans: Sequence[bytes]
    terms: Sequence[Sequence[str]]
    n_tokens: Sequence[int] | None = None
    rounded: RoundedRows | None = None

    @classmethod
    def of(cls, encoded: Sequence[EncodedDocument], metric: Metric) -> EncodedBatch:
        """Return documents of an encoder, at least one, as one batch."""
        rows = metric.rows(np.concatenate([each.vectors.values for each in encoded]))
        return cls.of_documents(
            [each.document for each in encoded],
            rows,
            np.array([len(each.vectors.values) for each in encoded], np.int64),
            [pack_spans(each.vectors.spans) for each in encoded],
            [each.terms for each in encoded],
            [each.n_tokens for each in encoded],
        )

    @classmethod
    def of_documents(
        cls,
        documents: Sequence[Document],
        vectors: Float32Array,
        counts: Int64Array,
        spans: Sequence[bytes],
        terms: Sequence[Sequence[str]],
        n_tokens: Sequence[int] | None = None,
    ) -> EncodedBatch:
        """Return the columns of documents."""
        return cls(
            [document.id for document in documents],
            [document.title for document in documents],
            [document.text for document in documents],
            [document.metadata for document in documents],
            vectors,
            counts,
            spans,
            terms,
            n_tokens,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def round(self, stored_as: str) -> EncodedBatch:
        """Return the batch with its vectors rounded to the type that an index stores (see `Metric.stored_as`)."""
        if stored_as == "none":  # the segment knows what is stored until there are codes
            return self
        return replace(self, rounded=RoundedRows.of(self.vectors, stored_as))

    def divide(self, parts: Sequence[int]) -> dict[int, EncodedBatch]:
        """Return the documents of each part, in their order, by its number.

        Args:
            parts: for each document the number of its part.
        """
        found: dict[int, EncodedBatch] = {}
        for number in sorted(set(parts)):
            places = [place for place, part in enumerate(parts) if part == number]
            found[number] = self if len(places) == len(self) else self.select(places)
        return found

    def select(self, places: Iterable[int]) -> EncodedBatch:
        """Return the documents at some places, in that order."""
        chosen = np.fromiter(places, np.int64)
        starts = np.cumsum(self.counts) - self.counts
        counts = self.counts[chosen]
        before = np.cumsum(counts) - counts
        rows = np.arange(int(counts.sum())) + np.repeat(starts[chosen] - before, counts)
        numbers = chosen.tolist()
        return EncodedBatch(
            [self.ids[place] for place in numbers],
            [self.titles[place] for place in numbers],
            [self.texts[place] for place in numbers],
            [self.metadata[place] for place in numbers],
            self.vectors[rows],
            counts,
            [self.spans[place] for place in numbers],
            [self.terms[place] for place in numbers],
            None if self.n_tokens is None else [self.n_tokens[place] for place in numbers],
            None if self.rounded is None else self.rounded.select(rows),
        )
