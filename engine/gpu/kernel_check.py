"""Compares the Triton kernels with plain torch on a device, before they are used."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import torch

from quarry.engine.gpu.aggregation import aggregate_rows

__all__ = ["KERNELS", "find_sound_kernels", "is_sound"]

_log = logging.getLogger(__name__)
_DIM, _N_DOCS, _N_QUERIES, _MANY_QUERIES = 96, 200, 5, 130
_NLIST = 6
_CODES = ((4, 8), (8, 8), (4, 6), (8, 3))  # bits and number of sub-quantizers: codes of words, and of bytes
_SLOTS = 4  # documents with more rows take two rounds
_Check = Callable[[ModuleType, torch.device, torch.Generator, int], bool]


def find_sound_kernels(kernels: ModuleType, place: torch.device) -> SimpleNamespace | None:
    """Compare each kernel with torch on small random inputs; log a warning for each that differs or fails.

    Args:
        kernels: `quarry.engine.gpu.kernels`, or a module with the same names.
        place: the device.

    Returns:
        The names of `kernels`, with None for each kernel that cannot be used; None if none can.
    """
    sound = {name: is_sound(name, kernels, place) for name in KERNELS}
    if not any(sound.values()):
        return None
    usable = {name: getattr(kernels, name) if sound[name] else None for name in sound}
    return SimpleNamespace(TILE_ROWS=kernels.TILE_ROWS, **usable)


def is_sound(name: str, kernels: ModuleType, place: torch.device, n_docs: int = _N_DOCS) -> bool:
    """Compare one of `KERNELS` with torch on random documents; log a warning if it differs or fails."""
    try:
        with torch.inference_mode():
            if _CHECKS[name](kernels, place, torch.Generator().manual_seed(0), n_docs):
                return True
    except Exception as error:  # compiler and driver raise various exceptions
        _log.warning("Triton's kernel %s cannot be used, torch is used instead: %s", name, error)
        return False
    _log.warning("Triton's kernel %s differs from torch, which is used instead", name)
    return False


def _documents(kernels: ModuleType, place: torch.device, generator: torch.Generator, n_docs: int) -> bool:
    """Compare narrow and widest tiles with both dtypes; some documents take two rounds."""
    return all(
        _documents_of(kernels.document_scores, place, kind, n_queries, generator, n_docs)
        for kind, n_queries in ((torch.int8, _N_QUERIES), (torch.float16, _MANY_QUERIES))
    )


def _documents_of(
    scored: Callable[..., None],
    place: torch.device,
    kind: torch.dtype,
    n_queries: int,
    generator: torch.Generator,
    n_docs: int,
) -> bool:
    scales: torch.Tensor | None
    starts, values, scales = _made_rows(place, generator, n_docs)
    if kind == torch.float16:
        values, scales = torch.randn(values.shape, generator=generator).half().to(place) / 8, None
    units = torch.nn.functional.normalize(torch.randn(n_queries, _DIM, generator=generator)).half().to(place)
    docs = torch.arange(n_docs, dtype=torch.int32, device=place)
    products = (values.double() @ units.double().T).float()
    if scales is not None:
        products *= scales[:, None]
    for betas in (None, torch.full((n_queries,), 4.0, device=place)):
        scores = torch.empty((n_docs, n_queries), device=place)
        scored(values, scales, starts, docs, _SLOTS, None, units, betas, scores, 0)
        if not torch.allclose(scores, aggregate_rows(products.clone(), starts, betas), atol=1e-4):
            return False
    return True


def _pairs(kernels: ModuleType, place: torch.device, generator: torch.Generator, n_docs: int) -> bool:
    starts, values, scales = _made_rows(place, generator, n_docs)
    queries = torch.randn(_N_QUERIES, _DIM, generator=generator, dtype=torch.float64).to(place)
    units = torch.rand(_N_QUERIES, generator=generator, dtype=torch.float64).to(place)
    docs = torch.stack([torch.randperm(n_docs, generator=generator)[:50] for _ in range(_N_QUERIES)]).to(place)
    products = ((values.double() @ queries.T) * (scales.double()[:, None] * units)).float()
    for beta in (None, 4.0):
        scores = kernels.pair_scores(values, scales, starts, docs, queries, units, beta)
        betas = None if beta is None else torch.full((_N_QUERIES,), beta, device=place)
        expected = aggregate_rows(products.clone(), starts, betas).T.gather(1, docs)
        if not torch.allclose(scores, expected, rtol=1e-5, atol=1e-5):
            return False
    return True


def _made_rows(
    place: torch.device, generator: torch.Generator, n_docs: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the offsets of documents of 1 to 6 rows, and random rows with their scales."""
    lengths = torch.randint(1, 7, (n_docs,), generator=generator)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    values = torch.randint(-127, 128, (int(starts[-1]), _DIM), generator=generator, dtype=torch.int8)
    scales = torch.rand(len(values), generator=generator) / 500
    return starts.to(place), values.to(place), scales.to(place)


def _lists(kernels: ModuleType, place: torch.device, generator: torch.Generator, n_docs: int) -> bool:
    return all(_list_codes(kernels, place, generator, *codes, n_docs) for codes in _CODES)


def _list_codes(
    kernels: ModuleType, place: torch.device, generator: torch.Generator, nbits: int, n_sub: int, n_docs: int
) -> bool:
    n_bytes = n_sub * nbits // 8
    codes = torch.randint(0, 256, (n_docs, n_bytes), generator=generator, dtype=torch.uint8).to(place)
    owners = (torch.arange(n_docs, dtype=torch.int32) // 3).to(place)
    starts = torch.linspace(0, n_docs, _NLIST + 1).long().to(place)
    tables = torch.randn(_N_QUERIES, n_sub, 1 << nbits, generator=generator).to(place)
    probed = torch.tensor([[0, 2, 5]] * _N_QUERIES, device=place)
    lists = torch.randn(_N_QUERIES, 3, generator=generator).to(place)
    actual = torch.full((_N_QUERIES, n_docs), -torch.inf, device=place)
    expected = actual.clone()
    longest = int(starts.diff().max())
    kernels.score_lists(codes, owners, starts, longest, tables, probed, lists, actual)
    numbers = codes if nbits == 8 else torch.stack([codes & 0x0F, codes >> 4], dim=2).view(n_docs, n_sub)
    for place_of_list, number in enumerate((0, 2, 5)):
        part = slice(int(starts[number]), int(starts[number + 1]))
        cells = numbers[part].long().T[None].expand(_N_QUERIES, -1, -1)
        scores = tables.gather(2, cells).sum(1) + lists[:, place_of_list, None]
        expected.scatter_reduce_(1, owners[part].long().expand(_N_QUERIES, -1), scores, "amax")
    return bool(torch.allclose(actual, expected, rtol=1e-4, atol=1e-4))


_CHECKS: dict[str, _Check] = {"document_scores": _documents, "pair_scores": _pairs, "score_lists": _lists}
KERNELS = tuple(_CHECKS)
"""Names of the kernels that are compared."""
