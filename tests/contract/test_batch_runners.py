"""The contract of batch runners: ONNX Runtime, torch and TensorRT (a substitute library).

All run on torch's CPU device; graphs are compared with ONNX Runtime in numpy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.models.quick_export import quick_export
from support.models.stand_in_tensorrt import tensorrt
from support.models.tiny_checkpoint import write_checkpoint

from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.bundle.folder import MODEL_NAME
from quarry.formats.bundle.plan import PlanProfile, PlanRecord, digest_plan, write_plan

torch = pytest.importorskip("torch", reason="batch runners return torch tensors")

pytestmark = pytest.mark.usefixtures("one_torch_thread")

PROFILES = (PlanProfile((1, 1), (1, 8), (1, 24)), PlanProfile((1, 1), (4, 16), (8, 24)))
OUTPUTS = ("token_vectors", "pooled")
ROUNDING = {"fp32": 1e-5, "fp16": 5e-3}


def open_onnx(bundle: EncoderBundle) -> Any:
    from quarry.engine.encoding.runtimes.onnx_runner import OnnxRunner

    return OnnxRunner(bundle, MODEL_NAME, "cpu")


def open_tensorrt(bundle: EncoderBundle) -> Any:
    from quarry.engine.encoding.runtimes.tensorrt_runner import TensorRtRunner

    plan = PlanRecord(
        identity=bundle.identity,
        model_sha256=bundle.files[MODEL_NAME].sha256,
        library="tensorrt",
        version="11.4.0",
        target="sm90",
        precision=bundle.settings.precision,
        profiles=PROFILES,
        file=digest_plan(b"plan"),
    )
    write_plan(bundle.path, plan, b"plan")
    return TensorRtRunner(bundle, MODEL_NAME, plan, "cpu")


def open_torch(bundle: EncoderBundle) -> Any:
    from quarry.engine.encoding.runtimes.torch_runner import TorchRunner

    return TorchRunner(bundle, MODEL_NAME, "cpu")


RUNNERS = {"onnx": open_onnx, "tensorrt": open_tensorrt, "torch": open_torch}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EncoderBundle]:
    folder: Path = tmp_path_factory.mktemp("runners")
    checkpoint = write_checkpoint(folder / "checkpoint")
    return {each: quick_export(checkpoint, folder / each, each) for each in ROUNDING}


@pytest.fixture(params=[(name, precision) for name in RUNNERS for precision in ROUNDING], ids=" ".join)
def case(
    request: pytest.FixtureRequest, bundles: dict[str, EncoderBundle], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Any, EncoderBundle, float]]:
    """Return a runner, its bundle, and the rounding error of its precision."""
    name, precision = request.param
    bundle = bundles[precision]
    monkeypatch.setitem(sys.modules, "tensorrt", tensorrt(str(bundle.model_path), PROFILES))
    return RUNNERS[name](bundle), bundle, ROUNDING[precision]


def make_batch(*lengths: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return random tokens: ids of shape (batch, length) int64, and their mask."""
    ids = np.random.default_rng(seed).integers(5, 50, (len(lengths), max(lengths)))
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    return ids, mask


def test_attributes_name_the_device_and_the_largest_batch(case: tuple[Any, EncoderBundle, float]) -> None:
    runner, _, _ = case
    assert runner.place == torch.device("cpu")
    assert isinstance(runner.max_batch, int)
    assert runner.max_batch >= 1


@pytest.mark.parametrize("lengths", [(1,), (13,), (24, 3), (7, 7, 1, 20, 5, 2, 9, 4)], ids=str)
def test_outputs_are_float32_tensors_of_the_right_shape(
    case: tuple[Any, EncoderBundle, float], lengths: tuple[int, ...]
) -> None:
    runner, bundle, _ = case
    ids, mask = make_batch(*lengths)
    shapes = ((*ids.shape, bundle.settings.dim), (len(lengths), bundle.settings.dim))
    for output, shape in zip(OUTPUTS, shapes, strict=True):
        found = runner.run(output, ids, mask)
        assert found.shape == shape
        assert found.dtype == torch.float32
        assert found.device == runner.place
        assert bool(found[..., :1, :].isfinite().all())


def test_padding_does_not_change_vectors(case: tuple[Any, EncoderBundle, float]) -> None:
    runner, _, rounding = case
    ids, mask = make_batch(6, 20)
    other = np.where(mask == 1, ids, 7)
    pooled = runner.run("pooled", ids, mask)
    np.testing.assert_allclose(runner.run("pooled", other, mask), pooled, atol=rounding)
    tokens = runner.run("token_vectors", ids, mask)[0, :6]
    np.testing.assert_allclose(runner.run("token_vectors", other, mask)[0, :6], tokens, atol=rounding)


def test_a_text_has_the_same_vectors_alone_and_in_a_batch(case: tuple[Any, EncoderBundle, float]) -> None:
    runner, _, rounding = case
    lengths = (3, 24, 9)
    ids, mask = make_batch(*lengths)
    together = {output: runner.run(output, ids, mask) for output in OUTPUTS}
    for number, length in enumerate(lengths):
        alone = ids[number : number + 1, :length], np.ones((1, length), np.int64)
        np.testing.assert_allclose(runner.run("pooled", *alone)[0], together["pooled"][number], atol=rounding)
        tokens = runner.run("token_vectors", *alone)[0]
        np.testing.assert_allclose(tokens, together["token_vectors"][number, :length], atol=rounding)


def test_a_result_is_not_overwritten_by_the_next_run(case: tuple[Any, EncoderBundle, float]) -> None:
    runner, _, _ = case
    for output in OUTPUTS:
        first = runner.run(output, *make_batch(9, seed=1))
        copy = first.clone()
        second = runner.run(output, *make_batch(9, seed=2))
        assert torch.equal(first, copy)
        assert not torch.equal(first, second)


def test_input_is_not_modified(case: tuple[Any, EncoderBundle, float]) -> None:
    runner, _, _ = case
    ids, mask = make_batch(4, 11)
    before = ids.copy(), mask.copy()
    runner.run("pooled", ids, mask)
    np.testing.assert_array_equal((ids, mask), before)


def test_vectors_are_those_of_the_graph(case: tuple[Any, EncoderBundle, float]) -> None:
    runner, bundle, rounding = case
    session = import_onnxruntime().InferenceSession(bundle.model_path, providers=["CPUExecutionProvider"])
    ids, mask = make_batch(5, 17, 1)
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    tokens, pooled = session.run(list(OUTPUTS), inputs)
    np.testing.assert_allclose(runner.run("pooled", ids, mask), pooled, atol=rounding)
    found = runner.run("token_vectors", ids, mask).numpy()
    np.testing.assert_allclose(found[mask == 1], tokens[mask == 1], atol=rounding)
