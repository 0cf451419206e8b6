"""Networks in training: loading, freezing and writing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.models.torch_checkpoint import TorchNetwork
from support.training.tiny_run import tiny_encoder

torch = pytest.importorskip("torch", reason="networks need torch")
pytest.importorskip("transformers", reason="training needs transformers")

from safetensors.torch import load_file, save_file  # noqa: E402

from quarry.engine.encoding.encoder import trained_settings  # noqa: E402
from quarry.engine.encoding.opening import open_encoder  # noqa: E402
from quarry.formats.errors import CorruptFile, InvalidSetting  # noqa: E402
from quarry.training.model.checkpoint_files import EncoderFiles, interpolate_weights, write_checkpoint  # noqa: E402
from quarry.training.model.network import load_network, read_weights  # noqa: E402
from quarry.training.model.tokens import TextBatcher  # noqa: E402
from quarry.training.model.torch_encoder import TorchEncoder  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")
FILES = EncoderFiles("mean", True, 2.0, "kmeans", 32, "q: ", "d: ", "# Tiny\n", {"k": 3})


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tiny_encoder(tmp_path / "checkpoint")


def test_hidden_states_do_not_depend_on_padding(checkpoint: Path) -> None:
    network = load_network(checkpoint)
    network.model.eval()
    batcher = TextBatcher(network.tokenizer_path, "", 40)
    with torch.no_grad():
        alone, together = (network.hidden(batcher.batch(texts)) for texts in (["a b"], ["a b", "a b c d e f"]))
    assert alone.shape == (1, 4, network.dim)
    torch.testing.assert_close(together[:1, :4], alone, rtol=1e-4, atol=1e-5)


def test_frozen_parameters_are_not_trained(checkpoint: Path) -> None:
    network = load_network(checkpoint, frozen=("embeddings.", "encoder.layer.0."))
    trained = {name for name, _ in network.trained_parameters()}
    assert trained
    assert not any(name.startswith(("embeddings.", "encoder.layer.0.")) for name in trained)
    network.freeze(())
    assert {name for name, _ in network.trained_parameters()} > trained
    with pytest.raises(InvalidSetting, match=r"no parameter to freeze has this name; found 'nothing\.'"):
        network.freeze(("nothing.",))


def test_weights_are_taken_over_whole_or_not_at_all(checkpoint: Path) -> None:
    network = load_network(checkpoint)
    doubled = {name: 2 * values for name, values in network.weights().items()}
    network.load_weights(doubled)
    assert all(torch.equal(values, doubled[name]) for name, values in network.weights().items())
    name = next(iter(doubled))
    for wrong in ({**doubled, "more": doubled[name]}, {**doubled, name: doubled[name][:1]}, {}):
        with pytest.raises(ValueError, match="do not fit"):
            network.load_weights(wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"precision": "fp8"}, "unknown precision"), ({"mlm": True}, "no masked-language-model head")],
)
def test_what_cannot_be_loaded_is_named(checkpoint: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        load_network(checkpoint, **options)  # type: ignore[arg-type]
    (checkpoint / "config.json").unlink()
    with pytest.raises(InvalidSetting, match=r"lacks a file.*config\.json"):
        load_network(checkpoint)


def test_a_checkpoint_is_written_with_its_settings(checkpoint: Path, tmp_path: Path) -> None:
    network = load_network(checkpoint)
    write_checkpoint(network, FILES, tmp_path / "out", lambda folder: {"agg_dims": 8})
    settings = json.loads((tmp_path / "out" / "quarry.json").read_text("utf-8"))
    assert (settings["beta"], settings["representation"], settings["agg_dims"]) == (2.0, "kmeans", 8)
    assert settings["representation_settings"] == {"k": 3}
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert written.keys() == network.weights().keys()
    assert all(torch.equal(values, written[name]) for name, values in network.weights().items())
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (checkpoint / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("share", [0, 0.25, 1])
def test_weights_are_mixed_with_the_original_ones(checkpoint: Path, share: float) -> None:
    network = load_network(checkpoint)
    original = network.weights()
    network.load_weights({name: values + 1 for name, values in original.items()})
    mixed = interpolate_weights(network, checkpoint, share)
    for name, values in mixed.items():
        torch.testing.assert_close(values, original[name] + (1 - share), rtol=1e-5, atol=1e-5)


def test_weights_that_cannot_be_mixed_are_named(checkpoint: Path, tmp_path: Path) -> None:
    network = load_network(checkpoint)
    with pytest.raises(InvalidSetting, match="out of range"):
        interpolate_weights(network, checkpoint, 1.5)
    other = tiny_encoder(tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    name = next(iter(weights))
    from safetensors.torch import save_file

    save_file({key: values for key, values in weights.items() if key != name}, other / "model.safetensors")
    with pytest.raises(InvalidSetting, match="lacks a weight"):
        interpolate_weights(network, other, 0.5)


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "distilbert", "electra", "modernbert"])
def test_networks_of_other_kinds_are_mixed_with_the_weights_that_they_were_saved_with(
    tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / kind
    TorchNetwork(folder, kind)  # with the prefix of a model that predicts words
    network = load_network(folder, dropout=0.25)
    rates = {each.p for each in network.model.modules() if isinstance(each, torch.nn.Dropout)}
    assert rates == {0.25}
    mixed = interpolate_weights(network, folder, 0.5)
    assert len(mixed) > 10
    for name, values in network.weights().items():
        torch.testing.assert_close(mixed[name], values)


def test_damaged_weights_are_named(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorruptFile, match=r"model\.safetensors: the weights cannot be read"):
        load_network(checkpoint, mlm=True)


def test_an_index_of_a_network_in_training_has_the_settings_that_are_trained(checkpoint: Path) -> None:
    assert trained_settings(TorchEncoder(load_network(checkpoint), FILES, "0")) == {"k": 3}


class TestProjection:
    @pytest.fixture
    def projected(self, checkpoint: Path) -> Path:
        torch.manual_seed(3)
        save_file({"projection.weight": torch.randn(5, 32)}, checkpoint / "head.safetensors")
        return checkpoint

    def test_it_follows_the_hidden_states(self, projected: Path) -> None:
        network = load_network(projected)
        layer = load_file(projected / "head.safetensors")["projection.weight"]
        (projected / "head.safetensors").unlink()
        tokens = TextBatcher(network.tokenizer_path, "", 40).batch(["a b c"])
        with torch.no_grad():
            found, plain = network.hidden(tokens), load_network(projected).hidden(tokens)
        assert network.dim == found.shape[2] == 5
        torch.testing.assert_close(found, plain @ layer.T)

    def test_it_is_trained_frozen_written_and_taken_over(self, projected: Path, tmp_path: Path) -> None:
        network = load_network(projected, frozen=("embeddings.", "encoder."))
        assert [name for name, _ in network.trained_parameters()] == ["projection.weight"]
        assert not dict(
            load_network(projected, frozen=("embeddings.", "encoder.", "projection.")).trained_parameters()
        )
        network.load_weights({name: 2 * values for name, values in network.weights().items()})
        write_checkpoint(network, FILES, tmp_path / "out")
        assert "projection.weight" not in load_file(tmp_path / "out" / "model.safetensors")
        written = read_weights(tmp_path / "out")
        assert written.keys() == network.weights().keys()
        assert all(torch.equal(values, written[name]) for name, values in network.weights().items())
        mixed = interpolate_weights(network, projected, 1.0)
        assert torch.equal(
            mixed["projection.weight"], load_file(projected / "head.safetensors")["projection.weight"]
        )

    @pytest.mark.parametrize(
        "head",
        [
            {"projection.weight": torch.ones(5, 7)},
            {"projection.weight": torch.ones(32)},
            {"projection.weight": torch.ones(5, 32), "projection.bias": torch.ones(4)},
        ],
        ids=["width", "vector", "bias"],
    )
    def test_layers_that_do_not_fit_are_refused(self, checkpoint: Path, head: dict[str, torch.Tensor]) -> None:
        save_file(head, checkpoint / "head.safetensors")
        with pytest.raises(CorruptFile, match=r"head\.safetensors: the projection does not fit"):
            load_network(checkpoint)


def with_dense(checkpoint: Path, activation: str = "torch.nn.modules.linear.Identity", n: int = 1) -> Path:
    """Put Dense modules of sentence-transformers behind a checkpoint."""
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), *((f"{each + 2}_Dense", "Dense") for each in range(n))]
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds]
    (checkpoint / "modules.json").write_text(json.dumps(modules), "utf-8")
    (checkpoint / "1_Pooling").mkdir(exist_ok=True)
    (checkpoint / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}', "utf-8")
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "linear.weight": torch.randn(5, 32, generator=generator),
        "linear.bias": torch.randn(5, generator=generator),
    }
    for path, _ in kinds[2:]:
        (checkpoint / path).mkdir()
        save_file(tensors, checkpoint / path / "model.safetensors")
        config = {"in_features": 32, "out_features": 5, "bias": True, "activation_function": activation}
        (checkpoint / path / "config.json").write_text(json.dumps(config), "utf-8")
    return checkpoint


class TestDense:
    """The linear layer of a checkpoint of sentence-transformers."""

    def test_it_is_the_projection(self, checkpoint: Path, tmp_path: Path) -> None:
        """The network finds what the exported bundle finds, and writes the layer with its weights."""
        network = load_network(with_dense(checkpoint))
        assert network.dim == 5
        assert torch.equal(
            read_weights(checkpoint)["projection.bias"],
            load_file(checkpoint / "2_Dense" / "model.safetensors")["linear.bias"],
        )
        exporting = pytest.importorskip("quarry.exporters.export", reason="exporting needs onnx")
        bundle = exporting.export(checkpoint, tmp_path / "bundle", precision="fp32")
        vector = open_encoder(bundle.path).encode_query("a b c")
        tokens = TextBatcher(network.tokenizer_path, "", 40).batch(["a b c"])
        network.model.eval()
        with torch.no_grad():
            pooled = network.hidden(tokens).mean(1)[0].numpy()
        length = np.linalg.norm(pooled) / np.linalg.norm(vector)
        np.testing.assert_allclose(pooled / length, vector, rtol=1e-3, atol=1e-4)
        write_checkpoint(network, FILES, tmp_path / "out")
        assert "projection.bias" in load_file(tmp_path / "out" / "head.safetensors")
        assert load_network(tmp_path / "out").dim == 5

    def test_layers_that_are_not_linear_are_refused(self, checkpoint: Path) -> None:
        with pytest.raises(InvalidSetting, match=r"cannot be trained; .*Identity; found torch.nn.Tanh"):
            load_network(with_dense(checkpoint, "torch.nn.Tanh"))

    def test_several_layers_are_refused(self, checkpoint: Path) -> None:
        with pytest.raises(InvalidSetting, match="several layers behind the checkpoint's network"):
            load_network(with_dense(checkpoint, n=2))

    @pytest.mark.parametrize("content", ["{", "[1]", '[{"type": "Dense"}]', '[{"type": "Dense", "path": "../x"}]'])
    def test_damaged_lists_are_refused(self, checkpoint: Path, content: str) -> None:
        (checkpoint / "modules.json").write_text(content, "utf-8")
        with pytest.raises(CorruptFile, match=r"modules\.json"):
            load_network(checkpoint)
        (checkpoint / "head.safetensors").write_bytes(b"no tensors")
        with pytest.raises(CorruptFile, match=r"head\.safetensors: the weights cannot be read"):
            load_network(checkpoint)
