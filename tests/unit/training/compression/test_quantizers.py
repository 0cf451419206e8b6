from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from support.indexes.decoded_codes import coded_and_decoded

torch = pytest.importorskip("torch", reason="training needs torch")

from quarry.formats.errors import CorruptFile, InvalidSetting  # noqa: E402
from quarry.training.compression.product_quantizer import (  # noqa: E402  # noqa: E402
    ProductQuantizer,
    read_checkpoint_quantizer,
    squared_distances,
    train_opq,
    write_checkpoint_quantizer,
)
from quarry.training.compression.repconc import assign_balanced_codes, transport_plan  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

Floats = npt.NDArray[np.float64]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def correlated(rng: np.random.Generator, n: int, dim: int) -> npt.NDArray[np.float32]:
    """Return vectors with few axes of high variance, each across several sub-vectors."""
    lengths = 1 / np.arange(1, dim + 1)
    axes = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    return (rng.standard_normal((n, dim)) * lengths @ axes.T).astype(np.float32)


def random_quantizer(
    rng: np.random.Generator, n_sub: int = 3, n_words: int = 4, dsub: int = 2
) -> ProductQuantizer:
    rotation = torch.from_numpy(np.linalg.qr(rng.standard_normal((8, 8)))[0][: n_sub * dsub])
    encode, score = torch.from_numpy(rng.standard_normal((2, n_sub, n_words, dsub)))
    return ProductQuantizer(rotation, encode, score)


def slow_distances(vectors: Floats, book: Floats) -> Floats:
    n_sub, n_words, dsub = book.shape
    found = np.empty((n_sub, len(vectors), n_words))
    for m, i, j in product(range(n_sub), range(len(vectors)), range(n_words)):
        found[m, i, j] = ((vectors[i, m * dsub : (m + 1) * dsub] - book[m, j]) ** 2).sum()
    return found


def test_codes_are_nearest_codewords_and_decode_to_those_of_scores(rng: np.random.Generator) -> None:
    quantizer = random_quantizer(rng)
    vectors = rng.standard_normal((20, 8))
    rotated = quantizer.rotate(torch.from_numpy(vectors))
    turned = vectors @ quantizer.rotation.numpy().T
    np.testing.assert_allclose(rotated.numpy(), turned, rtol=1e-12)
    expected = slow_distances(turned, quantizer.encode_codebook.numpy())
    found = squared_distances(rotated, quantizer.encode_codebook)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)
    codes = quantizer.nearest(rotated)
    np.testing.assert_array_equal(codes.numpy(), expected.argmin(2).T)
    decoded = [
        np.concatenate([quantizer.score_codebook.numpy()[m, j] for m, j in enumerate(row)])
        for row in codes.tolist()
    ]
    np.testing.assert_array_equal(quantizer.decode(codes).numpy(), decoded)


@pytest.mark.parametrize("n_words", [16, 256])
def test_codes_are_the_engines(rng: np.random.Generator, n_words: int) -> None:
    values = correlated(rng, 600, 32)
    trained = train_opq(torch.from_numpy(values), 4, n_words, 24, 5)
    arrays = trained.to_arrays()
    assert arrays.score_codebook is arrays.encode_codebook
    codes, decoded = coded_and_decoded(arrays, values)
    rotated = trained.rotate(torch.from_numpy(values))
    found = trained.nearest(rotated)
    assert (found.numpy() == codes).mean() > 0.999  # except for ties within rounding
    np.testing.assert_allclose(decoded, trained.decode(found).numpy(), atol=0.2 if n_words == 256 else 0)
    again = ProductQuantizer.from_arrays(arrays)
    assert again.score_codebook is again.encode_codebook
    assert torch.equal(again.nearest(rotated), found)


def slow_plan(costs: Floats, epsilon: float, n_iterations: int) -> Floats:
    """Compute Sinkhorn's algorithm in logarithms: potentials of codewords, then of vectors."""
    n, k = costs.shape
    scaled = -costs / epsilon
    of_vectors, of_words = np.zeros(n) - np.log(n), np.zeros(k)
    for _ in range(n_iterations):
        of_words = -np.log(k) - np.logaddexp.reduce(scaled + of_vectors[:, None], axis=0)
        of_vectors = -np.log(n) - np.logaddexp.reduce(scaled + of_words, axis=1)
    return np.exp(scaled + of_vectors[:, None] + of_words)


@pytest.mark.parametrize(("epsilon", "spread"), [(0.5, 1), (0.05, 1), (0.003, 1), (0.05, 50)])
def test_the_transport_plan_equals_the_reference(rng: np.random.Generator, epsilon: float, spread: float) -> None:
    costs = spread * rng.random((3, 24, 4))
    found = transport_plan(torch.from_numpy(costs), epsilon, 40).numpy()
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(2), 1 / 24, rtol=1e-9)
    if spread == 1 and epsilon >= 0.05:  # otherwise the start from reduced costs differs
        expected = [slow_plan(each, epsilon, 2000) for each in costs]
        converged = transport_plan(torch.from_numpy(costs), epsilon, 2000).numpy()
        np.testing.assert_allclose(converged, expected, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(converged.sum(1), 1 / 4, rtol=1e-6)


def test_the_plan_has_nearly_the_least_cost_of_all_balanced_assignments(rng: np.random.Generator) -> None:
    costs = rng.random((6, 3))
    balanced = [each for each in product(range(3), repeat=6) if np.bincount(each, minlength=3).tolist() == [2] * 3]
    least = min(costs[np.arange(6), list(each)].sum() for each in balanced)
    found = transport_plan(torch.from_numpy(costs)[None], 0.01, 3000)[0].argmax(1).numpy()
    assert np.bincount(found, minlength=3).tolist() == [2, 2, 2]
    assert costs[np.arange(6), found].sum() == pytest.approx(least)


def test_constrained_codes_use_all_codewords_when_nearest_ones_do_not(rng: np.random.Generator) -> None:
    book = torch.from_numpy(rng.standard_normal((2, 8, 3)) + 3 * np.arange(8)[:, None])
    vectors = torch.from_numpy(rng.standard_normal((400, 6)))  # near the first codewords
    distances = squared_distances(vectors, book)
    nearest = ProductQuantizer(None, book, book).nearest(vectors)
    codes = assign_balanced_codes(distances, 0.003, 200)
    assert codes.shape == (400, 2)
    for m in range(2):
        assert torch.bincount(nearest[:, m], minlength=8).max() > 300
        counts = torch.bincount(codes[:, m], minlength=8)
        assert counts.min() >= 40
        assert counts.max() <= 60
    scaled = assign_balanced_codes(1e6 * distances, 0.003, 200)
    assert torch.equal(scaled, codes)  # only relative distances matter
    same = assign_balanced_codes(torch.zeros(2, 4, 3), 0.003, 10)
    assert same.shape == (4, 2)


def error_of(values: torch.Tensor, quantizer: ProductQuantizer) -> float:
    rotated = quantizer.rotate(values)
    decoded = quantizer.decode(quantizer.nearest(rotated))
    back = decoded if quantizer.rotation is None else decoded @ quantizer.rotation
    return float((values - back).square().sum(1).mean())


def test_opq_is_orthonormal_and_loses_less_than_faiss_without_rotation(rng: np.random.Generator) -> None:
    import faiss

    values = correlated(rng, 3000, 32)
    trained = train_opq(torch.from_numpy(values), 8, 16, 32, 1)
    rotation = trained.rotation.numpy()
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(32), atol=1e-5)
    plain = faiss.ProductQuantizer(32, 8, 4)
    plain.train(values)
    lost = ((values - plain.decode(plain.compute_codes(values))) ** 2).sum(1).mean()
    fitted = error_of(torch.from_numpy(values), trained)
    assert fitted < 0.7 * lost
    opq = faiss.OPQMatrix(32, 8)
    opq.pq = faiss.ProductQuantizer(32, 8, 4)
    opq.train(values)
    turned = opq.apply(values)
    plain.train(turned)
    reference = ((turned - plain.decode(plain.compute_codes(turned))) ** 2).sum(1).mean()
    assert fitted < 1.1 * reference
    again = train_opq(torch.from_numpy(values), 8, 16, 32, 1)
    assert torch.equal(again.encode_codebook, trained.encode_codebook)
    assert torch.equal(again.rotation, trained.rotation)


def test_opq_to_fewer_dimensions_keeps_the_longest_axes(rng: np.random.Generator) -> None:
    values = torch.from_numpy(correlated(rng, 2000, 32))
    full, short = (train_opq(values, 4, 16, dim, 1) for dim in (32, 8))
    assert short.rotation.shape == (8, 32)
    assert error_of(values, short) < error_of(values, full)


@pytest.mark.parametrize(("n_sub", "dim", "n"), [(3, 32, 500), (4, 36, 500), (4, 0, 500), (4, 32, 15)])
def test_sizes_that_do_not_fit_are_refused(rng: np.random.Generator, n_sub: int, dim: int, n: int) -> None:
    with pytest.raises(InvalidSetting):
        train_opq(torch.from_numpy(correlated(rng, n, 32)), n_sub, 16, dim, 0)


def test_the_quantizer_of_a_checkpoint_is_read_back(rng: np.random.Generator, tmp_path: Path) -> None:
    assert read_checkpoint_quantizer(tmp_path) is None
    made = random_quantizer(rng, n_words=16, n_sub=4, dsub=1)
    name = write_checkpoint_quantizer(tmp_path, made.to_arrays())
    (tmp_path / "quarry.json").write_text(f'{{"quantizer": "{name}"}}', "utf-8")
    found = read_checkpoint_quantizer(tmp_path)
    assert found is not None
    np.testing.assert_array_equal(found.encode_codebook, made.encode_codebook.float())
    np.testing.assert_array_equal(found.score_codebook, made.score_codebook.float())
    np.testing.assert_array_equal(found.rotation, made.rotation.float())
    assert (found.nlist, found.by_residual) == (1, False)
    for bad in ("[1]", '{"quantizer": 3}', "{"):
        (tmp_path / "quarry.json").write_text(bad, "utf-8")
        with pytest.raises(CorruptFile):
            read_checkpoint_quantizer(tmp_path)
    (tmp_path / "quarry.json").write_text("{}", "utf-8")
    assert read_checkpoint_quantizer(tmp_path) is None
