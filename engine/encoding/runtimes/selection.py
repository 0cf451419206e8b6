"""Chooses the runtime of an encoder bundle, by name or automatically."""

from __future__ import annotations

import logging
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from quarry.engine.arguments import checked_flag, is_one_of, shown
from quarry.engine.process.cuda import has_cuda
from quarry.engine.process.libraries import loading, requiring
from quarry.engine.process.per_process import bundle_key, shared_models
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.bundle.folder import MODEL_NAME, QUERY_MODEL_NAME
from quarry.formats.bundle.plan import PlanRecord, read_plans
from quarry.formats.errors import BackendUnavailable, CorruptFile, InvalidSetting

if TYPE_CHECKING:
    from quarry.engine.encoding.runtimes.batched_encoder import BatchedEncoder, BatchRunner, MakeRunner
    from quarry.engine.encoding.runtimes.onnx_encoder import OnnxEncoder

__all__ = ["RUNTIMES", "open_bundle"]

RUNTIMES = ("auto", "onnx-cpu", "onnx-cuda", "tensorrt", "torch")

_log = logging.getLogger(__name__)
_LEAN = ("int8", "fp32")
_FLOATS = ("fp16", "fp32")  # precisions whose vectors do not depend on the other texts of a batch


def open_bundle(bundle: EncoderBundle, runtime: str = "auto", lean: bool = False) -> OnnxEncoder | BatchedEncoder:
    """Return an encoder that runs a bundle; with the same settings it is the same encoder.

    For a graph in fp16 or fp32, "auto" chooses the TensorRT engine that was built for this graph, GPU and library
    version (`quarry plan`), else ONNX Runtime on a CUDA device, else torch on one if onnx is installed, else ONNX
    Runtime on the CPU; quantized graphs run on the CPU. If the chosen runtime cannot be started, the graph runs on
    the CPU and a warning is logged. The first three have not been run on a GPU yet.

    Args:
        bundle: the bundle.
        runtime: one of `RUNTIMES`. "torch" also runs int8, without quantized activations, on a
            CUDA device, or on the CPU if there is none.
        lean: whether to run on the CPU with the weights in the mapped files of the bundle, see
            `quarry.engine.encoding.runtimes.onnx_session.open_session`.

    Raises:
        InvalidSetting: the runtime is unknown or does not support the bundle's precision; or `lean` is used with
            another runtime than the CPU's, or with a precision whose weights are converted at every run.
        BackendUnavailable: the requested runtime cannot be used.
    """
    if not is_one_of(runtime, RUNTIMES):
        raise InvalidSetting("unknown runtime", expected=", ".join(RUNTIMES), actual=shown(runtime))
    if checked_flag(lean, "lean"):
        _check_lean(bundle, runtime)
    is_auto = runtime == "auto"
    if is_auto:
        runtime = "onnx-cpu" if lean else _fastest_runtime(bundle)
    if runtime == "onnx-cpu":
        with loading("quarry"):
            from quarry.engine.encoding.runtimes.onnx_encoder import shared_onnx_encoder

        return shared_onnx_encoder(bundle, bool(lean))
    if runtime != "torch" and bundle.settings.precision not in _FLOATS:
        raise InvalidSetting(
            f"runtime {runtime} is for other precisions; export the checkpoint with --precision fp16",
            path=bundle.path,
            expected=" or ".join(_FLOATS),
            actual=bundle.settings.precision,
        )
    from quarry.engine.encoding.runtimes.batched_encoder import BatchedEncoder

    plan = _required_plan(bundle) if runtime == "tensorrt" else None
    make = _torch_runner() if runtime == "torch" else _cuda_runner() if plan is None else _tensorrt_runner(plan)
    key = (runtime, is_auto, plan, bundle_key(bundle))
    return shared_models.get(
        key, partial(BatchedEncoder, bundle, partial(_make_or_fall_back, make) if is_auto else make)
    )


def _make_or_fall_back(make: MakeRunner, bundle: EncoderBundle, name: str) -> BatchRunner:
    """Make a runner of a graph; if that fails, one on the CPU."""
    try:
        return make(bundle, name)
    except (BackendUnavailable, CorruptFile, RuntimeError) as error:  # of a driver or a library
        _log.warning("encoder %s runs on the CPU instead: %s", bundle.settings.name, error)
        from quarry.engine.encoding.runtimes.onnx_runner import OnnxRunner

        return OnnxRunner(bundle, name, device="cpu")


def _check_lean(bundle: EncoderBundle, runtime: str) -> None:
    """Raise if `lean` has no advantage: fp16 takes more memory, int8-weights thirty times as long."""
    if runtime not in ("auto", "onnx-cpu"):
        raise InvalidSetting("lean requires the CPU", expected="runtime onnx-cpu", actual=runtime)
    if bundle.settings.precision not in _LEAN:
        raise InvalidSetting(
            "lean requires a precision in which weights are used as stored",
            path=bundle.path,
            expected=" or ".join(_LEAN),
            actual=bundle.settings.precision,
        )


def _cuda_runner() -> MakeRunner:
    if not has_onnx_cuda():
        raise BackendUnavailable(
            "ONNX Runtime cannot use CUDA here",
            expected="a CUDA device; pip uninstall onnxruntime, then pip install onnxruntime-gpu",
        )
    from quarry.engine.encoding.runtimes.onnx_runner import OnnxRunner

    return partial(OnnxRunner, device="cuda")


def _torch_runner() -> MakeRunner:
    with requiring("runtime torch needs torch and onnx", "'.[gpu]' in a checkout of Quarry"):
        from quarry.engine.encoding.runtimes.torch_runner import TorchRunner

    return partial(TorchRunner, device="cuda" if has_cuda() else "cpu")


def _tensorrt_runner(plan: PlanRecord) -> MakeRunner:
    from quarry.engine.encoding.runtimes.tensorrt_runner import TensorRtRunner

    return partial(TensorRtRunner, plan=plan)


def _required_plan(bundle: EncoderBundle) -> PlanRecord:
    plan = _plan(bundle)
    if plan is None:
        raise BackendUnavailable(
            "no TensorRT engine fits this graph, this GPU and the installed library",
            path=bundle.path,
            expected=f"quarry plan {bundle.path}",
            actual=", ".join(plan.stem for plan in read_plans(bundle.path)) or "none",
        )
    return plan


def _fastest_runtime(bundle: EncoderBundle) -> str:
    if bundle.settings.precision not in _FLOATS:
        return "onnx-cpu"
    if _plan(bundle) is not None:
        return "tensorrt"
    if has_onnx_cuda():
        return "onnx-cuda"
    return "torch" if has_cuda() and find_spec("onnx") is not None else "onnx-cpu"


def _plan(bundle: EncoderBundle) -> PlanRecord | None:
    """Return the plan that can be used, for bundles of one graph; log how to build a missing one."""
    plans = read_plans(bundle.path)
    if not plans or QUERY_MODEL_NAME in bundle.files:
        return None
    from quarry.engine.encoding.runtimes.tensorrt_runner import fitting_plan

    plan = fitting_plan(plans, bundle.files[MODEL_NAME].sha256)
    if plan is None:
        names = ", ".join(plan.stem for plan in plans)
        _log.warning("no TensorRT engine fits (found: %s); to build it: quarry plan %s", names, bundle.path)
    return plan


def has_onnx_cuda() -> bool:
    """Return whether there is a CUDA device, and ONNX Runtime was built for it, which takes longer to find out."""
    if not has_cuda():
        return False
    from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime

    return "CUDAExecutionProvider" in import_onnxruntime().get_available_providers()
