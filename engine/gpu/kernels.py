"""Triton kernels of a scan, of rescoring and of inverted lists; they write no intermediate scores to memory.

Each has a counterpart in plain torch, used without Triton or CUDA: `TorchScores`, `DeviceRows` and `DeviceLists`.
None has been tuned on a device yet. Compiled for Hopper, the block shapes of the scan use its matrix instructions
and keep nearly everything in registers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["TILE_ROWS", "Tiling", "choose_tiling", "document_scores", "pair_scores", "score_lists"]

TILE_ROWS = 128
"""Centroids that a program scans at a time; a document of more takes several rounds."""

# Sizes that change from call to call are not constants, since compiling a variant takes half a second. Offsets are
# int64 before they are multiplied: 10 million rows of 384 dimensions exceed int32.


class Tiling(NamedTuple):
    """The division of a scan into programs; powers of 2 except `stages`.

    Attributes:
        rows: number of centroids that a program scans at a time.
        queries: number of queries of a program, at least 16.
        width: number of dimensions multiplied at a time.
        warps: number of warps of a program.
        stages: number of pipelined loads.
    """

    rows: int
    queries: int
    width: int
    warps: int
    stages: int


def choose_tiling(n_queries: int, slots: int, *, softmax: bool) -> Tiling:
    """Return the default tiling for a number of queries; it has not been tuned on a device yet.

    The registers of a Hopper multiprocessor hold scores of 128 queries, or 64 if there are running sums too, or as
    many documents as centroids.
    """
    most = 64 if softmax or slots == 1 else 128
    queries = min(most, max(16, triton.next_power_of_2(n_queries)))
    return Tiling(TILE_ROWS, queries, _WIDTH, warps=8 if queries >= (32 if softmax else 64) else 4, stages=3)


def document_scores(
    values: torch.Tensor,
    scales: torch.Tensor | None,
    starts: torch.Tensor,
    docs: torch.Tensor,
    slots: int,
    allowed: torch.Tensor | None,
    queries: torch.Tensor,
    betas: torch.Tensor | None,
    scores: torch.Tensor,
    first_doc: int,
    tiling: Tiling | None = None,
) -> None:
    """Score documents of similar length against queries, without storing the scores of their centroids.

    The softmax is aggregated online over a document's centroids (Tang et al. 2021, Eq. 4-6; Milakov and
    Gimelshein 2018 for the running sums).

    Args:
        values: (n_rows, dim) int8 or float16.
        scales: (n_rows,) float32, or None for ones.
        starts: (n_docs + 1,) int64, offset of each document's rows.
        docs: (n,) int32, n >= 1: the documents.
        slots: a power of 2 up to the rows of a tile; 1 only if no document has more rows, which are slower.
        allowed: (n_docs,) bool; the others get -inf. None: all.
        queries: (n_queries, dim) float16.
        betas: (n_queries,) float32, inverse temperatures, or None for the maximum.
        scores: (at least docs.max() - first_doc + 1, n_queries) float32, is written to.
        first_doc: the document of the first row of `scores`.
        tiling: None: `choose_tiling` these queries.
    """
    n_queries = len(queries)
    softmax = betas is not None and slots > 1  # of one score, it is that score
    tile = tiling or choose_tiling(n_queries, slots, softmax=softmax)
    n_tiles = triton.cdiv(len(docs), tile.rows // slots) * triton.cdiv(n_queries, tile.queries)
    _document_kernel[(n_tiles,)](
        values,
        values if scales is None else scales,  # not read if absent
        starts,
        docs,
        len(docs),
        values if allowed is None else allowed.view(torch.uint8),
        queries,
        queries if betas is None else betas,
        scores,
        first_doc,
        *queries.shape,
        SCALED=scales is not None,
        MASKED=allowed is not None,
        SOFTMAX=softmax,
        DOCS=tile.rows // slots,
        SLOTS=slots,
        QUERIES=tile.queries,
        WIDTH=tile.width,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


@triton.jit(do_not_specialize=["n_docs", "first_doc", "n_queries"], do_not_specialize_on_alignment=["docs"])
def _document_kernel(
    values,
    scales,
    starts,
    docs,
    n_docs,
    allowed,
    queries,
    betas,
    scores,
    first_doc,
    n_queries,
    dim,
    SCALED: tl.constexpr,
    MASKED: tl.constexpr,
    SOFTMAX: tl.constexpr,
    DOCS: tl.constexpr,
    SLOTS: tl.constexpr,
    QUERIES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    # neighboring programs read the same centroids, which stay in the cache
    n_tiles = tl.cdiv(n_queries, QUERIES)
    place = tl.program_id(0) // n_tiles * DOCS + tl.arange(0, DOCS)
    query = tl.program_id(0) % n_tiles * QUERIES + tl.arange(0, QUERIES)
    present, valid = place < n_docs, query < n_queries
    doc = tl.load(docs + place, mask=present, other=0)
    first = tl.load(starts + doc)
    last = tl.where(present, tl.load(starts + doc + 1), first + 1)
    beta = tl.load(betas + query, mask=valid, other=0.0) if SOFTMAX else tl.zeros((QUERIES,), tl.float32)
    top = tl.full((DOCS, QUERIES), -float("inf"), tl.float32)
    weight = tl.zeros((DOCS, QUERIES), tl.float32)
    lost = tl.zeros((DOCS, QUERIES), tl.float32)
    for low in range(0, tl.max(last - first), SLOTS):
        row = first[:, None] + low + tl.arange(0, SLOTS)[None, :]
        inside = (row < last[:, None])[:, :, None]
        row = tl.reshape(tl.minimum(row, last[:, None] - 1), (DOCS * SLOTS,))
        product = tl.zeros((DOCS * SLOTS, QUERIES), tl.float32)
        for start in range(0, dim, WIDTH):
            column = start + tl.arange(0, WIDTH)
            within = column < dim
            centroid = tl.load(values + row[:, None] * dim + column[None, :], mask=within[None, :], other=0)
            unit = tl.load(
                queries + query[None, :] * dim + column[:, None], mask=within[:, None] & valid[None, :], other=0.0
            )
            product = tl.dot(centroid.to(tl.float16), unit, product)
        if SCALED:
            product *= tl.load(scales + row)[:, None]
        score = tl.reshape(product, (DOCS, SLOTS, QUERIES))
        risen = tl.maximum(top, tl.max(tl.where(inside, score, -float("inf")), axis=1))
        if SOFTMAX:
            below = tl.where(inside, risen[:, None, :] - score, 0.0)
            share = tl.where(inside, tl.exp(-beta[None, None, :] * below), 0.0)
            rise = tl.where(low > 0, risen - top, 0.0)
            kept = tl.exp(-beta[None, :] * rise)
            lost = kept * (lost + rise * weight) + tl.sum(share * below, axis=1)
            weight = kept * weight + tl.sum(share, axis=1)
        top = risen
    if SOFTMAX:
        # places behind a document's last row add nothing, so each weight is at least 1
        top -= lost / weight
    if MASKED:
        top = tl.where(tl.load(allowed + doc)[:, None] != 0, top, -float("inf"))
    cell = (doc - first_doc).to(tl.int64)[:, None] * n_queries + query[None, :]
    tl.store(scores + cell, top, mask=present[:, None] & valid[None, :])


_WIDTH = 64  # dimensions multiplied at a time
_PAIR_DOCS, _PAIR_SLOTS = 4, 4  # documents of one query, and centroids of each at a time
_LIST_ROWS = 128  # of a list in one program of the kernel


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
