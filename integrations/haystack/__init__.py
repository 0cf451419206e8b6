"""Haystack: a document store on an index, and retrievers that are components of its pipelines.

Start with `store.QuarryDocumentStore`, which keeps documents with or without embeddings of their own. `retrievers`
searches it by meaning, by words or by both, and `filters` translates filters of Haystack.
"""

from quarry.engine.process.libraries import importing

with importing("haystack"):
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
