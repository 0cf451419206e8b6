"""What runs an encoder's bundle: chosen by name, or the best that is there."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from quarry.engine.arguments import checked_flag, is_one_of, shown
from quarry.engine.encoding.shared_models import bundle_key, shared_models
from quarry.engine.gpu.cuda import cuda_is_there
from quarry.engine.process.libraries import loading
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.bundle.folder import MODEL_NAME, QUERY_MODEL_NAME
from quarry.formats.bundle.plan import PlanRecord, read_plans
from quarry.formats.errors import BackendUnavailable, CorruptFile, InvalidSetting

if TYPE_CHECKING:
    from quarry.engine.encoding.batched_encoder import BatchedEncoder, BatchRunner, MakeRunner
    from quarry.engine.encoding.onnx_encoder import OnnxEncoder

__all__ = ["RUNTIMES", "open_bundle"]

RUNTIMES = ("auto", "onnx-cpu", "onnx-cuda", "tensorrt")

_log = logging.getLogger(__name__)
_LEAN = ("int8", "fp32")
_FLOATS = ("fp16", "fp32")  # precisions whose vectors do not depend on what else is in a batch


def open_bundle(bundle: EncoderBundle, runtime: str = "auto", lean: bool = False) -> OnnxEncoder | BatchedEncoder:
    """Return an encoder that runs a bundle, the same one for all who open it with the same settings.

    "auto" takes for a graph in fp16 or fp32 the TensorRT engine that was built for it, this GPU and the installed
    library (`quarry plan`), else ONNX Runtime on a CUDA device, else on the CPU; quantised graphs run on the CPU.
    Where what it took cannot be started, the graph runs on the CPU and the log says why.
    Neither of the first two has been run on a GPU yet.

    Args:
        bundle: what to run.
        runtime: "auto", "onnx-cpu", "onnx-cuda" or "tensorrt".
        lean: to run on the CPU with the weights where they lie in the bundle's files, see
            `quarry.engine.encoding.onnx_session.open_session`.

    Raises:
        InvalidSetting: no such runtime, or one that this bundle's precision is not for; or `lean` with another
            runtime than the CPU's, or for a precision whose weights are converted at every run.
        BackendUnavailable: a runtime was asked for by name and cannot be used.
    """
    if not is_one_of(runtime, RUNTIMES):
        raise InvalidSetting("unknown runtime", expected=", ".join(RUNTIMES), actual=shown(runtime))
    if checked_flag(lean, "lean"):
        _check_lean(bundle, runtime)
    by_itself = runtime == "auto"
    if by_itself:
        runtime = "onnx-cpu" if lean else _best(bundle)
    if runtime == "onnx-cpu":
        with loading("quarry"):
            from quarry.engine.encoding.onnx_encoder import OnnxEncoder

        return shared_models.get((runtime, bool(lean), bundle_key(bundle)), partial(OnnxEncoder, bundle, lean))
    if bundle.settings.precision not in _FLOATS:
        raise InvalidSetting(
            f"runtime {runtime} is for other precisions; export the checkpoint with --precision fp16",
            path=bundle.path,
            expected=" or ".join(_FLOATS),
            actual=bundle.settings.precision,
        )
    from quarry.engine.encoding.batched_encoder import BatchedEncoder

    plan = None if runtime == "onnx-cuda" else _required_plan(bundle)
    make = _cuda_runner() if plan is None else _tensorrt_runner(plan)
    key = (runtime, by_itself, plan, bundle_key(bundle))
    return shared_models.get(
        key, partial(BatchedEncoder, bundle, partial(_or_on_the_cpu, make) if by_itself else make)
    )


def _or_on_the_cpu(make: MakeRunner, bundle: EncoderBundle, name: str) -> BatchRunner:
    """What runs a graph; where it cannot be made, the CPU."""
    try:
        return make(bundle, name)
    except (BackendUnavailable, CorruptFile, RuntimeError) as error:  # of a driver or a library
        _log.warning("encoder %s runs on the CPU instead: %s", bundle.settings.name, error)
        from quarry.engine.encoding.onnx_runner import OnnxRunner

        return OnnxRunner(bundle, name, device="cpu")


def _check_lean(bundle: EncoderBundle, runtime: str) -> None:
    """Refuse what is no better so: half floats take more memory, packed integers thirty times as long."""
    if runtime not in ("auto", "onnx-cpu"):
        raise InvalidSetting("lean is of the CPU", expected="runtime onnx-cpu", actual=runtime)
    if bundle.settings.precision not in _LEAN:
        raise InvalidSetting(
            "lean is for weights that are run as they are stored",
            path=bundle.path,
            expected=" or ".join(_LEAN),
            actual=bundle.settings.precision,
        )


def _cuda_runner() -> MakeRunner:
    if not _has_cuda():
        raise BackendUnavailable(
            "ONNX Runtime cannot use CUDA here",
            expected="a CUDA device; onnxruntime uninstalled, then pip install '.[gpu]' in a checkout of Quarry",
        )
    from quarry.engine.encoding.onnx_runner import OnnxRunner

    return partial(OnnxRunner, device="cuda")


def _tensorrt_runner(plan: PlanRecord) -> MakeRunner:
    from quarry.engine.encoding.tensorrt_runner import TensorRtRunner

    return partial(TensorRtRunner, plan=plan)


def _required_plan(bundle: EncoderBundle) -> PlanRecord:
    plan = _plan(bundle)
    if plan is None:
        raise BackendUnavailable(
            "no TensorRT engine fits this graph, the GPU at hand and the installed library",
            path=bundle.path,
            expected=f"quarry plan {bundle.path}",
            actual=", ".join(plan.stem for plan in read_plans(bundle.path)) or "none",
        )
    return plan


def _best(bundle: EncoderBundle) -> str:
    if bundle.settings.precision not in _FLOATS:
        return "onnx-cpu"
    if _plan(bundle) is not None:
        return "tensorrt"
    return "onnx-cuda" if _has_cuda() else "onnx-cpu"


def _plan(bundle: EncoderBundle) -> PlanRecord | None:
    """The plan that can be used, for bundles of one graph; the log says how to build a missing one."""
    plans = read_plans(bundle.path)
    if not plans or QUERY_MODEL_NAME in bundle.files:
        return None
    from quarry.engine.encoding.tensorrt_runner import fitting_plan

    plan = fitting_plan(plans, bundle.files[MODEL_NAME].sha256)
    if plan is None:
        found = ", ".join(plan.stem for plan in plans)
        _log.warning("no TensorRT engine fits (found: %s); to build it: quarry plan %s", found, bundle.path)
    return plan


def _has_cuda() -> bool:
    """Whether there is a device, and ONNX Runtime, which takes longer to ask, was built for it."""
    if not cuda_is_there():
        return False
    from quarry.engine.encoding.onnx_session import import_onnxruntime

    return "CUDAExecutionProvider" in import_onnxruntime().get_available_providers()
