"""Trains quantizers, with FAISS on the CPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from quarry.engine.process.worker_pool import WorkerPool
from quarry.engine.quantization.candidates import measure_candidate_rows
from quarry.engine.quantization.coarse_centroids import train_coarse_centroids
from quarry.engine.quantization.codebook import extract_codebook, place_trained_rows, train_codes
from quarry.engine.quantization.coder import VectorCoder
from quarry.engine.quantization.held_out import TakeQueries
from quarry.engine.quantization.list_assigner import ListAssigner
from quarry.engine.quantization.nprobe import probe_recall
from quarry.engine.quantization.rotation import train_rotation
from quarry.engine.scoring.stored_vectors import decode_vectors, rotate_back
from quarry.engine.thresholds import Thresholds
from quarry.formats.arrays import Float32Array, Int64Array, UInt8Array
from quarry.formats.container.background import StartWork, work_at_once
from quarry.formats.errors import InvalidSetting
from quarry.formats.manifest import IndexSettings
from quarry.formats.vectors.centroids import StoredBatch
from quarry.formats.vectors.distances import DistanceReduction
from quarry.formats.vectors.quantizer import Quantizer

__all__ = [
    "Rows",
    "choose_nlist",
    "count_training_rows",
    "measured",
    "train_lists",
    "train_on",
    "train_quantizer",
]

Rows = Float32Array | StoredBatch
"""(n, dim) rows: float32, or as they are stored, which takes a quarter of the memory if they are int8."""

_ROWS_PER_LIST = 64  # more trained no better lists on 122,084 vectors; a codebook needs about 10,000
_TRAINING_BYTES = 192 << 20  # 32 rows of 384 dimensions for each of 4,096 lists
_MIN_ROWS = 1024  # of more dimensions than these bytes suffice for
_LONG_LIST = 1200  # centroids of a list, see `choose_nlist`
_MANY_LISTS = 4096  # see `choose_nlist`
_DECODED_AT_ONCE = 8192  # rows in float32 at a time, 12 MB of 384 dimensions
_LONG_CODE_ROWS = 1 << 15  # 128 for each of 256 sub-vectors
_LENGTH_ERROR = 0.02  # of rounding to int8 numbers
_ZEROS = 0.01  # share of rows of zeros among rows of length 1


def choose_nlist(n_rows: int) -> int:
    """Return the number of inverted lists for `n_rows` centroids.

    It is the power of two nearest to 3/4 of the root, or for millions of centroids the one nearest to one list for
    1,200 centroids, but 4,096 at most: comparing a query with more takes as long as what shorter lists save.
    """
    wanted = max(0.75 * math.sqrt(n_rows), min(n_rows / _LONG_LIST, _MANY_LISTS), 1)
    return int(2 ** round(math.log2(wanted)))


def count_training_rows(n_rows: int, nlist: int, dim: int, codes_only: bool = False) -> int:
    """Return the number of the `n_rows` centroids that a quantizer with `nlist` lists is trained on."""
    wanted = max(_ROWS_PER_LIST * nlist, _LONG_CODE_ROWS if codes_only else 0)
    return min(n_rows, wanted, max(_MIN_ROWS, _TRAINING_BYTES // (4 * dim)))


def train_quantizer(
    sample: Rows,
    nlist: int,
    code_bytes: int,
    seed: int,
    threads: int,
    *,
    codes_only: bool = False,
    nbits: int = 4,
) -> Quantizer:
    """Train coarse centroids and a PQ codebook (Jégou et al. 2011).

    Numbers of sub-vectors have 4 bits, which are scanned fastest, or 8: half as many sub-quantizers, whose codes
    of the same size have a smaller error (`bench/results/code_bits.jsonl`).

    Codes of less than one bit per dimension are of rotated vectors; for longer ones a rotation finds hardly more.

    Codes that are all that is stored of vectors of length 1 are of residuals (Jégou et al. 2011, section IV.A),
    and decoded vectors are scaled to length 1 (`bench/results/trained_encoders.jsonl`). The list of a row then has
    a part of what its code would have to say, but rows near a coarse centroid are decoded as longer vectors than
    others, and would be found too often. Codes that only select candidates are of the vectors themselves, since
    stage 1 does not scale what it decodes.

    Args:
        sample: (n, dim) training vectors, in the order of their documents.
        nlist: number of inverted lists; lowered if the sample is too small for as many.
        code_bytes: bytes of a code.
        seed: the seed of the k-means, and of the rotation.
        threads: how many to use.
        codes_only: whether the index stores nothing else of the vectors.
        nbits: the number of bits of the number of a sub-vector, 4 or 8.

    Raises:
        InvalidSetting: the codes do not divide the vectors, which FAISS does not check.
    """
    n_sub, dim = 8 * code_bytes // nbits, sample.shape[1]
    if not n_sub or dim % n_sub:
        raise InvalidSetting(
            "code_bytes does not divide the dimension", expected=f"half a divisor of {dim}", actual=code_bytes
        )
    short = 8 * code_bytes < dim
    rotation = train_rotation(sample, n_sub, seed, nbits) if short else None
    rotated = sample if rotation is None else _rotate(sample, rotation)
    coarse = train_coarse_centroids(rotated, max(1, min(nlist, len(sample) // 16)), seed, threads)
    # Only both together: without scaling, rows near a centroid are decoded as longer vectors, and rank too high.
    is_scaled = codes_only and _have_unit_length(sample)
    rest = rotated[place_trained_rows(len(sample), nbits)]
    if is_scaled:
        rest = rest - coarse[ListAssigner(coarse).assign(rest, threads)]
    codebook = extract_codebook(train_codes(rest, n_sub, seed, threads, nbits))
    return Quantizer(coarse, codebook, codebook, rotation, by_residual=is_scaled, unit_length=is_scaled)


def _split(sample: Rows) -> Iterator[Float32Array]:
    """Yield the rows of a sample in batches, as float32."""
    return (sample[low : low + _DECODED_AT_ONCE] for low in range(0, len(sample), _DECODED_AT_ONCE))


def _rotate(sample: Rows, rotation: Float32Array) -> Float32Array:
    return np.concatenate([rows @ rotation.T for rows in _split(sample)])


def _have_unit_length(sample: Rows) -> bool:
    """Whether the rows of a sample have length 1, up to what is lost by storing them as int8.

    A few rows may be zeros, such as those of texts without a word that the encoder knows.
    """
    squares = np.concatenate([np.einsum("ij,ij->i", rows, rows) for rows in _split(sample)])
    is_zero = squares == 0
    has_length = np.abs(squares - 1) < 2 * _LENGTH_ERROR
    return bool((has_length | is_zero).all() and is_zero.mean() <= _ZEROS)


def measured(
    quantizer: Quantizer,
    sample: Rows,
    n_rows: int,
    threads: int,
    take_queries: TakeQueries | None = None,
    *,
    codes_only: bool = False,
) -> Quantizer:
    """Return the quantizer with its quantization error and its calibrated defaults of a search.

    These are the number of lists to read and the number of rows to rescore.

    Args:
        quantizer: as it was trained.
        sample: (n, dim) vectors that it was trained on, in the order of their documents.
        n_rows: number of rows of the index.
        threads: how many to use.
        take_queries: returns rows of the sample as queries; None: rows and queries are alike.
        codes_only: whether final scores are those of the codes.
    """
    coder = VectorCoder(quantizer, threads)
    coded: list[tuple[Int64Array, UInt8Array]] = []
    coder.code_all(_split(sample), lambda lists, codes: coded.append((lists, codes)))
    lists, codes = (np.concatenate(part) for part in zip(*coded, strict=True))
    sizes = np.bincount(lists, minlength=quantizer.nlist)
    with WorkerPool(1, "quarry-train") as pool:  # products of matrices use several cores, the steps between one
        start: StartWork = pool.submit if threads > 1 else work_at_once

        def measure(decoded: Float32Array | None = None) -> tuple[Float32Array | None, int | None]:
            probed = start(lambda rows: probe_recall(rows, quantizer, take_queries, decoded), sample)
            n_needed = measure_candidate_rows(quantizer, sample, lists, codes, take_queries, decoded, n_rows)
            return probed.result(), n_needed

        recall, n_candidates = measure()
        is_ranked_again = quantizer.unit_length or (codes_only and quantizer.distances is not None)
        if is_ranked_again and recall is not None and n_candidates is not None:
            # Stage 1 orders rows otherwise than their final scores, whose best must be found too.
            decoded = rotate_back(quantizer, decode_vectors(quantizer, lists, codes))
            by_codes, n_by_codes = measure(quantizer.extend_rows(decoded))
            recall = recall if by_codes is None else np.minimum(recall, by_codes)
            n_candidates = max(n_candidates, n_by_codes or 0)
    return replace(
        quantizer,
        probe_recall=recall,
        candidate_rows=n_candidates,
        fit=replace(coder.fit(sizes), n_rows=n_rows),
    )


def train_on(
    batches: Iterable[Rows], n_rows: int, settings: IndexSettings, threads: int, thresholds: Thresholds
) -> Quantizer:
    """Train a quantizer for `n_rows` centroids on a sample of them, in bounded memory.

    Args:
        batches: the centroids, in their order.
        n_rows: their number.
        settings: the settings of the index.
        threads: how many to use.
        thresholds: number of lists, and from which size on codes have 8 bits a sub-quantizer.
    """
    nlist = choose_nlist(n_rows) if thresholds.nlist is None else thresholds.nlist
    sample = _draw_sample(batches, n_rows, nlist, settings)
    codes_only = settings.centroids == "none"
    nbits = 8 if codes_only and n_rows >= thresholds.long_code_rows else 4
    distances = _distances_of(sample, settings)
    if distances is not None:
        sample = StoredBatch(distances.rows(sample[:]), None)
    trained = train_quantizer(
        sample,
        nlist,
        settings.code_bytes,
        settings.seed,
        threads,
        codes_only=codes_only and distances is None,  # codes of directions alone would lose lengths of later rows
        nbits=nbits,
    )
    if distances is None:
        return measured(trained, sample, n_rows, threads)
    trained = replace(trained, distances=distances)
    take_queries: TakeQueries = lambda places: distances.queries(sample[places])  # noqa: E731  # it has a type
    return measured(trained, sample, n_rows, threads, take_queries, codes_only=codes_only)


def train_lists(
    codes: Quantizer,
    batches: Iterable[Rows],
    n_rows: int,
    settings: IndexSettings,
    threads: int,
    thresholds: Thresholds,
) -> Quantizer:
    """Train inverted lists of `n_rows` centroids for a quantizer that was trained with an encoder.

    Its rotation and its codebooks stay, so that the code of a vector is the same in every index. The quantizer
    itself is returned, with the lists that it has, if there are too few rows for more, or if it encodes residuals,
    because such codes depend on their lists.

    Args:
        codes: the quantizer.
        batches: the centroids, in their order.
        n_rows: their number.
        settings: the settings of the index.
        threads: how many to use.
        thresholds: minimum number of rows, and number of lists.
    """
    if codes.by_residual or n_rows < thresholds.list_rows:
        return codes
    nlist = choose_nlist(n_rows) if thresholds.nlist is None else thresholds.nlist
    sample = _draw_sample(batches, n_rows, nlist, settings)
    n_lists = max(1, min(nlist, len(sample) // 16))
    rotated = sample if codes.rotation is None else _rotate(sample, codes.rotation)
    coarse = train_coarse_centroids(rotated, n_lists, settings.seed, threads)
    return measured(replace(codes, coarse=coarse, search_settings=()), sample, n_rows, threads)


def _distances_of(sample: StoredBatch, settings: IndexSettings) -> DistanceReduction | None:
    if settings.metric is None or not settings.metric.by_distance:
        return None
    return DistanceReduction.of(sample[:], settings.metric.dim)


def _draw_sample(batches: Iterable[Rows], n_rows: int, nlist: int, settings: IndexSettings) -> StoredBatch:
    """Draw the rows that a quantizer with `nlist` lists is trained on, in their order."""
    n_sample = count_training_rows(n_rows, nlist, settings.dim, codes_only=settings.centroids == "none")
    generator = np.random.default_rng(settings.seed)
    # one row out of each of n_sample equal intervals
    places = (np.arange(n_sample) + generator.random(n_sample)) * (n_rows / n_sample)
    chosen = np.minimum(places.astype(np.int64), n_rows - 1)
    parts = []
    start = seen = 0
    for batch in batches:
        stop = int(np.searchsorted(chosen, seen + len(batch)))
        rows = batch if isinstance(batch, StoredBatch) else StoredBatch(batch, None)
        parts.append(rows.select(chosen[start:stop] - seen))
        start, seen = stop, seen + len(batch)
    return StoredBatch.join(parts)
