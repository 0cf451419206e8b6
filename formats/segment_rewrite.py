"""Copies documents of segments into a new segment with other metadata; their vectors and codes stay unchanged.

Metadata is part of a document's frame and of columns over all documents, which cannot be changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing

import numpy as np

from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileRecord
from quarry.formats.documents.ids import DocIdsWriter
from quarry.formats.documents.store import DocStoreWriter, KnownDictionary, StoredDocument
from quarry.formats.metadata.columns import MetadataWriter
from quarry.formats.postings.postings import PostingsWriter
from quarry.formats.segment_merge import MergeInput, new_segment, write_vectors

__all__ = ["Rewrite", "rewrite_documents"]

Rewrite = Callable[[str, StoredDocument], tuple[Mapping[str, object], Sequence[str]]]
"""Returns the new metadata of a document, and its terms, given its id and what is stored."""


def rewrite_documents(
    directory: Directory,
    inputs: Sequence[MergeInput],
    nlist: int,
    code_bytes: int,
    keep_centroids: bool,
    rewrite: Rewrite,
    known: KnownDictionary,
) -> FileRecord:
    """Write and sync a new segment of the documents that are kept.

    Args:
        directory: the folder of the index.
        inputs: the segments; at least one document is kept.
        nlist: number of lists of the new segment, 0 without.
        code_bytes: bytes of a code, 0 without lists.
        keep_centroids: whether the centroids themselves are stored; all inputs must then have them, of one type.
        rewrite: see `Rewrite`; called in the order of the documents.
        known: see `quarry.formats.documents.store.DocStoreWriter`.

    Raises:
        FormatError: a segment is damaged; no file is left behind.
    """
    with new_segment(directory) as container, ExitStack() as stack:
        fields = write_vectors(inputs, container, nlist, code_bytes, keep_centroids, reads_all=False)
        ids = stack.enter_context(closing(DocIdsWriter(directory)))
        store = stack.enter_context(closing(DocStoreWriter(directory, known)))
        postings = stack.enter_context(closing(PostingsWriter(directory)))
        metadata = stack.enter_context(closing(MetadataWriter(directory)))
        for doc_id, document in _documents(inputs):
            changed, terms = rewrite(doc_id, document)
            ids.add(doc_id)
            store.add(StoredDocument(document.title, document.text, changed, document.spans))
            postings.add(terms)
            metadata.add(changed)
            for part in (ids, store, postings, metadata):
                part.spill()
        for part in (ids, postings, metadata, store):
            part.write(container)
        return container.finish({**fields, "fit": None})


def _documents(inputs: Sequence[MergeInput]) -> Iterator[tuple[str, StoredDocument]]:
    """Yield the ids of the documents that are kept, and what is stored of each."""
    for each in inputs:
        ordinals = np.arange(each.reader.n_docs) if each.keep is None else np.flatnonzero(each.keep)
        yield from zip(each.reader.ids.read(ordinals), each.reader.documents.read(ordinals), strict=True)
