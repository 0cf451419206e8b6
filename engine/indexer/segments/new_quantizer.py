"""Trains the quantizer of an index that has none yet, and calibrates it with query-like texts of its documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.no_encoder import NoEncoder
from quarry.engine.encoding.trained import trained_quantizer
from quarry.engine.quantization.calibration import calibrated
from quarry.engine.quantization.query_sample import MAX_TEXTS, sample_vectors
from quarry.engine.quantization.training import train_lists, train_on
from quarry.engine.scoring.metric import Metric
from quarry.engine.thresholds import Thresholds
from quarry.formats.manifest import IndexSettings
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["TrainingRows", "join_rows", "make_quantizer"]

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """The rows that a quantizer is trained and calibrated on; each function reads them again.

    Attributes:
        n_docs: number of documents.
        n_rows: number of rows.
        batches: returns the rows, (n, dim) float32 each.
        owned_batches: returns the rows with the (n,) int64 numbers of their documents, ascending.
        texts: returns query-like texts of the documents.
    """

    n_docs: int
    n_rows: int
    batches: Callable[[], Iterator[Floats]]
    owned_batches: Callable[[], Iterator[tuple[Floats, Ints]]]
    texts: Callable[[], list[str]]


def join_rows(parts: Sequence[TrainingRows]) -> TrainingRows:
    """Return the rows of several parts as one, with texts in proportion to the numbers of their documents."""
    n_docs = sum(part.n_docs for part in parts)
    firsts = np.cumsum([0, *(part.n_docs for part in parts)]).tolist()

    def owned_batches() -> Iterator[tuple[Floats, Ints]]:
        for part, first in zip(parts, firsts, strict=False):
            for vectors, owners in part.owned_batches():
                yield vectors, owners + first

    def texts() -> list[str]:
        n_texts = min(MAX_TEXTS, n_docs)
        return [text for part in parts for text in part.texts()[: -(-n_texts * part.n_docs // max(1, n_docs))]]

    return TrainingRows(
        n_docs,
        sum(part.n_rows for part in parts),
        lambda: chain.from_iterable(part.batches() for part in parts),
        owned_batches,
        texts,
    )


def make_quantizer(
    rows: TrainingRows, settings: IndexSettings, threads: int, thresholds: Thresholds, encoder: Encoder | None
) -> Quantizer:
    """Train a quantizer on rows, or lists for the one that the encoder was trained with, and calibrate it.

    Args:
        rows: of the index.
        settings: of the index.
        threads: for training and encoding.
        thresholds: minimum number of rows with lists, and number of lists.
        encoder: encoder of the documents; None: the quantizer is calibrated with rows only.
    """
    codes = trained_quantizer(encoder, settings.code_bytes)
    if codes is None:
        trained = train_on(rows.batches(), rows.n_rows, settings, threads, thresholds.nlist)
    else:
        trained = train_lists(codes, rows.batches(), rows.n_rows, settings, threads, thresholds)
    if encoder is None or isinstance(encoder, NoEncoder) or trained is codes:
        return trained
    queries = sample_vectors(encoder, rows.texts(), threads)
    if len(queries):
        queries = Metric.of_settings(settings, is_normalized=encoder.normalize).queries(queries)
    codes_only = settings.centroids == "none"
    return calibrated(trained, rows.owned_batches(), queries, threads, codes_only=codes_only)
