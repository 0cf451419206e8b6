"""Where BM25 changes from one method to another, which takes less time; scores are the same by both."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Costs"]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Sizes from which on another method is used, and the largest query.

    Attributes:
        dense_factor: up to so many documents per posting of a term, its scores are stored for all documents.
        sparse_factor: from so many documents per posting of the first terms on, there is no array of all totals.
        large_segment: documents; in smaller segments, adding a term takes less time than deciding whether to.
        many_candidates: so many are reduced between look-ups.
        frequent: documents of a segment; a term with so many is decoded only if that takes less time.
        postings_per_lookup: decoded and scored in the time of looking up one document.
        max_terms: distinct terms of a query; of more terms the rarest are used.
    """

    dense_factor: int = 6
    sparse_factor: int = 16
    large_segment: int = 1 << 17
    many_candidates: int = 4096
    frequent: int = 1 << 16
    postings_per_lookup: int = 32
    max_terms: int = 1000
