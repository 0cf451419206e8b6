"""How fast the scan's kernel is, divided into programs in other ways than it is: what to choose on a new device.

The tilings are those that a compiler for Hopper keeps in registers, or nearly so. What limits a batch is how often
queries are read again from the cache: 128 of 384 numbers for 128 centroids come to as much as the centroids.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import torch

from bench.gpu.clock import median_ms
from bench.gpu.sizes import Size, made_queries
from bench.gpu.steps import guarded
from bench.gpu.synthetic import MadeTable
from bench.harness.records import Record
from quarry.engine.backends.gpu.queries import ScanQueries
from quarry.engine.backends.gpu.rows import DeviceRows
from quarry.engine.gpu.device import Device

__all__ = ["tilings"]

_BLOCK_BYTES = 1 << 28  # of scores
_N_FIELDS = 5
_FEW = 16  # queries of the narrowest tile
_MOST_ERROR = 1e-4  # between two orders of summing up
_TILINGS: list[tuple[int, ...]] = [  # rows, queries, width, warps, stages, whether queries stay
    (64, 128, 64, 4, 2, True),
    (64, 128, 64, 8, 2, True),
    (64, 64, 64, 4, 3, True),
    (128, 256, 64, 8, 3),
    (256, 128, 64, 8, 3),
    (128, 128, 64, 8, 3),
    (128, 128, 64, 8, 4),
    (128, 128, 32, 8, 4),
    (64, 128, 64, 4, 3),
    (64, 128, 64, 4, 4),
    (64, 256, 64, 8, 3),
    (128, 64, 64, 8, 3),
    (128, 64, 64, 4, 3),
    (64, 64, 64, 4, 3),
    (64, 64, 64, 4, 4),
    (256, 64, 64, 8, 3),
    (128, 16, 64, 4, 3),
    (128, 16, 64, 4, 4),
    (128, 16, 128, 4, 3),
    (128, 16, 128, 8, 3),
    (128, 16, 64, 8, 4),
    (64, 16, 64, 4, 3),
    (64, 16, 128, 4, 3),
    (64, 16, 128, 4, 4),
    (256, 16, 64, 8, 3),
]


def tilings(place: torch.device, size: Size) -> Iterator[Record]:
    """Yield milliseconds of one pass over all float16 centroids, for each tiling, batch and aggregation."""
    yield from guarded({"what": "tiling"}, partial(_tilings, place, size))


def _tilings(place: torch.device, size: Size) -> Iterator[Record]:
    device = Device(str(place))
    if device.kernels is None or device.kernel("document_scores") is None:
        yield {"missing": "no kernel to divide"}
        return
    rows = DeviceRows(MadeTable(size.lengths, size.dim, "float16"), device)  # type: ignore[arg-type]
    docs = torch.arange(len(size.lengths), dtype=torch.int32, device=place)
    for batch in size.batches:
        queries = torch.from_numpy(made_queries(batch, size.dim)).to(place)
        for beta in (None, 8.0):
            units = ScanQueries.of(queries, beta, torch.float16, wide_sums=True)
            run = _Pass(device.kernels, rows, docs, units, size.per_document)
            expected = run(None)
            for tiling in [each for each in _TILINGS if (each[1] == _FEW) == (batch <= _FEW)]:
                about: Record = {"batch": batch, "beta": beta, "tiling": list(tiling)}
                timed = partial(_timed, run, tiling, expected, place, size, batch)
                yield from guarded(about, timed, (Exception,))  # one that does not fit is not wrong


def _timed(
    run: _Pass, tiling: tuple[int, ...], expected: torch.Tensor, place: torch.device, size: Size, batch: int
) -> Iterator[Record]:
    error = float((run(tiling) - expected).abs().max())
    ms = median_ms(partial(run, tiling), place, size.n_calls)
    rates = {
        "gb_s": 2.0 * size.n_rows * size.dim / ms / 1e6,
        "tflop_s": 2.0 * size.n_rows * size.dim * batch / ms / 1e9,
    }
    yield {"ms": ms, **rates, "error": error, "sound": error <= _MOST_ERROR}


class _Pass:
    """All documents against some queries, block by block, into the same memory."""

    def __init__(
        self,
        kernels: SimpleNamespace,
        rows: DeviceRows,
        docs: torch.Tensor,
        queries: ScanQueries,
        slots: int,
    ) -> None:
        self._kernels = kernels
        self._rows = rows
        self._docs = docs
        self._queries = queries
        self._slots = slots
        self._step = max(1, min(len(docs), _BLOCK_BYTES // (4 * len(queries))))

    def __call__(self, tiling: tuple[int, ...] | None) -> torch.Tensor:
        """The scores of the last block."""
        from quarry.engine.gpu.kernels import Tiling

        score = self._kernels.document_scores
        if tiling is not None and len(tiling) > _N_FIELDS:
            score = self._kernels.resident_scores
        block = torch.empty((self._step, len(self._queries)), device=self._docs.device)
        for low in range(0, len(self._docs), self._step):
            score(
                self._rows.values,
                self._rows.scales,
                self._rows.documents.starts,
                self._docs[low : low + self._step],
                self._slots,
                None,
                self._queries.units,
                self._queries.betas,
                block,
                low,
                tiling=None if tiling is None else Tiling(*tiling[:_N_FIELDS]),
            )
        return block[: len(self._docs) - low]
