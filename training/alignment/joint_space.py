"""One target of the vectors of several teachers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch

from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.training.objectives.scoring import DocumentRows, score_documents

__all__ = ["JointSpace", "best_shares", "fit_joint_space", "load_joint_space"]

_PARTS = 4  # shares of teachers are multiples of a quarter


@dataclass(frozen=True, eq=False)
class JointSpace:
    """The space of the targets: teachers' vectors, centered, scaled to length 1, joined and rotated.

    Centered, because vectors of some encoders lie in a narrow cone. The inner product of two joined vectors is the
    sum of the teachers' cosines by their shares. The rotation orders dimensions by their variance and keeps the
    first: of fewer dimensions, no others keep more of the inner products.

    Attributes:
        means: for each teacher (dim,) float32, the mean of its vectors.
        shares: the shares of the teachers, which add up to 1.
        rotation: (sum of the teachers' dims, dim) float32.
    """

    means: tuple[torch.Tensor, ...]
    shares: tuple[float, ...]
    rotation: torch.Tensor

    def unit(self, teacher: int, values: torch.Tensor) -> torch.Tensor:
        """Center the vectors of a teacher and scale them to length 1: (n, dim of the teacher)."""
        return torch.nn.functional.normalize(values - self.means[teacher], dim=1)

    def target(self, units: Sequence[torch.Tensor]) -> torch.Tensor:
        """The (n, dim) targets of length 1, of what `unit` returned for each teacher."""
        return torch.nn.functional.normalize(_joined(units, self.shares) @ self.rotation, dim=1)

    def save(self, path: Path) -> None:
        """Write a file that `load_joint_space` reads, complete or not at all."""
        partial = path.with_suffix(".partial.pt")
        torch.save({"means": list(self.means), "shares": list(self.shares), "rotation": self.rotation}, partial)
        partial.rename(path)


def load_joint_space(path: Path) -> JointSpace:
    """Read what `JointSpace.save` wrote.

    Raises:
        CorruptFile: it cannot be read.
    """
    try:
        state = torch.load(path, weights_only=True)
        return JointSpace(tuple(state["means"]), tuple(state["shares"]), state["rotation"])
    except (OSError, RuntimeError, ValueError, KeyError, EOFError, TypeError) as error:
        raise CorruptFile(f"the space of the targets cannot be read: {error}", path=path) from error


def fit_joint_space(samples: Sequence[torch.Tensor], shares: Sequence[float], dim: int) -> JointSpace:
    """Fit the space to vectors of the same texts by each teacher.

    Args:
        samples: for each teacher (n, dim of the teacher) float32.
        shares: the shares of the teachers, 0 or more, not all 0.
        dim: the number of dimensions of the targets.

    Raises:
        InvalidSetting: the teachers' vectors have fewer dimensions, or there are fewer texts than dimensions.
    """
    n_dims = sum(each.shape[1] for each in samples)
    if not dim <= min(n_dims, len(samples[0])):
        raise InvalidSetting(
            "the targets have too many dimensions",
            expected=f"at most the {n_dims} of all teachers, and the {len(samples[0])} texts of the sample",
            actual=dim,
        )
    space = JointSpace(
        tuple(each.mean(0) for each in samples), tuple(each / sum(shares) for each in shares), samples[0]
    )
    joined = _joined([space.unit(number, each) for number, each in enumerate(samples)], space.shares).double()
    _, vectors = torch.linalg.eigh(joined.T @ joined)
    rotation = vectors.flip(1)[:, :dim]
    signs = rotation.gather(0, rotation.abs().argmax(0, keepdim=True)).sign()  # the same on every machine
    return JointSpace(space.means, space.shares, (rotation * signs).float().contiguous())


def best_shares(
    queries: Sequence[torch.Tensor],
    documents: Sequence[DocumentRows],
    relevant: Sequence[Sequence[int]],
) -> tuple[tuple[float, ...], Mapping[tuple[float, ...], float]]:
    """Find the shares of teachers whose scores, added by them, rank relevant documents best.

    Args:
        queries: for each teacher (n_queries, dim) float32 of length 1.
        documents: for each teacher the rows of all documents, of length 1.
        relevant: for each query the numbers of its relevant documents, one at least.

    Returns:
        The shares, multiples of a quarter, and the mean reciprocal rank of the first relevant document with each;
        of equal ones the most even shares.
    """
    scores = [score_documents(own, rows, None) for own, rows in zip(queries, documents, strict=True)]
    is_relevant = torch.zeros_like(scores[0], dtype=torch.bool)
    for row, each in enumerate(relevant):
        is_relevant[row, list(each)] = True
    reciprocal_ranks = {}
    for shares in _all_shares(len(scores)):
        joint = sum(share * each for share, each in zip(shares, scores, strict=True))
        assert isinstance(joint, torch.Tensor)
        best = joint.masked_fill(~is_relevant, -torch.inf).amax(1, keepdim=True)
        ranks = (joint > best).sum(1) + 1
        reciprocal_ranks[shares] = float((1 / ranks.double()).mean())
    chosen = max(
        reciprocal_ranks, key=lambda shares: (round(reciprocal_ranks[shares], 9), -float(np.square(shares).sum()))
    )
    return chosen, reciprocal_ranks


def _all_shares(n_teachers: int) -> Iterator[tuple[float, ...]]:
    for parts in product(range(_PARTS + 1), repeat=n_teachers):
        if sum(parts) == _PARTS:
            yield tuple(part / _PARTS for part in parts)


def _joined(units: Sequence[torch.Tensor], shares: Sequence[float]) -> torch.Tensor:
    return torch.cat([share**0.5 * each for share, each in zip(shares, units, strict=True)], dim=1)
