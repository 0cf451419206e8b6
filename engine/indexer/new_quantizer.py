"""Trains the quantizer of an index that has none yet, and calibrates it with query-like texts of its documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.trained import trained_quantizer
from quarry.engine.quantization.calibration import calibrated
from quarry.engine.quantization.query_sample import sample_vectors
from quarry.engine.quantization.training import train_lists, train_on
from quarry.engine.thresholds import Thresholds
from quarry.formats.manifest import IndexSettings
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["TrainingRows", "make_quantizer"]

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """The rows that a quantizer is trained and calibrated on; each function reads them again.

    Attributes:
        n_rows: number of rows.
        batches: returns the rows, (n, dim) float32 each.
        owned_batches: returns the rows with the (n,) int64 numbers of their documents, ascending.
        texts: returns query-like texts of the documents.
    """

    n_rows: int
    batches: Callable[[], Iterator[Floats]]
    owned_batches: Callable[[], Iterator[tuple[Floats, Ints]]]
    texts: Callable[[], list[str]]


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
    if encoder is None or trained is codes:
        return trained
    return calibrated(trained, rows.owned_batches(), sample_vectors(encoder, rows.texts(), threads), threads)
