import numpy as np
import pytest

pytest.importorskip("torch", reason="the training loop needs torch")

import torch

from quarry.training.alignment.joint_space import best_shares, fit_joint_space, load_joint_space
from quarry.training.alignment.objective import alignment_loss
from quarry.training.objectives.scoring import DocumentRows

SHARES = (0.25, 0.75)


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    return [torch.from_numpy((5 + rng.normal(size=(60, dim))).astype(np.float32)) for dim in (6, 10)]


def test_targets_have_the_teachers_cosines_by_their_shares(samples, tmp_path) -> None:
    space = fit_joint_space(samples, SHARES, 16)
    space.save(tmp_path / "space.pt")
    space = load_joint_space(tmp_path / "space.pt")
    units = [space.unit(number, each) for number, each in enumerate(samples)]
    found = space.target(units)
    expected = 0
    for share, values in zip(SHARES, samples, strict=True):
        centered = values.numpy() - values.numpy().mean(0)
        unit = centered / np.linalg.norm(centered, axis=1, keepdims=True)
        expected += share * unit @ unit.T
    np.testing.assert_allclose((found @ found.T).numpy(), expected, atol=1e-5)


def test_the_first_dimensions_of_targets_keep_the_most(samples) -> None:
    whole, cut = fit_joint_space(samples, SHARES, 16), fit_joint_space(samples, SHARES, 4)
    torch.testing.assert_close(whole.rotation[:, :4], cut.rotation)
    joined = torch.cat(
        [s**0.5 * whole.unit(i, v) for i, (s, v) in enumerate(zip(SHARES, samples, strict=True))], 1
    )
    variance = (joined @ whole.rotation).square().sum(0)
    assert (variance.diff() <= 1e-4).all()


def test_shares_are_those_that_rank_best() -> None:
    queries = torch.eye(3)
    good = DocumentRows(torch.tensor([[0.0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]), (2, 1, 1))
    bad = DocumentRows(torch.eye(3)[[1, 2, 0]].repeat_interleave(torch.tensor([2, 1, 1]), 0), (2, 1, 1))
    chosen, ranks = best_shares([queries, queries], [good, bad], [[0], [1], [0, 2]])
    assert ranks[1.0, 0.0] == 1
    assert ranks[0.0, 1.0] < 1
    assert chosen == max(
        (each for each, rank in ranks.items() if rank == 1), key=lambda each: -np.square(each).sum()
    )


def test_alignment_loss_is_a_squared_distance() -> None:
    values, targets = (torch.from_numpy(np.random.default_rng(n).normal(size=(5, 4))) for n in (1, 2))
    one, other = (each / each.norm(dim=1, keepdim=True) for each in (values, targets))
    torch.testing.assert_close(alignment_loss(values, targets), (one - other).square().sum(1).mean())
