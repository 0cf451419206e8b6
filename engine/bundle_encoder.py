"""What encoders that run a bundle have in common, whatever runs it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from engine.token_frame import TokenFrame
from engine.tokenizer import Tokens, lone_surrogate
from engine.windows import window_bounds
from formats.encoder_bundle import EncoderBundle
from formats.errors import InvalidDocument, InvalidQuery

__all__ = ["BundleEncoder", "check_document", "check_query", "pooled_over_windows"]

Vectors = npt.NDArray[np.float32]


class BundleEncoder:
    """The attributes of an `engine.encoder.Encoder` as a bundle gives them.

    Args:
        bundle: where graph and tokenizer are.
    """

    def __init__(self, bundle: EncoderBundle) -> None:
        self._bundle = bundle

    @property
    def name(self) -> str:
        """The bundle's name."""
        return self._bundle.settings.name

    @property
    def identity(self) -> str:
        """The bundle's identity, 32 hexadecimal digits."""
        return self._bundle.identity

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._bundle.settings.dim

    @property
    def normalise(self) -> bool:
        """Whether query vectors have L2 norm 1."""
        return self._bundle.settings.normalise

    @property
    def beta(self) -> float | None:
        """Inverse temperature of the softmax aggregation, None where the encoder was not trained for it."""
        return self._bundle.settings.beta

    def __repr__(self) -> str:
        settings = self._bundle.settings
        return f"{type(self).__name__}({settings.name!r}, {settings.precision}, identity={self.identity})"

    def _bounds(self, text: str, tokens: Tokens, frame: TokenFrame) -> Iterator[tuple[int, int]]:
        """The windows of a text: (first, stop) token positions."""
        room = self._bundle.settings.window - frame.n_tokens
        return window_bounds(text, tokens.starts, tokens.ends, room)


def check_document(text: str) -> None:
    """Refuse a document that has no UTF-8."""
    position = lone_surrogate(text)
    if position is not None:
        raise InvalidDocument("the text holds a lone surrogate", actual=f"one at character {position}")


def check_query(text: str) -> None:
    """Refuse a query that has no UTF-8."""
    position = lone_surrogate(text)
    if position is not None:
        raise InvalidQuery("the query holds a lone surrogate", actual=f"one at character {position}")


def pooled_over_windows(pooled: list[Vectors], n_tokens: list[int], normalise: bool) -> Vectors:
    """One vector for a query out of its windows' (dim,) vectors: their mean, weighted by their tokens."""
    if len(pooled) == 1:
        return pooled[0]
    weights = np.array(n_tokens, np.float64)
    mean: npt.NDArray[np.float64] = weights @ np.stack(pooled) / weights.sum()
    if normalise:
        mean /= max(float(np.linalg.norm(mean)), 1e-12)
    return mean.astype(np.float32)
