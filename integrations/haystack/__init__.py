"""Haystack: a document store on an index (`store`), and retrievers (`retrievers`).

May import: `quarry.engine`, `quarry.formats`, `quarry.integrations.open_index` and Haystack.
"""

from quarry.integrations.haystack.retrievers import (
    QuarryBM25Retriever,
    QuarryEmbeddingRetriever,
    QuarryHybridRetriever,
    QuarryRetriever,
)
from quarry.integrations.haystack.store import QuarryDocumentStore

__all__ = [
    "QuarryBM25Retriever",
    "QuarryDocumentStore",
    "QuarryEmbeddingRetriever",
    "QuarryHybridRetriever",
    "QuarryRetriever",
]
