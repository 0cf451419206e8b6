"""Selection of the runtime of a bundle: by name, or the best available."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from support.models.tiny_checkpoint import write_checkpoint

from quarry import engine
from quarry.engine.encoding.runtimes.batched_encoder import BatchedEncoder
from quarry.engine.encoding.runtimes.onnx_encoder import OnnxEncoder
from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
from quarry.engine.encoding.runtimes.tensorrt_runner import fitting_plan
from quarry.engine.process.cuda import get_cuda_target
from quarry.exporters.export import export
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.bundle.plan import PlanProfile, PlanRecord, digest_plan, write_plan
from quarry.formats.errors import BackendUnavailable, InvalidSetting

needs_no_cuda = pytest.mark.skipif(get_cuda_target() is not None, reason="there is a CUDA device")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("runtimes") / "checkpoint")


@pytest.fixture
def bundle(checkpoint, tmp_path):
    return export(checkpoint, tmp_path / "bundle", "fp32").path


@pytest.fixture
def with_plan(bundle):
    """Add a plan for a version of TensorRT that does not exist."""
    plan = PlanRecord(
        identity=load_bundle(bundle).identity,
        model_sha256=load_bundle(bundle).files["model.onnx"].sha256,
        library="tensorrt",
        version="1.2.3",
        target="sm10",
        precision="fp32",
        profiles=(PlanProfile((1, 1), (1, 8), (1, 24)),),
        file=digest_plan(b"plan"),
    )
    write_plan(bundle, plan, b"plan")
    return bundle


def test_the_bundled_encoder_runs_on_the_cpu():
    assert isinstance(engine.open_encoder(), OnnxEncoder)
    assert isinstance(engine.open_encoder(runtime="onnx-cpu"), OnnxEncoder)


@needs_no_cuda
def test_without_a_device_a_float_graph_runs_on_the_cpu(bundle):
    assert isinstance(engine.open_encoder(bundle), OnnxEncoder)


@needs_no_cuda
def test_cuda_requested_by_name_names_what_is_missing(bundle):
    providers = import_onnxruntime().get_available_providers()
    assert "CUDAExecutionProvider" not in providers or get_cuda_target() is None
    with pytest.raises(BackendUnavailable, match="CUDA"):
        engine.open_encoder(bundle, runtime="onnx-cuda")


def test_an_unknown_runtime_is_an_error():
    with pytest.raises(InvalidSetting, match="runtime"):
        engine.open_encoder(runtime="abacus")


@pytest.mark.parametrize("runtime", ["onnx-cuda", "tensorrt"])
def test_a_quantized_graph_is_not_run_in_batches(runtime):
    with pytest.raises(InvalidSetting, match="fp16"):
        engine.open_encoder(runtime=runtime)


def test_a_plan_that_does_not_fit_is_not_used_and_the_log_says_how_to_build_it(with_plan, caplog):
    with caplog.at_level(logging.WARNING):
        encoder = engine.open_encoder(with_plan)
    assert encoder.encode_query("cat").shape == (encoder.dim,)
    assert f"quarry plan {with_plan}" in caplog.text
    assert "tensorrt-1.2.3-sm10-fp32" in caplog.text


def test_tensorrt_requested_by_name_explains_how_to_build_its_engine(with_plan):
    with pytest.raises(BackendUnavailable, match="quarry plan") as caught:
        engine.open_encoder(with_plan, runtime="tensorrt")
    assert "tensorrt-1.2.3-sm10-fp32" in str(caught.value)


def test_a_bundle_without_plans_loads_no_library():
    assert fitting_plan([], "0" * 64) is None


def test_a_selected_device_that_fails_is_replaced(bundle, monkeypatch, caplog):
    pytest.importorskip("torch", reason="devices need torch")
    monkeypatch.setattr("quarry.engine.encoding.runtimes.selection.has_onnx_cuda", lambda: True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    chosen, named = engine.open_encoder(bundle), engine.open_encoder(bundle, runtime="onnx-cuda")
    assert type(chosen) is type(named) is BatchedEncoder
    with caplog.at_level(logging.WARNING):
        found = chosen.encode_query("cat")
    assert "runs on the CPU instead: torch cannot use CUDA here" in caplog.text
    alone = engine.open_encoder(bundle, runtime="onnx-cpu")
    np.testing.assert_allclose(found, alone.encode_query("cat"), atol=2e-5)
    with pytest.raises(BackendUnavailable, match="torch cannot use CUDA here"):
        named.encode_query("cat")
