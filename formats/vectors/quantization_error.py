"""The quantization error of encoded rows, recorded when a quantizer is trained and for every segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quarry.formats.arrays import Int64Array
from quarry.formats.container.fields import Fields

__all__ = ["QuantizationError", "combine_errors", "list_imbalance"]

_MAX_ERROR = 1e60
_MAX_ROWS = 1 << 40


@dataclass(frozen=True, kw_only=True)
class QuantizationError:
    """The quantization error of rows, and how evenly they are distributed over the lists.

    Attributes:
        n_rows: encoded rows; in a quantizer the rows of the index that it was trained for.
        coarse_error: mean squared distance of a row to its coarse centroid, estimated on a sample.
        code_error: mean squared distance of a row to its decoded code, estimated on a sample.
        imbalance: nlist * sum(size^2) / rows^2: 1 for lists of equal length, more if the lists are unbalanced.
    """

    n_rows: int
    coarse_error: float
    code_error: float
    imbalance: float

    @classmethod
    def from_fields(cls, fields: Fields | None) -> QuantizationError | None:
        """Read the fields of an error; None if nothing was recorded."""
        if fields is None:
            return None
        fit = cls(
            n_rows=fields.integer("n_rows", 1, _MAX_ROWS),
            coarse_error=fields.number("coarse_error", 0.0, _MAX_ERROR),
            code_error=fields.number("code_error", 0.0, _MAX_ERROR),
            imbalance=fields.number("imbalance", 0.0, _MAX_ERROR),
        )
        fields.refuse_unknown()
        return fit


def combine_errors(
    fits: Sequence[QuantizationError | None], n_rows: Sequence[int], imbalance: float
) -> QuantizationError | None:
    """Return the error of several parts of `n_rows` each together, or None if one is not known."""
    known = [fit for fit in fits if fit is not None]
    if len(known) < len(fits):
        return None
    return QuantizationError(
        n_rows=sum(n_rows),
        coarse_error=float(np.average([fit.coarse_error for fit in known], weights=n_rows)),
        code_error=float(np.average([fit.code_error for fit in known], weights=n_rows)),
        imbalance=imbalance,
    )


def list_imbalance(sizes: Int64Array) -> float:
    """Return the imbalance of lists of these sizes; see `QuantizationError`."""
    total = float(sizes.sum())
    return len(sizes) * float((sizes.astype(np.float64) ** 2).sum()) / total**2 if total else 0.0
