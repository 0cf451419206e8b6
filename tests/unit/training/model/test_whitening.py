import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="vectors are torch tensors")

from quarry.formats.errors import InvalidSetting  # noqa: E402
from quarry.training.model.projection import whitening  # noqa: E402

DIM = 6


def source(seed: int, n: int = 500) -> np.ndarray:
    """Vectors with a different variance in every direction."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((DIM, DIM)))[0]
    return (rng.standard_normal((n, DIM)) * np.geomspace(3, 0.1, DIM) @ axes).astype(np.float32)


def expected(vectors: list[np.ndarray], weights: list[float], shrinkage: float) -> np.ndarray:
    """The inverse of a root that Newton's method finds (Denman and Beavers 1976), scaled."""
    covariances = [np.cov(each.T, bias=True) for each in vectors]
    mean = sum(w * each / np.trace(each) for w, each in zip(weights, covariances, strict=True)) / sum(weights)
    root, inverse = mean + shrinkage * np.trace(mean) / DIM * np.eye(DIM), np.eye(DIM)
    for _ in range(60):
        root, inverse = (root + np.linalg.inv(inverse)) / 2, (inverse + np.linalg.inv(root)) / 2
    return inverse * np.sqrt(DIM / (inverse**2).sum())


@pytest.mark.parametrize("shrinkage", [0.01, 1.0, 6.0])
def test_it_is_the_inverse_root_of_the_mean_covariance(shrinkage: float) -> None:
    vectors, weights = [source(1), source(2, 300) * 10], [0.7, 0.1]
    found = whitening([torch.from_numpy(each) for each in vectors], weights, shrinkage)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected(vectors, weights, shrinkage), atol=2e-5)
    np.testing.assert_allclose(found.numpy(), found.numpy().T, atol=1e-6)


def test_vectors_have_one_variance_in_all_directions_afterwards() -> None:
    vectors = source(3, 4000)
    layer = whitening([torch.from_numpy(vectors)], [1.0], 1e-6).numpy()
    variances = np.linalg.eigvalsh(np.cov((vectors @ layer.T).T))
    assert variances.max() < 1.01 * variances.min()
    shrunk = whitening([torch.from_numpy(vectors)], [1.0], 1e6).numpy()
    np.testing.assert_allclose(shrunk, np.eye(DIM), atol=1e-4)


def test_the_distance_of_sources_does_not_count() -> None:
    vectors = [torch.from_numpy(source(seed)) for seed in (4, 5)]
    moved = [vectors[0], vectors[1] + 7]
    np.testing.assert_allclose(whitening(moved, [1, 1], 1.0), whitening(vectors, [1, 1], 1.0), atol=1e-5)


@pytest.mark.parametrize("values", [np.ones((9, DIM)), np.ones((1, DIM)), np.full((3, DIM), np.nan)])
def test_vectors_that_do_not_differ_are_refused(values: np.ndarray) -> None:
    vectors = [torch.from_numpy(source(6)), torch.from_numpy(values.astype(np.float32))]
    with pytest.raises(InvalidSetting, match="cannot be whitened"):
        whitening(vectors, [1.0, 1.0], 1.0)
