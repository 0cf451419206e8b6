"""The runner of TensorRT engines, with a substitute for TensorRT, because there is no GPU."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest
from support.models.quick_export import quick_export
from support.models.stand_in_tensorrt import tensorrt
from support.models.tiny_checkpoint import write_checkpoint

from quarry.engine.encoding.runtimes.batched_encoder import BatchedEncoder
from quarry.engine.encoding.runtimes.onnx_encoder import OnnxEncoder
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.bundle.plan import PlanProfile, PlanRecord, digest_plan, write_plan
from quarry.formats.errors import BackendUnavailable, ChecksumMismatch

torch = pytest.importorskip("torch", reason="the runner needs torch")

pytestmark = pytest.mark.usefixtures("one_torch_thread")

PROFILES = (PlanProfile((1, 1), (1, 8), (1, 24)), PlanProfile((1, 1), (4, 16), (8, 24)))
TEXTS = ["the cat sat.", "a", "abc def ghi. " * 30, "x y z", *("b c" for _ in range(9))]


@pytest.fixture(params=["fp32", "fp16"])
def bundle(request, tmp_path):
    return quick_export(write_checkpoint(tmp_path / "checkpoint"), tmp_path / "bundle", request.param)


def plan_of(bundle, content=b"plan"):
    plan = PlanRecord(
        identity=bundle.identity,
        model_sha256=bundle.files["model.onnx"].sha256,
        library="tensorrt",
        version="11.4.0",
        target="sm90",
        precision=bundle.settings.precision,
        profiles=PROFILES,
        file=digest_plan(content),
    )
    write_plan(bundle.path, plan, content)
    return plan


def runner_of(bundle, plan, monkeypatch, profiles=PROFILES):
    from quarry.engine.encoding.runtimes.tensorrt_runner import TensorRtRunner

    monkeypatch.setitem(sys.modules, "tensorrt", tensorrt(str(bundle.model_path), profiles))
    return partial(TensorRtRunner, plan=plan, device="cpu")


def test_texts_have_the_vectors_that_onnx_runtime_gives(bundle, monkeypatch):
    encoder = BatchedEncoder(bundle, runner_of(bundle, plan_of(bundle), monkeypatch))
    alone = OnnxEncoder(load_bundle(bundle.path))
    for texts in (TEXTS, TEXTS[:1], TEXTS[1:2]):
        found = encoder.run_queries([encoder.prepare_query(text) for text in texts]).host
        expected = np.stack([alone.encode_query(text) for text in texts])
        np.testing.assert_allclose(found, expected, atol=2e-3)
        prepared = [encoder.prepare(text) for text in texts]
        for text, windows in zip(texts, encoder.run(prepared), strict=True):
            for one, other in zip(windows, alone.windows(text), strict=True):
                np.testing.assert_allclose(one.values, other.values, atol=5e-3)


def test_a_shape_that_the_library_refuses_is_an_error(bundle, monkeypatch):
    narrow = (PROFILES[0], PlanProfile((1, 1), (1, 8), (2, 24)))
    runner = runner_of(bundle, plan_of(bundle), monkeypatch, narrow)(bundle, "model.onnx")
    with pytest.raises(BackendUnavailable, match="does not accept a shape"):
        runner.run("pooled", np.ones((5, 4), np.int64), np.ones((5, 4), np.int64))
    with pytest.raises(BackendUnavailable, match="not built for this shape"):
        runner.run("pooled", np.ones((9, 4), np.int64), np.ones((9, 4), np.int64))


def test_a_plan_that_the_library_refuses_is_an_error(bundle, monkeypatch):
    make = runner_of(bundle, plan_of(bundle, b"of another version"), monkeypatch)
    with pytest.raises(BackendUnavailable, match="cannot load its engine"):
        make(bundle, "model.onnx")


def test_a_plan_that_is_not_the_recorded_one_is_never_loaded(bundle, monkeypatch):
    plan = plan_of(bundle)
    (bundle.path / f"{plan.stem}.plan").write_bytes(b"nalp")
    with pytest.raises(ChecksumMismatch):
        runner_of(bundle, plan, monkeypatch)(bundle, "model.onnx")
