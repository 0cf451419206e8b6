"""A quantizer on a device, and the lookup tables for scores of codes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quarry.engine.backends.gpu.length_terms import code_length_terms
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["DeviceQuantizer", "Tables"]

_FLOAT_BYTES = 8


@dataclass(frozen=True, eq=False)
class Tables:
    """Lookup tables of a batch of queries.

    Attributes:
        scores: (n_queries, M, ksub) float32, the score of each sub-vector.
        probed: (n_queries, nprobe) int64, the lists to read.
        lists: (n_queries, nprobe) float32, the term that each list adds to the scores of its rows.
    """

    scores: torch.Tensor
    probed: torch.Tensor
    lists: torch.Tensor


class DeviceQuantizer:
    """A `quarry.formats.vectors.quantizer.Quantizer` on a device.

    Attributes:
        coarse: (nlist, rotated dim) float32.
        by_residual: whether codes encode the residual of the coarse centroid.
        n_sub: number of sub-quantizers.
        query_bytes: memory for the tables of a query.
        length_terms: (nlist or 1, M, ksub) float32, see `code_length_terms`; None if decoded vectors keep their
            length.
    """

    def __init__(self, quantizer: Quantizer, place: torch.device) -> None:
        self.coarse = torch.tensor(quantizer.coarse, device=place)
        self._codebook = torch.tensor(quantizer.score_codebook, device=place)
        self._rotation = None if quantizer.rotation is None else torch.tensor(quantizer.rotation, device=place)
        self._distances = quantizer.distances
        self.by_residual = quantizer.by_residual
        terms = code_length_terms(quantizer) if quantizer.unit_length else None
        self.length_terms = None if terms is None else torch.tensor(terms, device=place)
        self._nbits = quantizer.nbits
        self.n_sub = len(quantizer.score_codebook)
        self.query_bytes = _FLOAT_BYTES * (
            2 * self._codebook.shape[0] * self._codebook.shape[1] + len(self.coarse)
        )

    def rotate(self, queries: torch.Tensor) -> torch.Tensor:
        """Return (n, dim) queries as they are compared with codes: (n, rotated dim), with the same dtype."""
        if self._distances is not None:
            queries = queries.clone()
            queries[:, self._distances.dim :] = 0
            queries[:, self._distances.dim] = self._distances.norm
        return queries if self._rotation is None else queries @ self._rotation.to(queries.dtype).T

    def sub_scores(self, rotated: torch.Tensor) -> torch.Tensor:
        """Return (n, M, ksub) scores of all sub-vectors for rotated queries, with the same dtype."""
        parts = rotated.view(len(rotated), self.n_sub, -1)
        return torch.einsum("mkd,nmd->nmk", self._codebook.to(rotated.dtype), parts).contiguous()

    def tables(self, queries: torch.Tensor, nprobe: int) -> Tables:
        """Return the tables of (n_queries, dim) float32 queries for their `nprobe` best lists."""
        rotated = self.rotate(queries)
        lists, probed = (rotated @ self.coarse.T).topk(nprobe, dim=1)
        return Tables(self.sub_scores(rotated), probed, lists if self.by_residual else torch.zeros_like(lists))

    def look_up(self, tables: torch.Tensor, tables_of: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        """Return the sums of what tables have for the sub-vectors of codes.

        Args:
            tables: (n_tables, M, ksub), for example of `sub_scores`, a table for each query.
            tables_of: (n,) int64, the table of each code.
            codes: (n, code_bytes) uint8.

        Returns:
            (n,) sums with the dtype of the tables.
        """
        if self._nbits == 4:
            codes = torch.stack([codes & 0x0F, codes >> 4], dim=2).view(len(codes), -1)
        ksub = tables.shape[2]
        cells = torch.arange(self.n_sub, device=codes.device) * ksub + codes
        cells += tables_of[:, None] * (self.n_sub * ksub)
        return tables.view(-1)[cells].sum(1)
