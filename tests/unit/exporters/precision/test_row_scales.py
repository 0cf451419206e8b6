"""Scaled rows of feed-forward layers: the same function, a smaller error in int8, other graphs untouched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.models.tiny_checkpoint import DIM, write_checkpoint, write_reranker_checkpoint

from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
from quarry.exporters.checkpoint.checkpoint import read_checkpoint, read_network, read_reranker
from quarry.exporters.graph.bert import build_reranker_graph
from quarry.exporters.graph.sources import open_graph_source
from quarry.exporters.precision.int8 import quantize_int8, quantize_tensors
from quarry.exporters.precision.row_scales import scale_rows
from quarry.exporters.precision.variants import convert_encoder

Floats = npt.NDArray[np.float32]
Link = tuple[str, tuple[str, ...]]

INNER = 48


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def build(links: list[Link], constants: dict[str, Floats], keep: str = "") -> onnx.ModelProto:
    """Build a graph from x to y; the output of a node has its name."""
    nodes = [helper.make_node(op, inputs[:-1], [inputs[-1]], name=keep + inputs[-1]) for op, inputs in links]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "n", DIM])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "n", None])],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


def layer(activation: str = "Gelu", keep: str = "") -> onnx.ModelProto:
    links = [
        ("MatMul", ("x", "w1", "first")),
        ("Add", ("first", "b1", "biased")),
        (activation, ("biased", "inner")),
        ("MatMul", ("inner", "w2", "second")),
        ("Add", ("second", "b2", "y")),
    ]
    return build(links, WEIGHTS, keep=keep)


WEIGHTS = {
    "w1": normal(DIM, INNER) / 4,
    "b1": normal(INNER),
    "w2": normal(INNER, DIM, seed=1) / 4,
    "b2": normal(DIM),
}


def run(model: onnx.ModelProto, x: Floats) -> Floats:
    onnx.checker.check_model(model, full_check=True)
    session = import_onnxruntime().InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(["y"], {"x": x})
    return found


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def outlying(n_tokens: int = 9) -> Floats:
    """Return (1, n_tokens, DIM) activations whose first token is 30 times as large as the others."""
    x = normal(1, n_tokens, DIM, seed=2)
    x[0, 0] *= 30
    return x


def quantize_rows(x: Floats) -> Floats:
    """Return (n, k) rows scaled to 1, rounded as DynamicQuantizeLinear is specified, and scaled back."""
    row = np.abs(x).max(axis=1, keepdims=True)
    scaled = x / row
    low, high = min(scaled.min(), np.float32(0)), max(scaled.max(), np.float32(0))
    scale = (high - low) / np.float32(255)
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(scaled / scale) + zero, 0, 255) - zero) * scale * row


def quantize_columns(w: Floats) -> npt.NDArray[np.float64]:
    """Return (k, n) weights rounded to -64..64 with one scale per column: the oracle."""
    scale = np.abs(w.astype(np.float64)).max(axis=0) / 64
    return np.rint(w / scale) * scale


@pytest.mark.parametrize("activation", ["Gelu", "Relu", "Tanh"])
def test_the_function_stays_the_same(activation: str) -> None:
    model = layer(activation)
    before = model.SerializeToString()
    scaled = scale_rows(model, "head.")
    assert model.SerializeToString() == before
    assert operators(scaled).count("ReduceMax") == 2
    for x in (outlying(), outlying(1), 1e-6 * outlying(), np.zeros((2, 3, DIM), np.float32)):
        np.testing.assert_allclose(run(scaled, x), run(model, x), rtol=1e-5, atol=1e-5)


def test_quantized_rows_are_those_of_a_slow_version() -> None:
    x = outlying()
    links: list[Link] = [
        ("MatMul", ("x", "w1", "first")),
        ("Relu", ("first", "inner")),
        ("MatMul", ("inner", "w2", "y")),
    ]
    found = run(quantize_int8(build(links, {name: WEIGHTS[name] for name in ("w1", "w2")}), "head."), x)
    inner = np.maximum(quantize_rows(x[0]) @ quantize_columns(WEIGHTS["w1"]), 0).astype(np.float32)
    expected = quantize_rows(inner) @ quantize_columns(WEIGHTS["w2"])
    step = inner.max(axis=1, keepdims=True) / 255 * np.abs(WEIGHTS["w2"]).max()  # of one element that is at a half
    difference = np.abs(found[0] - expected)
    assert (difference <= 1.1 * step).all()
    assert np.median(difference / step) < 1e-3


def test_weights_of_7_bits_are_kept_exactly() -> None:
    rounded = {name: quantize_columns(w).astype(np.float32) if w.ndim == 2 else w for name, w in WEIGHTS.items()}
    model = layer()
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(rounded[tensor.name], tensor.name))
    stored = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in quantize_int8(model, "head.").graph.initializer
    }
    for name in ("w1", "w2"):
        codes, scales = stored[f"{name}_quantized"], stored[f"{name}_scale"]
        assert np.abs(codes.astype(int)).max() <= 64
        np.testing.assert_allclose(codes * scales, rounded[name], rtol=1e-6)


def test_the_error_of_ordinary_tokens_no_longer_depends_on_a_large_one() -> None:
    x, model = outlying(), layer()
    exact = run(model, x)

    def error(quantized: onnx.ModelProto) -> float:
        return float(np.abs(run(quantized, x) - exact)[0, 1:].mean())

    assert error(quantize_int8(model, "head.")) < 0.3 * error(quantize_tensors(model, "head."))


def test_a_gate_shares_the_rows_of_its_input() -> None:
    links: list[Link] = [
        ("MatMul", ("x", "w1", "first")),
        ("Sigmoid", ("first", "gate")),
        ("MatMul", ("x", "w3", "third")),
        ("Mul", ("gate", "third", "inner")),
        ("MatMul", ("inner", "w2", "y")),
    ]
    weights = {"w1": WEIGHTS["w1"], "w2": WEIGHTS["w2"], "w3": normal(DIM, INNER, seed=3)}
    model = build(links, weights)
    scaled = scale_rows(model, "head.")
    assert operators(scaled).count("ReduceMax") == 2
    np.testing.assert_allclose(run(scaled, outlying()), run(model, outlying()), rtol=1e-4, atol=1e-3)


UNKNOWN: dict[str, tuple[list[Link], dict[str, Floats]]] = {
    "one product": ([("MatMul", ("x", "w1", "y"))], {"w1": WEIGHTS["w1"]}),
    "a wide product after a narrow one": (
        [("MatMul", ("x", "w1", "a")), ("Relu", ("a", "b")), ("MatMul", ("b", "w2", "y"))],
        {"w1": normal(DIM, 8), "w2": normal(8, DIM)},
    ),
    "another dimension at the end": (
        [("MatMul", ("x", "w1", "a")), ("Tanh", ("a", "b")), ("MatMul", ("b", "w2", "y"))],
        {"w1": normal(DIM, DIM), "w2": normal(DIM, 1)},
    ),
    "an operator across tokens": (
        [("MatMul", ("x", "w1", "a")), ("Softmax", ("a", "b")), ("MatMul", ("b", "w2", "y"))],
        {"w1": WEIGHTS["w1"], "w2": WEIGHTS["w2"]},
    ),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_other_patterns_stay_as_they_are(case: str) -> None:
    model = build(*UNKNOWN[case])
    assert scale_rows(model, "head.") == model


def test_products_of_a_head_stay_as_they_are() -> None:
    model = layer(keep="head.")
    assert scale_rows(model, "head.") == model


def test_both_products_of_every_layer_of_a_network_are_scaled(tmp_path: Path) -> None:
    encoder = read_checkpoint(write_checkpoint(tmp_path / "encoder"))
    graphs = [convert_encoder(open_graph_source(encoder, "direct").build(), encoder.head, "fp32")]
    reranker = read_reranker(write_reranker_checkpoint(tmp_path / "reranker"))
    graphs.append(build_reranker_graph(read_network(reranker, ("bert",))))
    for graph in graphs:
        added = {node.name for node in scale_rows(graph, "head.").graph.node} - {
            node.name for node in graph.graph.node
        }
        assert {name for name in added if name.endswith("_row_product")} == {
            f"encoder.layer.{n}.{part}.dense.matmul_row_product"
            for n in (0, 1)
            for part in ("intermediate", "output")
        }


def test_the_same_graph_has_the_same_bytes() -> None:
    once, twice = (quantize_int8(layer(), "head.").SerializeToString(deterministic=True) for _ in range(2))
    assert once == twice
