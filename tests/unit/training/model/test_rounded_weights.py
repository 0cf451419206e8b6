from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import random_weights, write_checkpoint
from support.training.tiny_run import tiny_encoder

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("transformers", reason="training needs transformers")

from quarry.training.model.bundle_checkpoint import bundle_checkpoint  # noqa: E402
from quarry.training.model.network import EncoderNetwork, load_network  # noqa: E402
from quarry.training.model.rounded_weights import round_rows, rounded_weights  # noqa: E402
from quarry.training.model.tokens import TextBatcher  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture
def network(tmp_path: Path) -> EncoderNetwork:
    return load_network(tiny_encoder(tmp_path / "checkpoint"))


def test_rows_are_rounded_to_multiples_of_a_64th_of_their_largest_element() -> None:
    weight = torch.tensor([[64.0, -1.4, 2.6], [0.0, 0.0, 0.0], [0.032, -0.064, 0.0101]])
    expected = [[64.0, -1.0, 3.0], [0.0, 0.0, 0.0], [0.032, -0.064, 0.010]]
    np.testing.assert_allclose(round_rows(weight).numpy(), expected, rtol=1e-6)


def test_rounding_twice_is_rounding_once() -> None:
    rng = np.random.default_rng(0)
    once = round_rows(torch.from_numpy(rng.standard_normal((20, 30)).astype(np.float32)))
    torch.testing.assert_close(round_rows(once), once, rtol=1e-6, atol=0)


def test_weights_are_those_of_an_int8_export(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="graphs are read with onnx")
    from support.models.quick_export import quick_export

    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    quick_export(checkpoint, tmp_path / "bundle", precision="int8")
    exported = load_network(bundle_checkpoint(tmp_path / "bundle", tmp_path / "recovered")).weights()
    network = load_network(checkpoint)
    with rounded_weights(network):
        found = network.weights()
    compared = [
        name for name in found if "encoder.layer" in name and name.endswith("weight") and "Norm" not in name
    ]
    assert len(compared) == 6 * sum("attention.self.query.weight" in name for name in random_weights())
    for name in compared:
        weight = random_weights()[name]
        step = np.abs(weight).max(1, keepdims=True) / 64
        codes, exported_codes = found[name].numpy() / step, exported[name].numpy() / step
        # The export multiplies the scale of attention in, so what lies between two multiples may go either way.
        assert np.abs(codes - exported_codes).max() < 1.001
        assert (np.abs(codes - exported_codes) > 1e-3).mean() < 0.01
        np.testing.assert_allclose(found[name].numpy(), weight, atol=float(step.max()) * 0.501)


def test_gradients_are_those_at_the_rounded_weights(network: EncoderNetwork, tmp_path: Path) -> None:
    tokens = TextBatcher(network.tokenizer_path, "", 16).batch(["abc de fgh", "ij"])

    def gradients(of: EncoderNetwork) -> dict[str, torch.Tensor]:
        of.model.zero_grad()
        of.hidden(tokens).square().mean().backward()
        return {name: value.grad.clone() for name, value in of.trained_parameters() if value.grad is not None}

    plain = gradients(network)
    before = network.weights()
    with rounded_weights(network):
        found, rounded = gradients(network), network.weights()
    assert all(torch.equal(value, before[name]) for name, value in network.weights().items())
    other = load_network(network.folder)
    other.load_weights(rounded)
    expected = gradients(other)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    assert any(not torch.equal(found[name], plain[name]) for name in found)


def test_weights_come_back_after_an_error(network: EncoderNetwork) -> None:
    before = network.weights()

    def fail() -> None:
        with rounded_weights(network):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert all(torch.equal(value, before[name]) for name, value in network.weights().items())
