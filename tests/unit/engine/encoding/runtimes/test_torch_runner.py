"""Encoders in torch: precisions, quantized graphs, and graphs that it cannot run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from support.models.tiny_checkpoint import write_checkpoint

from quarry.engine.encoding.opening import open_encoder
from quarry.exporters.export import export
from quarry.formats.bundle.folder import MODEL_NAME
from quarry.formats.errors import BackendUnavailable, CorruptFile

torch = pytest.importorskip("torch", reason="the runtime is torch")

from quarry.engine.encoding.runtimes.torch_graph import TorchGraph  # noqa: E402
from quarry.engine.encoding.runtimes.torch_runner import TorchRunner  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")
TEXT = "a quick brown fox. it jumps, over the lazy dog!"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("torch") / "checkpoint", pooling="max_tokens")


@pytest.fixture(scope="module")
def bundle(checkpoint, tmp_path_factory):
    return export(checkpoint, tmp_path_factory.mktemp("torch") / "bundle", "fp32", retrieval=False)


@pytest.mark.parametrize("pooling", ["mean", "weightedmean", "cls", "lasttoken"])
def test_padding_does_not_change_a_vector(checkpoint, tmp_path, pooling):
    bundle = export(checkpoint, tmp_path / "bundle", "fp32", retrieval=False, head=pooling)
    runner = TorchRunner(bundle, MODEL_NAME, "cpu", torch.float32)
    ids = np.arange(5, 25).reshape(2, 10)
    mask = np.ones_like(ids)
    mask[1, 4:] = 0
    found = runner.run("pooled", ids, mask)
    alone = runner.run("pooled", ids[1:, :4], mask[1:, :4])
    torch.testing.assert_close(found[1:], alone, atol=1e-5, rtol=1e-5)
    if pooling == "lasttoken":
        states = runner.run("token_vectors", ids, mask)
        torch.testing.assert_close(found[1], states[1, 3] / states[1, 3].norm(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_close_to_full(bundle, kind):
    full, half = (TorchRunner(bundle, MODEL_NAME, "cpu", each) for each in (torch.float32, kind))
    ids = np.arange(5, 25).reshape(2, 10)
    mask = np.ones_like(ids)
    mask[1, 4:] = 0
    found, expected = (each.run("pooled", ids, mask) for each in (half, full))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0.05)


def test_an_int8_graph_is_computed_with_float_activations(checkpoint, bundle, tmp_path):
    """Its error is that of the weights alone, and a text's vectors do not depend on the batch."""
    path = export(checkpoint, tmp_path / "int8", "int8", texts=[TEXT], retrieval=False).path
    exact, variants = (
        open_encoder(bundle.path),
        [open_encoder(path, runtime=each) for each in ("onnx-cpu", "torch")],
    )
    vector = exact.encode_query(TEXT)
    on_cpu, in_torch = (float(vector @ each.encode_query(TEXT)) for each in variants)
    assert on_cpu <= in_torch
    assert in_torch > 0.995
    batch = variants[1].run([variants[1].prepare(text) for text in (TEXT, "fox")])
    (alone,) = variants[1].windows("fox")
    np.testing.assert_allclose(batch[1][0].values, alone.values, atol=1e-5)


def test_a_graph_with_another_operator_is_not_run(tmp_path):
    value = helper.make_tensor_value_info("input_ids", onnx.TensorProto.FLOAT, [1])
    node = helper.make_node("Cos", ["input_ids"], ["pooled"])
    graph = helper.make_graph([node], "other", [value], [helper.make_empty_tensor_value_info("pooled")])
    onnx.save(helper.make_model(graph), tmp_path / "model.onnx")
    with pytest.raises(BackendUnavailable, match=r"operators.*Cos"):
        TorchGraph(tmp_path / "model.onnx", torch.device("cpu"), torch.float32)


def test_ids_beyond_the_table_are_an_error_that_names_the_graph(bundle):
    runner = TorchRunner(bundle, MODEL_NAME, "cpu")
    with pytest.raises(CorruptFile, match=r"model\.onnx"):
        runner.run("pooled", np.full((1, 3), 10_000), np.ones((1, 3), np.int64))
