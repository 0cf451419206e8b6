"""A stream of documents in batches, each small enough for the memory of a process and for being done again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quarry.engine.documents.document import Document

__all__ = ["DocumentBatch", "describe_documents", "divide"]

_LEAST, _MOST = 64, 2048  # documents
_MOST_CHARACTERS = 8 << 20
_SHARE = 16  # of the documents read before, per process: the last batches leave few processes idle


@dataclass(frozen=True, slots=True)
class DocumentBatch:
    """Documents that are encoded and written together.

    Attributes:
        number: counted from 0.
        first: number of the first document in the stream, from 0.
        documents: at least one.
    """

    number: int
    first: int
    documents: list[Document]

    def __str__(self) -> str:
        last = self.first + len(self.documents)
        return f"documents {self.first + 1} to {last} ({describe_documents(self.documents)})"


def divide(documents: Iterable[Document], n_processes: int) -> Iterator[DocumentBatch]:
    """Yield batches whose sizes grow with the number of documents before them.

    The largest have 2,048 documents or 8 Mi characters.

    Args:
        documents: in their order, which batches keep.
        n_processes: how many work on batches at the same time.
    """
    batch: list[Document] = []
    number = first = n_characters = 0
    for document in documents:
        batch.append(document)
        n_characters += len(document.title) + len(document.text)
        size = min(_MOST, max(_LEAST, first // (_SHARE * n_processes)))
        if len(batch) >= size or n_characters >= _MOST_CHARACTERS:
            yield DocumentBatch(number, first, batch)
            number, first = number + 1, first + len(batch)
            batch, n_characters = [], 0
    if batch:
        yield DocumentBatch(number, first, batch)


def describe_documents(documents: list[Document]) -> str:
    """Return the ids of the first and last of some documents, for messages."""
    first, last = (ascii(documents[place].id[:80]) for place in (0, -1))
    return f"id {first}" if len(documents) == 1 else f"ids {first} to {last}"
