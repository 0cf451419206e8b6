"""Builds of real TensorRT engines with TensorRT-RTX, which needs no GPU."""

from __future__ import annotations

import importlib.util

import pytest
from support.models.quick_export import quick_export
from support.models.split_weights import with_weights_apart
from support.models.tiny_checkpoint import write_checkpoint

from quarry.engine.cli.commands import main
from quarry.engine.process.cuda import get_cuda_target
from quarry.exporters import plan_command
from quarry.exporters.to_tensorrt import build_plan, get_default_profiles
from quarry.formats.bundle.plan import PlanProfile, read_plans
from quarry.formats.errors import BackendUnavailable, ChecksumMismatch, InvalidSetting

TARGET = "sm89"
SMALL = (PlanProfile((1, 1), (1, 8), (1, 24)), PlanProfile((1, 1), (4, 16), (8, 24)))

needs_rtx = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None, reason="needs TensorRT-RTX (tensorrt-rtx-cu13)"
)


@pytest.fixture
def bundle(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    return quick_export(checkpoint, tmp_path / "bundle", "fp32").path


@needs_rtx
def test_a_plan_is_built_and_says_what_it_is_for(bundle):
    record = build_plan(bundle, target=TARGET, library="tensorrt-rtx", profiles=SMALL)
    assert (record.library, record.target, record.precision) == ("tensorrt-rtx", TARGET, "fp32")
    assert record.stem == f"tensorrt-rtx-{record.version}-{TARGET}-fp32"
    assert record.profiles == SMALL
    assert read_plans(bundle) == [record]
    assert len(record.load(bundle)) == record.file.n_bytes > 10_000


@needs_rtx
@pytest.mark.parametrize("split", [False, True])
def test_a_half_precision_graph_is_built_too(tmp_path, split):
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    bundle = quick_export(checkpoint, tmp_path / "bundle", "fp16").path
    if split:
        bundle = with_weights_apart(bundle, tmp_path / "split").path
    record = build_plan(bundle, target=TARGET, library="tensorrt-rtx", profiles=SMALL)
    assert record.precision == "fp16"
    assert read_plans(bundle) == [record]


@needs_rtx
def test_a_checkpoint_becomes_a_bundle_with_a_plan(tmp_path, capsys):
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    assert main(["export", str(checkpoint), str(tmp_path / "out"), "--precision", "fp16", "--tensorrt",
                 "--target", TARGET]) == 0  # fmt: skip
    assert [plan.target for plan in read_plans(tmp_path / "out")] == [TARGET]
    assert ".plan" in capsys.readouterr().out


def test_a_plan_is_not_built_of_a_graph_that_tensorrt_cannot_read(tmp_path, capsys):
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    assert main(["export", str(checkpoint), str(tmp_path / "out"), "--tensorrt"]) == 1
    assert not (tmp_path / "out").exists()
    assert "fp16 or fp32" in capsys.readouterr().err


@needs_rtx
def test_a_timing_cache_is_for_the_library_that_times(bundle, tmp_path):
    with pytest.raises(InvalidSetting, match="has no timing cache"):
        build_plan(bundle, target=TARGET, library="tensorrt-rtx", timing_cache=tmp_path / "timings")


@needs_rtx
def test_a_profile_that_contradicts_itself_is_an_error(bundle):
    wrong = (PlanProfile((2, 8), (1, 8), (1, 4)),)
    with pytest.raises(InvalidSetting, match="tensorrt-rtx"):
        build_plan(bundle, target=TARGET, library="tensorrt-rtx", profiles=wrong)


@needs_rtx
def test_an_unknown_target_is_an_error_that_lists_the_known(bundle):
    with pytest.raises(InvalidSetting, match="target") as caught:
        build_plan(bundle, target="sm42", library="tensorrt-rtx")
    assert TARGET in str(caught.value.expected)


@needs_rtx
def test_without_a_gpu_a_target_must_be_named(bundle):
    if get_cuda_target() is not None:
        pytest.skip("there is a GPU")
    with pytest.raises(BackendUnavailable, match="GPU"):
        build_plan(bundle, library="tensorrt-rtx")


@needs_rtx
def test_the_command_builds(bundle, capsys):
    import argparse

    parser = argparse.ArgumentParser()
    plan_command.add_arguments(parser)
    assert plan_command.run(parser.parse_args([str(bundle), "--target", TARGET, "--library", "tensorrt-rtx"])) == 0
    assert f"-{TARGET}-fp32.plan" in capsys.readouterr().out


def test_a_graph_quantized_for_onnx_runtime_is_refused(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(InvalidSetting, match="fp16"):
        build_plan(quick_export(checkpoint, tmp_path / "bundle", "int8").path, target=TARGET)


def test_a_damaged_graph_is_refused(bundle):
    path = bundle / "model.onnx"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ChecksumMismatch):
        build_plan(bundle, target=TARGET)


def test_an_unknown_library_is_an_error(bundle):
    with pytest.raises(InvalidSetting, match="library"):
        build_plan(bundle, target=TARGET, library="tensorflow")


def test_a_missing_library_is_an_error_that_says_how_to_install_it(bundle):
    if importlib.util.find_spec("tensorrt") is not None:
        pytest.skip("TensorRT is installed")
    with pytest.raises(BackendUnavailable, match="not installed") as caught:
        build_plan(bundle, library="tensorrt")
    assert "pip install tensorrt" in str(caught.value.expected)


@pytest.mark.parametrize("window", [3, 24, 128, 512])
def test_profiles_fit_the_window_and_cover_what_is_encoded(window):
    profiles = get_default_profiles(window)
    assert all(profile.accepts(profile.usual) for profile in profiles)
    assert any(profile.accepts((64, window)) for profile in profiles)
    assert profiles[0].largest[0] == 1
