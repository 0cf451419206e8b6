"""Documents as columns, ready to be stored: what travels from the reader to the segment in one step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quarry.engine.documents.document import Document
from quarry.engine.indexer.document_encoder import EncodedDocument
from quarry.engine.scoring.metric import Metric
from quarry.formats.documents.spans import pack_spans
from quarry.formats.errors import InvalidDocument

__all__ = ["EncodedBatch"]


@dataclass(frozen=True, eq=False)
class EncodedBatch:
    """Documents with their vectors and terms.

    Attributes:
        documents: n documents, as they were given.
        vectors: (n_rows, dim) float32, the vectors of all documents in their order.
        counts: (n,) int64, how many of them each document has, 1 at least.
        spans: for each document the packed spans of its vectors (see `quarry.formats.documents.spans`).
        terms: for each document its terms, repeated as often as they occur.
        n_tokens: for each document the number of tokens that were encoded.
    """

    documents: Sequence[Document]
    vectors: npt.NDArray[np.float32]
    counts: npt.NDArray[np.int64]
    spans: Sequence[bytes]
    terms: Sequence[Sequence[str]]
    n_tokens: Sequence[int]

    @classmethod
    def of(cls, encoded: Sequence[EncodedDocument], metric: Metric) -> EncodedBatch:
        """Return documents of an encoder, at least one, as one batch.

        Raises:
            InvalidDocument: the metric makes numbers of a vector that are too large to be stored.
        """
        rows = metric.rows(np.concatenate([each.vectors.values for each in encoded]))
        if metric.name == "l2" and not (np.abs(rows) <= np.finfo(np.float16).max).all():
            raise InvalidDocument("a vector is too long to be stored for the metric l2")
        return cls(
            [each.document for each in encoded],
            rows,
            np.array([len(each.vectors.values) for each in encoded], np.int64),
            [pack_spans(each.vectors.spans) for each in encoded],
            [each.terms for each in encoded],
            [each.n_tokens for each in encoded],
        )

    def __len__(self) -> int:
        return len(self.documents)

    def select(self, places: Iterable[int]) -> EncodedBatch:
        """Return the documents at some places, in that order."""
        chosen = np.fromiter(places, np.int64)
        starts = np.cumsum(self.counts) - self.counts
        counts = self.counts[chosen]
        before = np.cumsum(counts) - counts
        rows = np.arange(int(counts.sum())) + np.repeat(starts[chosen] - before, counts)
        return EncodedBatch(
            [self.documents[place] for place in chosen.tolist()],
            self.vectors[rows],
            counts,
            [self.spans[place] for place in chosen.tolist()],
            [self.terms[place] for place in chosen.tolist()],
            [self.n_tokens[place] for place in chosen.tolist()],
        )
