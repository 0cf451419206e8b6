"""Makes a segment without an index, from given vectors and a quantizer."""

from __future__ import annotations

import numpy as np

from quarry.engine.backends.protocol import SearchParameters
from quarry.engine.backends.registry import open_backend
from quarry.engine.quantization.coder import VectorCoder
from quarry.formats.documents.store import StoredDocument
from quarry.formats.manifest import SegmentRecord
from quarry.formats.segment import SegmentReader, SegmentWriter
from quarry.formats.snapshot import OpenSegment
from quarry.formats.vectors.inverted_lists import InvertedListsWriter
from quarry.formats.vectors.quantizer import QuantizationError, Quantizer

DIM = 24


def random_documents(generator, n_docs=60):
    return [generator.standard_normal((n, DIM)).astype(np.float32) for n in generator.integers(1, 5, n_docs)]


def segment_of(directory, documents, kind="int8", quantizer=None, keep_centroids=True):
    """Write and open a segment with these centroids, and inverted lists if there is a quantizer."""
    writer = SegmentWriter(directory, DIM, kind)
    for number, vectors in enumerate(documents):
        writer.add(str(number), StoredDocument("", "text", {}, b""), vectors)
    lists = None
    if quantizer:
        lists = InvertedListsWriter(directory, quantizer.nlist, quantizer.code_bytes)
        coder = VectorCoder(quantizer, 1)
        for batch in writer.centroids.batches():
            lists.add(*coder.code(batch))
    nlist, code_bytes = (quantizer.nlist, quantizer.code_bytes) if quantizer else (0, 0)
    file = writer.finish(lists, nlist, code_bytes, keep_centroids)
    writer.close()
    if lists:
        lists.close()
    record = SegmentRecord(file=file, tombstones=None, quantizer="", n_docs=len(documents), n_deleted=0)
    return OpenSegment(record, SegmentReader(directory, file, DIM), None, quantizer)


QUANTIZERS = {
    "whole": (False, False),
    "residual": (True, False),
    "unit": (False, True),
    "unit residual": (True, True),
}
"""`by_residual` and `unit_length` of quantizers by name."""


def candidates_of(segment, backend, queries, n):
    """Return the n candidates for each query that a backend finds in five lists."""
    return open_backend(backend, segment).candidates(queries, SearchParameters(n, n, 5, 1))


def random_quantizer(generator, n_sub, nbits, by_residual, turned, apart, unit_length=False):
    """Make a quantizer of random values, with a quantization error that is not that of its codes."""
    dim = 16 if turned else DIM
    shape = (n_sub, 1 << nbits, dim // n_sub)
    encode = generator.standard_normal(shape).astype(np.float32)
    rotation = np.linalg.qr(generator.standard_normal((DIM, DIM)))[0][:dim].astype(np.float32) if turned else None
    return Quantizer(
        coarse=(generator.standard_normal((5, dim)) * (0.5 if by_residual else 1)).astype(np.float32),
        encode_codebook=encode,
        score_codebook=generator.standard_normal(shape).astype(np.float32) if apart else encode,
        rotation=rotation,
        by_residual=by_residual,
        unit_length=unit_length,
        fit=QuantizationError(n_rows=1000, coarse_error=0.7, code_error=0.6, imbalance=1.0),
    )
