"""Exported graphs of many networks and heads are compared with torch for many attention masks."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file
from support.indexes.inside import trace_once
from support.models.torch_checkpoint import DIM, N_POSITIONS, N_WORDS, TorchNetwork

from quarry import engine
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
from quarry.exporters.checkpoint.networks import DIRECT_KINDS
from quarry.exporters.export import export
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.bundle.folder import MODEL_NAME
from quarry.formats.errors import BackendUnavailable, InvalidSetting

Array = npt.NDArray[np.float64]

MASKS = {
    "none": [[1] * 6, [1] * 6],
    "right padding": [[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]],
    "left padding": [[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]],
    "holes": [[1, 0, 1, 0, 0, 1], [0, 1, 1, 0, 1, 0]],
    "one token": [[1]],
    "longest": [[1] * N_POSITIONS],
}
TRACED = ("modernbert", "electra")
needs_onnxscript = pytest.mark.skipif(
    importlib.util.find_spec("onnxscript") is None, reason="onnxscript is not installed"
)


def inputs_for(mask: list[list[int]], padding_id: int) -> tuple[Array, Array]:
    """Return random ids and a mask; half of the masked ids are those of the padding token."""
    rng = np.random.default_rng(len(mask[0]))
    kept = np.array(mask, np.int64)
    ids = rng.integers(5, N_WORDS, kept.shape)
    ids[(kept == 0) & (rng.random(kept.shape) < 0.5)] = padding_id
    return ids, kept


def run(bundle: EncoderBundle, ids: Array, mask: Array, *names: str) -> list[Array]:
    session = import_onnxruntime().InferenceSession(bundle.model_path, providers=["CPUExecutionProvider"])
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    return session.run(list(names), {node.name: given[node.name] for node in session.get_inputs()})


def check(network: TorchNetwork, bundle: EncoderBundle, pool) -> None:
    """Compare a graph with torch and a head in numpy, `pool(hidden, logits, ids, mask)`, one text at a time."""
    padding_id = json.loads((network.folder / "config.json").read_bytes()).get("pad_token_id") or 0
    names = ("token_vectors", "pooled") if bundle.settings.token_vectors else ("pooled",)
    runner = open_runner(network, bundle)
    for mask in MASKS.values():
        ids, kept = inputs_for(mask, padding_id)
        hidden, logits = network.run(ids, kept)
        *tokens, pooled = run(bundle, ids, kept, *names)
        for name, values in zip(names, (*tokens, pooled), strict=True) if runner else ():
            atol = 3e-5 * max(1.0, float(np.abs(values).max()))
            np.testing.assert_allclose(runner.run(name, ids, kept), values, atol=atol)
        expected = np.stack([pool(*row) for row in zip(hidden, logits, ids, kept, strict=True)])
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(pooled, expected, atol=3e-5 * scale)
        if tokens and not bundle.settings.projection:
            np.testing.assert_allclose(tokens[0], hidden, atol=3e-5 * max(1.0, float(np.abs(hidden).max())))


def open_runner(network: TorchNetwork, bundle: EncoderBundle) -> Any:
    """Open the torch runtime, whose operators are those of graphs that were not traced; None for others."""
    from quarry.engine.encoding.runtimes.torch_runner import TorchRunner

    kind = json.loads((network.folder / "config.json").read_bytes())["model_type"]
    return TorchRunner(bundle, MODEL_NAME, "cpu") if kind in DIRECT_KINDS else None


def mean(hidden: Array, logits: Array, ids: Array, mask: Array) -> Array:
    return hidden[mask == 1].mean(0)


def cls(hidden: Array, logits: Array, ids: Array, mask: Array) -> Array:
    return hidden[0]


def largest(hidden: Array, logits: Array, ids: Array, mask: Array) -> Array:
    return hidden[mask == 1].max(0)


POOLINGS = {"mean": mean, "cls": cls, "max": largest}


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory):
    made: dict[str, TorchNetwork] = {}

    def network(kind: str) -> TorchNetwork:
        if kind not in made:
            made[kind] = TorchNetwork(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return network


@pytest.fixture
def traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trace_once(monkeypatch)


@pytest.mark.parametrize("kind", DIRECT_KINDS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_built_graphs_equal_torch(networks, tmp_path: Path, kind: str, pooling: str) -> None:
    network = networks(kind)
    bundle = export(network.folder, tmp_path / "out", "fp32", head=pooling, graph_source="direct", texts=["cat"])
    assert (bundle.settings.dim, bundle.settings.pooling) == (DIM, pooling)
    assert bundle.settings.window == (198 if kind == "mpnet" else N_POSITIONS)
    check(network, bundle, POOLINGS[pooling])


def test_distances_beyond_the_buckets_equal_torch(networks, tmp_path: Path) -> None:
    network = networks("mpnet")
    bundle = export(network.folder, tmp_path / "out", "fp32", texts=["cat"])
    ids, mask = inputs_for([[1] * 198], 1)
    hidden, _ = network.run(ids, mask)
    np.testing.assert_allclose(run(bundle, ids, mask, "token_vectors")[0], hidden, atol=3e-5)


def traced(network: TorchNetwork, out: Path, **options: object) -> EncoderBundle:
    return export(network.folder, out, "fp32", graph_source="torch", texts=["cat"], **options)


@needs_onnxscript
@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize("kind", TRACED)
def test_traced_graphs_equal_torch(networks, tmp_path: Path, kind: str) -> None:
    network = networks(kind)
    check(network, traced(network, tmp_path / "out"), mean)


@needs_onnxscript
@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_traced_graphs_have_variants(networks, tmp_path: Path, precision: str) -> None:
    texts = ["the cat sat.", "a dog", "abc def ghi jkl", "some more words!"]
    bundle = export(networks("modernbert").folder, tmp_path / "out", precision, texts=texts, retrieval=False)
    assert bundle.settings.is_interchangeable


def test_networks_that_need_torch_are_reported_without_it(
    networks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(
        BackendUnavailable, match=r"'electra' is exported by torch.*pip install '\.\[export-torch\]'"
    ):
        export(networks("electra").folder, tmp_path / "out")
    with pytest.raises(InvalidSetting, match="model_type"):
        export(networks("electra").folder, tmp_path / "out", graph_source="direct")
    assert not (tmp_path / "out").exists()


@needs_onnxscript
def test_a_network_that_transformers_cannot_load_is_refused(networks, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(networks("electra").folder, folder)
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "no such thing"}))
    with pytest.raises(InvalidSetting, match="transformers cannot load"):
        export(folder, tmp_path / "out")


DENSE = {
    "identity": ("torch.nn.modules.linear.Identity", lambda x: x),
    "tanh": ("torch.nn.modules.activation.Tanh", np.tanh),
    "relu": ("torch.nn.modules.activation.ReLU", lambda x: np.maximum(x, 0)),
}


def write_modules(network: TorchNetwork, folder: Path, pooling: str, activation: str, biased: bool) -> Path:
    """Copy the network's folder and add sentence-transformers' files: pooling, a linear layer, normalization."""
    folder.mkdir()
    for path in network.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Normalize", "Normalize")]
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": pooling}))
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "config.json").write_text(json.dumps({"activation_function": DENSE[activation][0]}))
    rng = np.random.default_rng(3)
    tensors = {"linear.weight": rng.standard_normal((12, DIM)).astype(np.float32)}
    if biased:
        tensors["linear.bias"] = rng.standard_normal(12).astype(np.float32)
    save_file(tensors, folder / "2_Dense" / "model.safetensors")
    return folder


@pytest.mark.parametrize("activation", DENSE)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_linear_layers_equal_numpy(networks, tmp_path: Path, pooling: str, activation: str) -> None:
    network = networks("bert")
    folder = write_modules(network, tmp_path / "checkpoint", pooling, activation, biased=activation != "relu")
    bundle = export(folder, tmp_path / "out", "fp32", texts=["cat"])
    rng = np.random.default_rng(3)
    weights, biases = rng.standard_normal((12, DIM)), rng.standard_normal(12) * (activation != "relu")

    def pool(hidden: Array, logits: Array, ids: Array, mask: Array) -> Array:
        found = DENSE[activation][1](weights @ POOLINGS[pooling](hidden, logits, ids, mask) + biases)
        return found / np.linalg.norm(found)

    check(network, bundle, pool)
    settings = bundle.settings
    assert (settings.dim, settings.normalize) == (12, True)
    assert settings.token_vectors == (activation == "identity" and pooling != "max")
    assert settings.projection is not None
    encoder = open_encoder(bundle.path)
    (window,) = encoder.windows("a cat")
    np.testing.assert_allclose(window.pooled, encoder.encode_query("a cat"), atol=1e-5)
    assert window.values.shape == (4, 12 if settings.token_vectors else 0)


AGG_DIMS, CLS_DIMS = 20, 7


def write_aggretriever(network: TorchNetwork, folder: Path, mlm: bool) -> tuple[Path, dict[str, np.ndarray]]:
    folder.mkdir()
    for path in network.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    settings = {
        "format": 1, "pooling": "aggretriever", "normalise": False, "window": 20, "query_prefix": "",
        "document_prefix": "", "beta": None, "representation": None, "agg_dims": AGG_DIMS, "mlm": mlm,
    }  # fmt: skip
    (folder / "quarry.json").write_text(json.dumps(settings))
    rng = np.random.default_rng(4)
    shapes = {"terms.weight": (1, DIM), "terms.bias": (1,), "cls.weight": (CLS_DIMS, DIM), "cls.bias": (CLS_DIMS,)}
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(tensors, folder / "head.safetensors")
    return folder, tensors


def aggretriever(tensors: dict[str, np.ndarray], mlm: bool):
    """Return the head of section 3 of the paper, computed word by word, with slots by modulus."""

    def pool(hidden: Array, logits: Array, ids: Array, mask: Array) -> Array:
        words = np.zeros(N_WORDS)
        for place in range(1, len(ids)):
            if not mask[place]:
                continue
            weight = max(0.0, float(tensors["terms.weight"][0] @ hidden[place] + tensors["terms.bias"][0]))
            if mlm:
                chance = np.exp(logits[place] - logits[place].max())
                words = np.maximum(words, weight * chance / chance.sum())
            else:
                words[ids[place]] = max(words[ids[place]], weight)
        agg = np.zeros(AGG_DIMS)
        for n in range(AGG_DIMS):
            positive, negative = (max(words[2 * n + side :: 2 * AGG_DIMS]) for side in (0, 1))
            agg[n] = positive if positive > negative else -negative
        return np.concatenate([tensors["cls.weight"] @ hidden[0] + tensors["cls.bias"], agg])

    return pool


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
@pytest.mark.parametrize("mlm", [True, False])
def test_aggretriever_equals_numpy(networks, tmp_path: Path, kind: str, mlm: bool) -> None:
    network = networks(kind)
    folder, tensors = write_aggretriever(network, tmp_path / "checkpoint", mlm)
    bundle = export(folder, tmp_path / "out", "fp32", texts=["cat"])
    assert (bundle.settings.dim, bundle.settings.token_vectors) == (CLS_DIMS + AGG_DIMS, False)
    check(network, bundle, aggretriever(tensors, mlm))


@needs_onnxscript
@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize(("kind", "mlm"), [("electra", True), ("modernbert", False)])
def test_traced_aggretriever_equals_numpy(networks, tmp_path: Path, kind: str, mlm: bool) -> None:
    network = networks(kind)
    folder, tensors = write_aggretriever(network, tmp_path / "checkpoint", mlm)
    check(network, export(folder, tmp_path / "out", "fp32", texts=["cat"]), aggretriever(tensors, mlm))


def test_an_index_of_an_aggretriever(networks, tmp_path: Path) -> None:
    folder, _ = write_aggretriever(networks("bert"), tmp_path / "checkpoint", mlm=False)
    path = export(folder, tmp_path / "out", "int8", texts=["cat", "dog eats"], retrieval=False).path
    texts = ["the cat sat on the mat", "a dog eats", "quick brown foxes jump over lazy dogs all day"]
    engine.build(texts, tmp_path / "index", encoder=path)
    with engine.Engine.open(tmp_path / "index", encoder=path) as index:
        assert index.search("a dog eats", k=1, mode="dense")[0].text == "a dog eats"
        assert index.stats()["representation"]["name"] == "passages"
    with pytest.raises(InvalidSetting, match="expected pooled or passages; found pieces"):
        engine.build(texts, tmp_path / "other", encoder=path, representation="pieces")
