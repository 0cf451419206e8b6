"""The protocol of encoders that leave token vectors on their device, where centroids are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.batch_encoder import BatchEncoder
from quarry.engine.encoding.tokenizer import Tokens

if TYPE_CHECKING:
    import torch

__all__ = ["DeviceBatchEncoder", "DeviceTokens", "PreparedText"]


@dataclass(frozen=True, slots=True)
class PreparedText:
    """The tokens and windows of a document.

    Attributes:
        tokens: all tokens.
        bounds: (first, stop) token positions of each window; empty without tokens.
    """

    tokens: Tokens
    bounds: tuple[tuple[int, int], ...]

    @property
    def n_tokens(self) -> int:
        """Number of tokens, without special tokens."""
        return len(self.tokens.ids)

    @property
    def n_inputs(self) -> int:
        """Number of windows."""
        return len(self.bounds)

    def part(self, first: int, stop: int) -> PreparedText:
        """Return the same document with only the windows from `first` to before `stop`."""
        return replace(self, bounds=self.bounds[first:stop])


@dataclass(frozen=True, eq=False)
class DeviceTokens:
    """The token vectors of several documents, without special tokens.

    Attributes:
        values: (n_tokens, dim) float32 on the device, document after document.
        offsets: (n_docs + 1,) int64 in main memory, ascending from 0: where each document's tokens start.
    """

    values: torch.Tensor
    offsets: npt.NDArray[np.int64]


@runtime_checkable
class DeviceBatchEncoder(BatchEncoder[PreparedText, Any], Protocol):
    """An encoder in batches that can leave token vectors on its device, where centroids are computed."""

    def run_on_device(self, prepared: Sequence[PreparedText]) -> DeviceTokens:
        """Encode the tokens of documents; the vectors stay on the device, for the calling thread."""
        ...
