"""The Triton kernel of a scan: documents' scores, without those of their centroids being written.

Its counterpart in plain torch is `quarry.engine.backends.gpu.scores.TorchScores`. Compiled for Hopper, the block
shapes use its matrix instructions and keep nearly everything in registers; they were not tuned on a device yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["RESIDENT", "TILE_ROWS", "Tiling", "can_reside", "document_scores", "resident_scores", "tiling_for"]

TILE_ROWS = 128
"""Centroids that a program scans at a time; a document of more takes several rounds."""
_WIDTH = 64  # dimensions multiplied at a time

# Numbers that differ from call to call are not compiled in: a variant takes half a second. Places are int64 before
# anything is multiplied by a length: 10 million rows of 384 numbers are beyond int32.


class Tiling(NamedTuple):
    """How a scan is divided into programs; powers of 2 but for `stages`.

    Attributes:
        rows: centroids that a program scans at a time, for
        queries: so many, 16 at least.
        width: dimensions multiplied at a time.
        warps: of a program.
        stages: loads under way at once.
    """

    rows: int
    queries: int
    width: int
    warps: int
    stages: int


def tiling_for(n_queries: int, *, softmax: bool) -> Tiling:
    """What is used where nobody says otherwise; `python -m bench gpu --parts tilings` times others beside it."""
    most = 64 if softmax else 128  # what the registers of a Hopper multiprocessor hold
    queries = min(most, max(16, triton.next_power_of_2(n_queries)))
    return Tiling(TILE_ROWS, queries, _WIDTH, warps=8 if queries >= 64 else 4, stages=3)


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
    """Score documents of like length against queries; the scores of their centroids are never written.

    The softmax is aggregated online, as a document's centroids come by (Tang et al. 2021, Eq. 4-6; Milakov and
    Gimelshein 2018 for the running sums).

    Args:
        values: (n_rows, dim) int8 or float16.
        scales: (n_rows,) float32, or None for ones.
        starts: (n_docs + 1,) int64, where each document's rows start.
        docs: (n,) int32, n >= 1: the documents.
        slots: a power of 2 up to the rows of a tile; documents of more rows are slower.
        allowed: (n_docs,) bool; the others get -inf. None: all.
        queries: (n_queries, dim) float16.
        betas: (n_queries,) float32, inverse temperatures, or None for the maximum.
        scores: (at least docs.max() - first_doc + 1, n_queries) float32, is written to.
        first_doc: the document of the first row of `scores`.
        tiling: None: `tiling_for` these queries.
    """
    n_queries = len(queries)
    tile = tiling or tiling_for(n_queries, softmax=betas is not None)
    n_tiles = triton.cdiv(len(docs), tile.rows // slots) * triton.cdiv(n_queries, tile.queries)
    launch = _document_kernel[(n_tiles,)]
    _run(launch, tile, values, scales, starts, docs, slots, allowed, queries, betas, scores, first_doc)


RESIDENT = Tiling(64, 128, 64, warps=8, stages=2)
"""What `resident_scores` uses where nobody says otherwise."""
_HOPPER = 132, 227 << 10  # its multiprocessors, and bytes of shared memory that a program may have


def can_reside(values: torch.Tensor, slots: int, n_queries: int) -> bool:
    """Whether `resident_scores` is for documents of at most `slots` rows of `values`, and so many queries.

    From 65 queries on: below, reading the centroids takes longer than anything else.
    """
    width = triton.cdiv(values.shape[1], RESIDENT.width) * RESIDENT.width
    n_bytes = width * (2 * RESIDENT.queries + RESIDENT.stages * RESIDENT.rows * values.element_size())
    n_bytes += 4 * RESIDENT.rows * RESIDENT.queries  # at most, of scores exchanged within a program
    _, shared_bytes = _multiprocessors(values.device)
    return n_queries > RESIDENT.queries // 2 and slots <= RESIDENT.rows and n_bytes <= shared_bytes


def resident_scores(
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
    """Score documents of at most `slots` rows, as `document_scores` does; see `can_reside`.

    A program keeps its queries, all dimensions of them, and goes on from tile to tile, so that they are not read
    from the cache again for each: 128 queries for each 128 centroids come to as much as the centroids.
    """
    n_queries = len(queries)
    tile = tiling or RESIDENT
    n_query_tiles = triton.cdiv(n_queries, tile.queries)
    n_multiprocessors, _ = _multiprocessors(docs.device)
    n_programs = max(1, n_multiprocessors // n_query_tiles)
    n_programs = min(n_programs, triton.cdiv(len(docs), tile.rows // slots))
    launch = partial(
        _resident_kernel[(n_programs * n_query_tiles,)], CHUNKS=triton.cdiv(queries.shape[1], tile.width)
    )
    _run(launch, tile, values, scales, starts, docs, slots, allowed, queries, betas, scores, first_doc)


def _run(
    launch: Callable[..., object],
    tile: Tiling,
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
) -> None:
    """Launch one of the kernels, which take the same; what is not there is never read."""
    launch(
        values,
        values if scales is None else scales,
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
        SOFTMAX=betas is not None,
        DOCS=tile.rows // slots,
        SLOTS=slots,
        QUERIES=tile.queries,
        WIDTH=tile.width,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


@cache
def _multiprocessors(place: torch.device) -> tuple[int, int]:
    """How many there are, and how many bytes of shared memory a program may have on one."""
    if place.type != "cuda":
        return _HOPPER
    about = torch.cuda.get_device_properties(place)
    most = getattr(about, "shared_memory_per_block_optin", about.shared_memory_per_block)  # not in every torch
    return about.multi_processor_count, most


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
    # programs that read the same centroids are neighbours, so that all but one find them in the cache
    n_tiles = tl.cdiv(n_queries, QUERIES)
    place = tl.program_id(0) // n_tiles * DOCS + tl.arange(0, DOCS)
    query = tl.program_id(0) % n_tiles * QUERIES + tl.arange(0, QUERIES)
    present, asked = place < n_docs, query < n_queries
    doc = tl.load(docs + place, mask=present, other=0)
    first = tl.load(starts + doc)
    last = tl.where(present, tl.load(starts + doc + 1), first + 1)
    beta = tl.load(betas + query, mask=asked, other=0.0) if SOFTMAX else tl.zeros((QUERIES,), tl.float32)
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
                queries + query[None, :] * dim + column[:, None], mask=within[:, None] & asked[None, :], other=0.0
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
        # a document that has ended gains nothing, so each has a weight of at least 1
        top -= lost / weight
    if MASKED:
        top = tl.where(tl.load(allowed + doc)[:, None] != 0, top, -float("inf"))
    cell = (doc - first_doc).to(tl.int64)[:, None] * n_queries + query[None, :]
    tl.store(scores + cell, top, mask=present[:, None] & asked[None, :])


@triton.jit(do_not_specialize=["n_docs", "first_doc", "n_queries"], do_not_specialize_on_alignment=["docs"])
def _resident_kernel(
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
    CHUNKS: tl.constexpr,
):
    n_tiles = tl.cdiv(n_queries, QUERIES)
    query = tl.program_id(0) % n_tiles * QUERIES + tl.arange(0, QUERIES)
    asked = query < n_queries
    beta = tl.load(betas + query, mask=asked, other=0.0) if SOFTMAX else tl.zeros((QUERIES,), tl.float32)
    units = ()
    for chunk in tl.static_range(CHUNKS):
        column = chunk * WIDTH + tl.arange(0, WIDTH)
        given = (column < dim)[:, None] & asked[None, :]
        unit = tl.load(queries + query[None, :] * dim + column[:, None], mask=given, other=0.0)
        units = units + (unit,)  # type: ignore[assignment]  # noqa: RUF005
    for tile in range(tl.program_id(0) // n_tiles, tl.cdiv(n_docs, DOCS), tl.num_programs(0) // n_tiles):
        place = tile * DOCS + tl.arange(0, DOCS)
        present = place < n_docs
        doc = tl.load(docs + place, mask=present, other=0)
        first, last = tl.load(starts + doc), tl.load(starts + doc + 1)
        row = first[:, None] + tl.arange(0, SLOTS)[None, :]
        inside = (row < last[:, None])[:, :, None]
        row = tl.reshape(tl.minimum(row, last[:, None] - 1), (DOCS * SLOTS,))
        product = tl.zeros((DOCS * SLOTS, QUERIES), tl.float32)
        for chunk in tl.static_range(CHUNKS):
            column = chunk * WIDTH + tl.arange(0, WIDTH)
            within = (column < dim)[None, :]
            centroid = tl.load(values + row[:, None] * dim + column[None, :], mask=within, other=0)
            product = tl.dot(centroid.to(tl.float16), units[chunk], product)
        if SCALED:
            product *= tl.load(scales + row)[:, None]
        score = tl.reshape(product, (DOCS, SLOTS, QUERIES))
        top = tl.max(tl.where(inside, score, -float("inf")), axis=1)
        if SOFTMAX:
            below = tl.where(inside, top[:, None, :] - score, 0.0)
            share = tl.where(inside, tl.exp(-beta[None, None, :] * below), 0.0)
            top -= tl.sum(share * below, axis=1) / tl.sum(share, axis=1)
        if MASKED:
            top = tl.where(tl.load(allowed + doc)[:, None] != 0, top, -float("inf"))
        cell = (doc - first_doc).to(tl.int64)[:, None] * n_queries + query[None, :]
        tl.store(scores + cell, top, mask=present[:, None] & asked[None, :])
