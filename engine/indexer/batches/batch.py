"""Documents as columns: what travels from the reader to the segment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quarry.engine.documents.document import Document
from quarry.formats.arrays import Float32Array, Int64Array, UInt32Array
from quarry.formats.vectors.centroids import RoundedRows

__all__ = ["Batch"]


@dataclass(frozen=True, eq=False)
class Batch:
    """The columns of n documents, with their vectors and terms.

    Attributes:
        ids: ids of the documents.
        titles: titles of the documents, "" for none.
        texts: texts of the documents.
        metadata: metadata of the documents.
        vectors: (n_rows, dim) float32, the vectors of all documents in their order, as stored.
        counts: (n_passages,) int64, how many of them each passage has, 1 at least.
        spans: for each document the packed spans of its vectors (see `quarry.formats.documents.spans`).
        terms: for each passage its terms, repeated as often as they occur.
        n_tokens: number of tokens that were encoded for each document.
        rounded: the vectors in the type that the segment stores, if they were rounded already; None, or those of
            another type: the segment rounds them.
        passages: how many passages each document has, and their extents, see
            `quarry.formats.documents.passages.PassagesWriter.add_many`; None: every document is one passage.
    """

    ids: Sequence[str]
    titles: Sequence[str]
    texts: Sequence[str]
    metadata: Sequence[Mapping[str, object]]
    vectors: Float32Array
    counts: Int64Array
    spans: Sequence[bytes]
    terms: Sequence[Sequence[str]]
    n_tokens: Sequence[int]
    rounded: RoundedRows | None = None
    passages: tuple[Int64Array, UInt32Array] | None = None

    @classmethod
    def of(
        cls,
        documents: Sequence[Document],
        vectors: Float32Array,
        counts: Int64Array,
        spans: Sequence[bytes],
        terms: Sequence[Sequence[str]],
        n_tokens: Sequence[int],
    ) -> Batch:
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

    def round(self, stored_as: str) -> Batch:
        """Return the batch with its vectors rounded to the type that an index stores (see `Metric.stored_as`)."""
        if stored_as == "none":  # the segment knows what is stored until there are codes
            return self
        return replace(self, rounded=RoundedRows.of(self.vectors, stored_as))

    def divide(self, parts: Sequence[int]) -> dict[int, Batch]:
        """Divide the documents among parts, and return the batch of each part that has any, by its number.

        Args:
            parts: for each document the number of its part.
        """
        batches: dict[int, Batch] = {}
        for number in sorted(set(parts)):
            places = [place for place, part in enumerate(parts) if part == number]
            batches[number] = self if len(places) == len(self) else self.select(places)
        return batches

    def select(self, places: Iterable[int]) -> Batch:
        """Return the documents at some places, in that order."""
        chosen = np.fromiter(places, np.int64)
        names = ("ids", "titles", "texts", "metadata", "spans", "n_tokens")
        numbers = chosen.tolist()
        columns: dict[str, Any] = {name: [*map(getattr(self, name).__getitem__, numbers)] for name in names}
        own = chosen
        if self.passages is not None:
            sizes, extents = self.passages
            own = _members(sizes, chosen)
            columns["passages"] = sizes[chosen], extents[own]
        rows = _members(self.counts, own)
        return Batch(
            vectors=self.vectors[rows],
            counts=self.counts[own],
            terms=[*map(self.terms.__getitem__, own.tolist())],
            rounded=None if self.rounded is None else self.rounded.select(rows),
            **columns,
        )


def _members(sizes: Int64Array, chosen: Int64Array) -> Int64Array:
    """Return the places of the members of the chosen groups, if groups of these sizes follow each other."""
    starts, counts = np.cumsum(sizes) - sizes, sizes[chosen]
    before = np.cumsum(counts) - counts
    members: Int64Array = np.arange(int(counts.sum())) + np.repeat(starts[chosen] - before, counts)
    return members
