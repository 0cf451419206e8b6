"""Decides which segments have inverted lists, and trains the quantizer of an index that has none yet."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from quarry.engine.encoding.encoder import Encoder, trained_quantizer
from quarry.engine.encoding.no_encoder import NoEncoder
from quarry.engine.quantization.calibration import calibrated
from quarry.engine.quantization.query_sample import MAX_TEXTS, sample_vectors
from quarry.engine.quantization.training import Rows, train_lists, train_on
from quarry.engine.scoring.metric import Metric
from quarry.engine.thresholds import Thresholds
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.container.directory import Directory
from quarry.formats.manifest import IndexSettings
from quarry.formats.vectors.quantizer import Quantizer, StoredQuantizer, write_quantizer

__all__ = ["ListPlan", "TrainingRows", "join_rows", "return_freed_memory"]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """The rows that a quantizer is trained and calibrated on; each function reads them again.

    Attributes:
        n_passages: number of passages.
        n_rows: number of rows.
        batches: returns the rows.
        owned_batches: returns the rows with the (n,) int64 numbers of their passages, ascending.
        texts: returns query-like texts of the documents.
    """

    n_passages: int
    n_rows: int
    batches: Callable[[], Iterator[Rows]]
    owned_batches: Callable[[], Iterator[tuple[Float32Array, Int64Array]]]
    texts: Callable[[], list[str]]


def join_rows(parts: Sequence[TrainingRows]) -> TrainingRows:
    """Return the rows of several parts as one, with texts in proportion to the numbers of their passages."""
    n_passages = sum(part.n_passages for part in parts)
    firsts = np.cumsum([0, *(part.n_passages for part in parts)]).tolist()

    def owned_batches() -> Iterator[tuple[Float32Array, Int64Array]]:
        for part, first in zip(parts, firsts, strict=False):
            for vectors, owners in part.owned_batches():
                yield vectors, owners + first

    def texts() -> list[str]:
        n_texts = min(MAX_TEXTS, n_passages)
        return [
            text for part in parts for text in part.texts()[: -(-n_texts * part.n_passages // max(1, n_passages))]
        ]

    return TrainingRows(
        n_passages,
        sum(part.n_rows for part in parts),
        lambda: chain.from_iterable(part.batches() for part in parts),
        owned_batches,
        texts,
    )


@dataclass(eq=False)
class ListPlan:
    """The segments of an index that have inverted lists, and their quantizers.

    Attributes:
        settings: the settings of the index; its writer replaces them as long as there are no documents.
        threads: for training and coding.
        thresholds: from which size on a segment has inverted lists, and how many.
        encoder: encoder of the documents, for calibrating a new quantizer with queries, and whose own quantizer is
            used if it was trained with one; None: a new one is calibrated with rows only.
    """

    settings: IndexSettings
    threads: int
    thresholds: Thresholds
    encoder: Encoder | None = None

    @property
    def trained(self) -> Quantizer | None:
        """The quantizer that the encoder was trained with, if its codes have the size of those of the index."""
        return trained_quantizer(self.encoder, self.settings.code_bytes)

    def has_lists(self, n_rows: int, has_quantizer: bool) -> bool:
        """Whether a segment has inverted lists.

        Args:
            n_rows: number of centroids of the segment.
            has_quantizer: whether the index has a quantizer, or the encoder was trained with one.
        """
        if not self.settings.code_bytes:
            return False
        if self.settings.centroids == "none":
            return has_quantizer or n_rows >= self.thresholds.training_rows
        return n_rows >= self.thresholds.list_rows

    def choose(
        self, directory: Directory, existing: StoredQuantizer | None, n_rows: int, rows: Callable[[], TrainingRows]
    ) -> StoredQuantizer | None:
        """Return the quantizer of a segment, None if it has no lists; the file of a new one is written.

        Args:
            directory: the folder of the index.
            existing: quantizer of the index; None: the encoder's is used, or if it has none one is trained.
            n_rows: number of centroids of the segment.
            rows: returns them.
        """
        if not self.has_lists(n_rows, existing is not None or self.trained is not None):
            return None
        if existing:
            return existing
        trained = self.make_quantizer(rows())
        return StoredQuantizer(trained, write_quantizer(directory, trained))

    def make_quantizer(self, rows: TrainingRows) -> Quantizer:
        """Train a quantizer on rows, or lists for the one that the encoder was trained with, and calibrate it.

        Memory that was freed before is returned first, because training takes the most memory of a commit.
        """
        return_freed_memory()
        settings, threads, encoder, codes = self.settings, self.threads, self.encoder, self.trained
        if codes is None:
            trained = train_on(rows.batches(), rows.n_rows, settings, threads, self.thresholds)
        else:
            trained = train_lists(codes, rows.batches(), rows.n_rows, settings, threads, self.thresholds)
        if encoder is None or isinstance(encoder, NoEncoder) or trained is codes:
            return trained
        texts = rows.texts()
        one_of = -(-len(texts) // self.thresholds.calibration_queries) or 1
        queries = sample_vectors(encoder, texts[::one_of], threads)
        if len(queries):
            queries = Metric.of_settings(settings, is_normalized=encoder.normalize).queries(queries)
        codes_only = settings.centroids == "none"
        return calibrated(trained, rows.owned_batches(), queries, threads, codes_only=codes_only)


def return_freed_memory() -> None:
    """Give memory that is allocated but not used back to the operating system; does nothing without glibc.

    The C library of most Linux systems (glibc) keeps freed memory for each thread, tens of megabytes of it once
    arrays of some megabytes were freed: another thread that then allocates does not get it.
    """
    trim = _find_trim()
    if trim is not None:
        trim(0)


def _find_trim() -> Callable[[int], int] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # other C libraries; Windows has no library of that name
        return None
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    function: Callable[[int], int] = trim
    return function
