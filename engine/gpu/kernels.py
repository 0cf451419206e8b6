"""Triton kernels of a scan, of rescoring and of inverted lists; they write no intermediate scores to memory.

Each has a counterpart in plain torch, used without Triton or CUDA: `TorchScores`, `DeviceRows` and `DeviceLists`.
None has been tuned on a device yet.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from quarry.engine.gpu.scan_kernel import TILE_ROWS, Tiling, document_scores

__all__ = [
    "TILE_ROWS",
    "Tiling",
    "document_scores",
    "pair_scores",
    "score_lists",
]

_WIDTH = 64  # dimensions multiplied at a time
_PAIR_DOCS, _PAIR_SLOTS = 4, 4  # documents of one query, and centroids of each at a time
_LIST_ROWS = 128


def pair_scores(
    values: torch.Tensor,
    scales: torch.Tensor | None,
    starts: torch.Tensor,
    docs: torch.Tensor,
    queries: torch.Tensor,
    query_scales: torch.Tensor,
    beta: float | None,
) -> torch.Tensor:
    """Compute exact scores of documents, each for its query; products are summed in float64.

    Args:
        values: (n_rows, dim) int8 or float16.
        scales: (n_rows,) float32, or None for ones.
        starts: (n_docs + 1,) int64, offset of each document's rows.
        docs: (n_queries, n) int64.
        queries: (n_queries, dim) float64.
        query_scales: (n_queries,) float64, factors of the products of each query.
        beta: inverse temperature of the softmax aggregation, or None for the maximum.

    Returns:
        (n_queries, n) float32.
    """
    n_queries, n = docs.shape
    scores = torch.empty((n_queries, n), dtype=torch.float32, device=docs.device)
    n_tiles = triton.cdiv(n, _PAIR_DOCS)
    if n_queries * n_tiles:
        _pair_kernel[(n_queries * n_tiles,)](
            values,
            values if scales is None else scales,
            starts,
            docs.contiguous(),
            queries,
            query_scales,
            scores,
            n,
            n_tiles,
            values.shape[1],
            0.0 if beta is None else float(beta),
            SCALED=scales is not None,
            SOFTMAX=beta is not None,
            DOCS=_PAIR_DOCS,
            SLOTS=_PAIR_SLOTS,
            WIDTH=_WIDTH,
        )
    return scores


@triton.jit(do_not_specialize=["n", "n_tiles"])
def _pair_kernel(
    values,
    scales,
    starts,
    docs,
    queries,
    query_scales,
    scores,
    n,
    n_tiles,
    dim,
    beta,
    SCALED: tl.constexpr,
    SOFTMAX: tl.constexpr,
    DOCS: tl.constexpr,
    SLOTS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    query = (tl.program_id(0) // n_tiles).to(tl.int64)
    place = tl.program_id(0) % n_tiles * DOCS + tl.arange(0, DOCS)
    present = place < n
    doc = tl.load(docs + query * n + place, mask=present, other=0)
    first = tl.load(starts + doc)
    last = tl.where(present, tl.load(starts + doc + 1), first + 1)
    scale = tl.load(query_scales + query)
    top = tl.full((DOCS,), -float("inf"), tl.float32)
    weight = tl.zeros((DOCS,), tl.float32)
    lost = tl.zeros((DOCS,), tl.float32)
    for low in range(0, tl.max(last - first), SLOTS):
        row = first[:, None] + low + tl.arange(0, SLOTS)[None, :]
        inside = row < last[:, None]
        row = tl.reshape(tl.minimum(row, last[:, None] - 1), (DOCS * SLOTS,))
        total = tl.zeros((DOCS * SLOTS, WIDTH), tl.float64)
        for start in range(0, dim, WIDTH):
            column = start + tl.arange(0, WIDTH)[None, :]
            within = column < dim
            centroid = tl.load(values + row[:, None] * dim + column, mask=within, other=0)
            total += centroid.to(tl.float64) * tl.load(queries + query * dim + column, mask=within, other=0.0)
        product = tl.sum(total, axis=1)
        if SCALED:
            product *= tl.load(scales + row).to(tl.float64) * scale
        else:
            product *= scale
        score = tl.reshape(product.to(tl.float32), (DOCS, SLOTS))
        risen = tl.maximum(top, tl.max(tl.where(inside, score, -float("inf")), axis=1))
        if SOFTMAX:
            below = tl.where(inside, risen[:, None] - score, 0.0)
            share = tl.where(inside, tl.exp(-beta * below), 0.0)
            rise = tl.where(low > 0, risen - top, 0.0)
            kept = tl.exp(-beta * rise)
            lost = kept * (lost + rise * weight) + tl.sum(share * below, axis=1)
            weight = kept * weight + tl.sum(share, axis=1)
        top = risen
    if SOFTMAX:
        top -= lost / weight
    tl.store(scores + query * n + place, top, mask=present)


def score_lists(
    codes: torch.Tensor,
    owners: torch.Tensor,
    starts: torch.Tensor,
    longest: int,
    tables: torch.Tensor,
    probed: torch.Tensor,
    lists: torch.Tensor,
    best: torch.Tensor,
) -> None:
    """Raise the scores of documents to the maximum over their rows in the probed lists, by table lookups.

    Args:
        codes: (n_rows, code_bytes) uint8, list after list.
        owners: (n_rows,) int32, the document of each.
        starts: (nlist + 1,) int64, offset of each list.
        longest: rows of the longest list, at least 1.
        tables: (n_queries, M, ksub) float32, the score of each sub-vector; ksub 16 or 256.
        probed: (n_queries, nprobe) int64, the lists to read.
        lists: (n_queries, nprobe) float32, the score of each list's coarse centroid.
        best: (n_queries, n_docs) float32, updated in place.
    """
    n_blocks, code_bytes = triton.cdiv(longest, _LIST_ROWS), codes.shape[1]
    in_words = code_bytes % 4 == 0  # a byte at a time takes four times as many loads
    _list_kernel[(probed.numel() * n_blocks,)](
        codes.view(torch.int32) if in_words else codes,
        owners,
        starts,
        tables,
        probed,
        lists,
        best,
        n_blocks,
        probed.shape[1],
        best.shape[1],
        code_bytes,
        WORDS=in_words,
        HALVES=tables.shape[2] == 16,
        ROWS=_LIST_ROWS,
    )


@triton.jit(do_not_specialize=["n_blocks", "nprobe", "n_docs"])
def _list_kernel(
    codes,
    owners,
    starts,
    tables,
    probed,
    lists,
    best,
    n_blocks,
    nprobe,
    n_docs,
    code_bytes,
    WORDS: tl.constexpr,
    HALVES: tl.constexpr,
    ROWS: tl.constexpr,
):
    pair = tl.program_id(0) // n_blocks
    query = (pair // nprobe).to(tl.int64)
    number = tl.load(probed + pair)
    place = tl.load(starts + number) + tl.program_id(0) % n_blocks * ROWS + tl.arange(0, ROWS)
    present = place < tl.load(starts + number + 1)
    score = tl.zeros((ROWS,), tl.float32) + tl.load(lists + pair)
    table = tables + query * code_bytes * (32 if HALVES else 256)
    if WORDS:
        for word in range(code_bytes // 4):
            packed = tl.load(codes + place * (code_bytes // 4) + word, mask=present, other=0)
            for byte in tl.static_range(4):
                score = _add_byte(score, table, word * 4 + byte, (packed >> (8 * byte)) & 255, HALVES)
    else:
        for byte in range(code_bytes):
            code = tl.load(codes + place * code_bytes + byte, mask=present, other=0).to(tl.int32)
            score = _add_byte(score, table, byte, code, HALVES)
    owner = tl.load(owners + place, mask=present, other=0)
    tl.atomic_max(best + query * n_docs + owner, score, mask=present)


@triton.jit
def _add_byte(score, table, byte, code, HALVES: tl.constexpr):
    if HALVES:
        score += tl.load(table + byte * 32 + (code & 15)) + tl.load(table + byte * 32 + 16 + (code >> 4))
    else:
        score += tl.load(table + byte * 256 + code)
    return score
