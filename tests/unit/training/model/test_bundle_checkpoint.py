import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import CONFIG, random_weights, write_checkpoint, write_reranker_checkpoint

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("transformers", reason="training needs transformers")
pytest.importorskip("onnx", reason="graphs are read with onnx")

from safetensors.numpy import load_file, save_file  # noqa: E402
from support.models.quick_export import quick_export  # noqa: E402

from quarry.engine.bundled import bundled_path  # noqa: E402
from quarry.engine.encoding.opening import open_encoder  # noqa: E402
from quarry.exporters.export import export_reranker  # noqa: E402
from quarry.formats.bundle.encoder import write_bundle  # noqa: E402
from quarry.formats.errors import ChecksumMismatch, CorruptFile, InvalidSetting  # noqa: E402
from quarry.training.model.bundle_checkpoint import bundle_checkpoint, is_bundle  # noqa: E402
from quarry.training.model.network import load_network  # noqa: E402
from quarry.training.model.tokens import TextBatcher  # noqa: E402

TEXT = "The tide carries off the mud that roots of mangroves hold, and young fish find shelter there."


def test_fp32_bundles_give_the_weights_they_were_made_of(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    bundle = quick_export(checkpoint, tmp_path / "bundle", precision="fp32")
    out = bundle_checkpoint(bundle.path, tmp_path / "out")
    found = load_file(out / "model.safetensors")
    assert found.keys() == random_weights().keys()
    for name, values in random_weights().items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, err_msg=name)
    config, original = (json.loads((each / "config.json").read_text("utf-8")) for each in (out, checkpoint))
    for name in ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size"):
        assert config[name] == original[name]
    assert config["layer_norm_eps"] == pytest.approx(original["layer_norm_eps"])
    assert (out / "tokenizer.json").read_bytes() == (bundle.path / "tokenizer.json").read_bytes()


def test_int8_bundles_survive_a_second_export(tmp_path: Path) -> None:
    bundle = quick_export(write_checkpoint(tmp_path / "checkpoint"), tmp_path / "bundle", precision="int8")
    out = bundle_checkpoint(bundle.path, tmp_path / "out")
    again = quick_export(out, tmp_path / "again", precision="int8")
    exact = quick_export(out, tmp_path / "exact", precision="fp32")
    text = "a tide of mud, roots hold"
    before, after, fp32 = (open_encoder(each.path).encode_query(text) for each in (bundle, again, exact))
    assert before @ after > 0.999
    assert before @ fp32 > 0.98


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("biased", [False, True])
def test_a_projection_survives_a_second_export(tmp_path: Path, precision: str, biased: bool) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    rng = np.random.default_rng(2)
    head = {"projection.weight": rng.standard_normal((5, CONFIG["hidden_size"])).astype(np.float32)}
    if biased:
        head["projection.bias"] = rng.standard_normal(5).astype(np.float32)
    shutil.rmtree(checkpoint / "1_Pooling")
    (checkpoint / "modules.json").unlink()
    save_file(head, checkpoint / "head.safetensors")
    settings = {"format": 1, "pooling": "mean", "normalise": True, "window": 16, "query_prefix": ""}
    settings |= {"document_prefix": "", "beta": None, "representation": "pieces"}
    (checkpoint / "quarry.json").write_text(json.dumps(settings), "utf-8")
    bundle = quick_export(checkpoint, tmp_path / "bundle", precision=precision)
    out = bundle_checkpoint(bundle.path, tmp_path / "out")
    found = load_file(out / "head.safetensors")
    assert found.keys() == head.keys()
    assert all(np.array_equal(found[name], head[name]) for name in head)
    again = quick_export(out, tmp_path / "again", precision=precision)
    text = "a tide of mud, roots hold"
    before, after = (open_encoder(each.path).encode_query(text) for each in (bundle, again))
    assert before.shape == (5,)
    assert before @ after > 0.999
    network = load_network(out)
    tokens = TextBatcher(network.tokenizer_path, "", 16).batch([text])
    with torch.no_grad():
        pooled = network.hidden(tokens).mean(1)[0].numpy()
    assert before @ pooled / np.linalg.norm(pooled) > 0.98


def test_two_layers_behind_the_network_are_refused(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    n_hidden = CONFIG["hidden_size"]
    modules = json.loads((checkpoint / "modules.json").read_text("utf-8"))
    layers = []
    for number, activation in enumerate(("Identity", "Identity"), 2):
        name = f"{number}_Dense"
        (checkpoint / name).mkdir()
        config = {"in_features": n_hidden, "out_features": n_hidden, "bias": False}
        config["activation_function"] = f"torch.nn.modules.linear.{activation}"
        (checkpoint / name / "config.json").write_text(json.dumps(config), "utf-8")
        save_file({"linear.weight": np.eye(n_hidden, dtype=np.float32)}, checkpoint / name / "model.safetensors")
        layers.append(
            {"idx": number, "name": str(number), "path": name, "type": "sentence_transformers.models.Dense"}
        )
    place = 1 + [module["type"].endswith("Pooling") for module in modules].index(True)
    modules[place:place] = layers
    (checkpoint / "modules.json").write_text(json.dumps(modules), "utf-8")
    bundle = quick_export(checkpoint, tmp_path / "bundle", precision="fp32").path
    with pytest.raises(InvalidSetting, match="layers behind the bundle's network"):
        bundle_checkpoint(bundle, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "quarry-minilm-l6"])
def test_bundled_encoders_can_be_trained_on(tmp_path: Path, name: str) -> None:
    out = bundle_checkpoint(bundled_path(name), tmp_path / name)
    assert is_bundle(bundled_path(name))
    assert not is_bundle(out)
    network = load_network(out)
    tokens = TextBatcher(network.tokenizer_path, "", 64).batch([TEXT])
    with torch.no_grad():
        pooled = network.hidden(tokens).mean(1)[0].numpy()
    vector = open_encoder(bundled_path(name)).encode_query(TEXT)
    assert vector @ pooled / np.linalg.norm(pooled) > 0.985  # the bundle's activations are int8, too


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    bundle = quick_export(write_checkpoint(tmp_path / "checkpoint"), tmp_path / "bundle", precision="fp32").path
    out = bundle_checkpoint(bundle, tmp_path / "runs" / "out")
    times = {each: each.stat().st_mtime_ns for each in out.iterdir()}
    assert bundle_checkpoint(bundle, out) == out
    assert {each: each.stat().st_mtime_ns for each in out.iterdir()} == times
    assert [each.name for each in out.parent.iterdir()] == ["out"]


def test_damaged_bundles_are_refused(tmp_path: Path) -> None:
    bundle = quick_export(write_checkpoint(tmp_path / "checkpoint"), tmp_path / "bundle", precision="fp32").path
    for name in ("model.onnx", "tokenizer.json"):
        content = (bundle / name).read_bytes()
        middle = len(content) // 2
        (bundle / name).write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        with pytest.raises(ChecksumMismatch, match=name):
            bundle_checkpoint(bundle, tmp_path / "out")
        (bundle / name).write_bytes(content)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lost", ["encoder.layer.0.intermediate.dense.bias", "word_table_scale"])
def test_graphs_without_a_weight_are_refused(tmp_path: Path, lost: str) -> None:
    import onnx

    made = quick_export(write_checkpoint(tmp_path / "checkpoint"), tmp_path / "bundle", precision="int8")
    graph = onnx.load(made.model_path)
    kept = [tensor for tensor in graph.graph.initializer if tensor.name != lost]
    assert len(kept) == len(graph.graph.initializer) - 1
    del graph.graph.initializer[:]
    graph.graph.initializer.extend(kept)
    files: dict[str, bytes | Path] = {name: made.path / name for name in made.files}
    files["model.onnx"] = graph.SerializeToString()
    bundle = write_bundle(tmp_path / "lacking", made.settings, files)
    with pytest.raises(CorruptFile, match="the graph lacks a weight") as found:
        bundle_checkpoint(bundle.path, tmp_path / "out")
    assert found.value.expected == lost


def test_other_networks_are_refused(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    second = write_checkpoint(tmp_path / "second", weights=random_weights(1))
    blocks = quick_export(checkpoint, tmp_path / "blocks", precision="int8-weights").path
    two = quick_export(checkpoint, tmp_path / "two", precision="fp32", query_checkpoint=second).path
    for bundle, actual in ((blocks, "precision int8-weights"), (two, "a second network for queries")):
        with pytest.raises(InvalidSetting, match="cannot be trained on") as found:
            bundle_checkpoint(bundle, tmp_path / "out")
        assert found.value.actual == actual
        assert found.value.path == bundle
    config = {**CONFIG, "model_type": "roberta", "pad_token_id": 0}
    roberta = quick_export(write_checkpoint(tmp_path / "numbered", config=config), tmp_path / "roberta").path
    with pytest.raises(InvalidSetting, match="network cannot be trained on"):
        bundle_checkpoint(roberta, tmp_path / "out")
    reranker = export_reranker(write_reranker_checkpoint(tmp_path / "cross"), tmp_path / "reranker").path
    with pytest.raises(InvalidSetting, match="contains no encoder"):
        bundle_checkpoint(reranker, tmp_path / "out")
    assert not (tmp_path / "out").exists()
