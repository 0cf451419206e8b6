"""Means of contiguous passages and of the whole document: the engine's default representation."""

from __future__ import annotations

import numpy as np
import torch

from quarry.engine.representation.pieces import text_pieces
from quarry.formats.errors import InvalidSetting
from quarry.training.model.tokens import TokenBatch
from quarry.training.objectives.ranking import (
    RankingObjective,
    RankingSettings,
    average_groups,
    select_text_tokens,
)
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["Passages"]


class Passages(RankingObjective):
    """Documents are the means of their passages, and of more than one passage their own mean, the last row.

    The rows are those of the engine's `Pieces`, cut at the same tokens. The score
    is the maximum of the rows' inner products or, with `beta`, its smooth version (Eq. 4-6 of Tang et al. 2021
    with an inverse temperature): with the maximum only one passage of a document gets a gradient.

    Args:
        settings: see `RankingSettings`.
        tokens_per_piece: mean length of a passage in tokens; of several one is drawn at each step, so that the
            encoder serves all of them.
        seed: the seed of the draw.

    Raises:
        InvalidSetting: no length, or one out of range.
    """

    def __init__(self, settings: RankingSettings, tokens_per_piece: tuple[int, ...], seed: int = 0) -> None:
        super().__init__(settings)
        if not tokens_per_piece or not all(1 <= length <= 4096 for length in tokens_per_piece):
            raise InvalidSetting(
                "tokens_per_piece is out of range", expected="lengths from 1 to 4096", actual=tokens_per_piece
            )
        self._lengths = tokens_per_piece
        self._seed = seed

    @property
    def representation(self) -> str:
        """``pieces``."""
        return "pieces"

    @property
    def representation_settings(self) -> dict[str, int]:
        """The median of the lengths that are trained."""
        return {"tokens_per_piece": self.tokens_per_piece(None)}

    def tokens_per_piece(self, step: int | None) -> int:
        """The length of passages at a step; None: the median."""
        if step is None:
            return sorted(self._lengths)[(len(self._lengths) - 1) // 2]
        return int(np.random.default_rng([self._seed, step]).choice(self._lengths))

    def document_rows(self, hidden: torch.Tensor, tokens: TokenBatch, step: int | None) -> DocumentRows:
        """Passages, then the whole; see `RankingObjective.document_rows`."""
        length = self.tokens_per_piece(step)
        sizes: list[np.ndarray] = []
        for text in tokens.texts:
            whole = [(0, len(text.ids))]
            sizes.append(text_pieces(text.text, text.starts, text.ends, whole, length).sizes)
        values = select_text_tokens(hidden, tokens)
        n_passages = [len(each) for each in sizes]
        passage_of_token = np.repeat(np.arange(sum(n_passages)), np.concatenate(sizes))
        text_of_token = np.repeat(np.arange(len(sizes)), [int(each.sum()) for each in sizes])
        passages = average_groups(values, _placed(passage_of_token, values), sum(n_passages))
        wholes = average_groups(values, _placed(text_of_token, values), len(sizes))
        order, counts = _with_wholes(n_passages)
        return DocumentRows(torch.cat([passages, wholes])[_placed(order, values)], counts)


def _placed(numbers: np.ndarray, values: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(numbers).to(values.device)


def _with_wholes(n_passages: list[int]) -> tuple[np.ndarray, tuple[int, ...]]:
    """Order rows document after document.

    Args:
        n_passages: the number of passages of each document.

    Returns:
        order: positions in the passages of all documents followed by the documents' own means.
        counts: the rows of each document.
    """
    order: list[int] = []
    first = 0
    total = sum(n_passages)
    for document, count in enumerate(n_passages):
        order += range(first, first + count)
        if count > 1:
            order.append(total + document)
        first += count
    return np.array(order, np.int64), tuple(count + (count > 1) for count in n_passages)
