"""Stage 1 on a device by exhaustive scan: all centroids against all queries.

Documents are scored in blocks and only the best are kept, so memory is bounded for any number of centroids.
"""

from __future__ import annotations

import torch

from quarry.engine.backends.gpu.queries import ScanQueries
from quarry.engine.backends.gpu.rows import DeviceRows
from quarry.engine.backends.gpu.scores import BlockScores, error_factor

__all__ = ["DeviceScan", "best_documents"]

_BATCH_QUERIES = 256
_GROUP = 64  # documents in a group of `best_documents`
_FLOAT_ROUNDING = 1e-6  # of the squared norms in distances, and of distances that are final scores
_PLACE_BYTES = 24  # work memory for a document of the best groups


class DeviceScan:
    """Ranks the documents of a segment by all their centroids, with approximate scores of known error."""

    def __init__(self, rows: DeviceRows, scores: BlockScores, work_bytes: int) -> None:
        self._rows = rows
        self._scores = scores
        self._work_bytes = work_bytes

    def find(
        self, queries: torch.Tensor, n: int, allowed: torch.Tensor | None, beta: float | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Find the n best documents for each query; nothing is downloaded.

        Args:
            queries: (n_queries, dim) float32 on the device, n_queries at least 1.
            n: number of documents, below the number of allowed ones.
            allowed: (n_docs,) bool on the device, or None for all.
            beta: inverse temperature of the softmax aggregation that ranks them, or None for the maximum.

        Returns:
            (n_queries, n) int64 documents, and (n_queries,) float64 upper bounds of the scores of all others.
        """
        batch = max(1, min(_BATCH_QUERIES, self._work_bytes // (n * _GROUP * _PLACE_BYTES)))
        parts = [self._find(some, n, allowed, beta) for some in queries.split(batch)]
        return torch.cat([docs for docs, _ in parts]), torch.cat([bounds for _, bounds in parts])

    def _find(
        self, queries: torch.Tensor, n: int, allowed: torch.Tensor | None, beta: float | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self._rows.distance_dim is not None:
            queries = queries.clone()
            queries[:, self._rows.distance_dim :] = 0
        unit_queries = ScanQueries.of(queries, beta, self._scores.kind, self._scores.wide_sums)
        scores, docs = self._best(unit_queries, n + 1, allowed)
        longest, norms = self._rows.largest_norm, unit_queries.norms
        factor = error_factor(self._rows.documents.most_rows, beta)
        bounds = (scores[:, n].double() + unit_queries.slack * longest * factor) * norms
        if self._rows.distance_dim is not None:
            squares = norms.square()
            bounds = (bounds - squares / 2 + _FLOAT_ROUNDING * (squares + longest**2)).clamp_(max=0)
        return docs[:, :n], bounds

    def _best(
        self, queries: ScanQueries, n: int, allowed: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the best scores of unit queries, descending, and their documents: (n_queries, n) each."""
        place = self._rows.values.device
        scores = torch.full((len(queries), n), -torch.inf, device=place)
        docs = torch.zeros((len(queries), n), dtype=torch.int64, device=place)
        for low, high in self._scores.blocks(len(queries)):
            best, places = best_documents(self._scores.scores(queries, low, high, allowed), n)
            scores, order = torch.cat([scores, best], dim=1).topk(n, dim=1)
            docs = torch.cat([docs, places + low], dim=1).gather(1, order)
        return scores, docs


def best_documents(scores: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the largest n of (n_docs, n_queries) scores for each query, or all if there are fewer.

    For many documents, first the n groups of 64 with the largest maxima are found: for a document outside of them
    there are n others that score at least as much.

    Returns:
        (n_queries, n) scores and (n_queries, n) int64 places.
    """
    n_docs, n_queries = scores.shape
    n_groups = n_docs // _GROUP
    if n_groups <= 2 * n:
        best, places = scores.T.contiguous().topk(min(n, n_docs), dim=1)
        return best, places
    grouped = scores[: n_groups * _GROUP].view(n_groups, _GROUP, n_queries)
    groups = grouped.amax(1).T.contiguous().topk(n, dim=1).indices  # (n_queries, n)
    inside = torch.arange(_GROUP, device=scores.device)
    places = (groups[:, :, None] * _GROUP + inside).view(n_queries, -1)
    rest = torch.arange(n_groups * _GROUP, n_docs, device=scores.device).expand(n_queries, -1)
    places = torch.cat([places, rest], dim=1)
    best, order = scores.T.gather(1, places).topk(n, dim=1)
    return best, places.gather(1, order)
