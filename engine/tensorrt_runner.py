"""Runs batches with a TensorRT engine, on device buffers of torch.

Written to the library's documentation and not yet run on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.cuda_device import cuda_is_there, cuda_target
from engine.tokenizer import Ids
from formats.encoder_bundle import EncoderBundle
from formats.errors import BackendUnavailable
from formats.plan_file import PlanRecord

__all__ = ["PLAN_MODULES", "TensorRtRunner", "fitting_plan"]

PLAN_MODULES = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}
"""Library of a plan -> the module that runs it."""

_LENGTH_STEP = 8  # lengths of single texts are rounded up to it, so that few CUDA graphs serve all


class TensorRtRunner:
    """An `engine.batched_encoder.BatchRunner`.

    Single texts, as queries are, run as CUDA graphs: one for each length, rounded up to a multiple of 8, captured
    when it first comes.

    Args:
        bundle: whose plan it is.
        name: of the graph's file, which the plan was built from.
        plan: its record; the plan's digest is checked before the library sees it.

    Raises:
        BackendUnavailable: the library refuses the plan.
        FormatError: the plan is not the recorded one.
    """

    def __init__(self, bundle: EncoderBundle, name: str, plan: PlanRecord) -> None:
        import torch

        assert bundle.files[name].sha256 == plan.model_sha256
        trt = import_module(PLAN_MODULES[plan.library])
        self._torch: Any = torch
        self._runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        self._engine: Any = self._runtime.deserialize_cuda_engine(plan.load(bundle.path))
        if self._engine is None:
            raise BackendUnavailable(
                f"{plan.library} refuses its engine", path=bundle.path, expected=f"quarry plan {bundle.path}"
            )
        self._profiles = plan.profiles
        self._contexts: dict[int, Any] = {}
        self._graphs: dict[int, _GraphedText] = {}
        self._stream = torch.cuda.Stream()
        self.max_batch = max(profile.largest[0] for profile in plan.profiles)

    def run(self, output: str, ids: Ids, mask: Ids) -> npt.NDArray[np.float32]:
        """See `engine.batched_encoder.BatchRunner.run`."""
        with self._torch.cuda.stream(self._stream):
            found = self._run_one(output, ids, mask) if len(ids) == 1 else self._run_many(output, ids, mask)
            vectors: npt.NDArray[np.float32] = found.float().cpu().numpy()
        return vectors[:, : ids.shape[1]] if output == "token_vectors" else vectors

    def _run_one(self, output: str, ids: Ids, mask: Ids) -> Any:  # noqa: ANN401
        length = -(-ids.shape[1] // _LENGTH_STEP) * _LENGTH_STEP
        if not self._profiles[0].holds((1, length)):
            return self._run_many(output, ids, mask)
        if length not in self._graphs:
            context = self._context(0, shared=False)
            self._graphs[length] = _GraphedText(self._torch, self._engine, context, length)
        return self._graphs[length].run(output, ids, mask)

    def _run_many(self, output: str, ids: Ids, mask: Ids) -> Any:  # noqa: ANN401
        number = _profile_for(self._profiles, ids.shape)
        buffers = _Buffers(self._torch, self._engine, self._context(number), ids.shape)
        buffers.fill(ids, mask)
        buffers.execute()
        return buffers.outputs[output]

    def _context(self, number: int, shared: bool = True) -> Any:  # noqa: ANN401
        """An execution context of a profile: the shared one, or one that keeps its shape."""
        if shared and number in self._contexts:
            return self._contexts[number]
        context = self._engine.create_execution_context()
        context.set_optimization_profile_async(number, self._stream.cuda_stream)
        if shared:
            self._contexts[number] = context
        return context


class _Buffers:
    """Device buffers for one shape, bound to a context."""

    def __init__(self, torch: Any, engine: Any, context: Any, shape: tuple[int, ...]) -> None:  # noqa: ANN401
        self._torch = torch
        self._context = context
        names = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
        inputs = [name for name in names if str(engine.get_tensor_mode(name)).endswith("INPUT")]
        self.inputs = {name: torch.zeros(shape, dtype=torch.int64, device="cuda") for name in inputs}
        for name in inputs:
            context.set_input_shape(name, shape)
        self.outputs = {
            name: torch.empty(tuple(context.get_tensor_shape(name)), dtype=torch.float32, device="cuda")
            for name in names
            if name not in self.inputs
        }
        for name, tensor in {**self.inputs, **self.outputs}.items():
            context.set_tensor_address(name, tensor.data_ptr())

    def fill(self, ids: Ids, mask: Ids) -> None:
        """Copy a batch, which may be shorter than the buffers, into them."""
        for name, values in (("input_ids", ids), ("attention_mask", mask)):
            target = self.inputs[name].zero_()
            target[:, : values.shape[1]] = (
                self._torch.from_numpy(values).pin_memory().to("cuda", non_blocking=True)
            )

    def execute(self) -> None:
        """Run the engine on torch's current stream."""
        if not self._context.execute_async_v3(self._torch.cuda.current_stream().cuda_stream):
            raise BackendUnavailable("TensorRT could not run its engine")


class _GraphedText:
    """One text of a fixed length as a CUDA graph: its buffers stay where they are and it is replayed."""

    def __init__(self, torch: Any, engine: Any, context: Any, length: int) -> None:  # noqa: ANN401
        self._buffers = _Buffers(torch, engine, context, (1, length))
        self._buffers.execute()  # the first run allocates, which a capture may not
        torch.cuda.current_stream().synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=torch.cuda.current_stream()):
            self._buffers.execute()

    def run(self, output: str, ids: Ids, mask: Ids) -> Any:  # noqa: ANN401
        """One output for a text that is no longer than the buffers."""
        self._buffers.fill(ids, mask)
        self._graph.replay()
        return self._buffers.outputs[output]


def _profile_for(profiles: Sequence[Any], shape: tuple[int, ...]) -> int:
    """The first profile that holds a shape."""
    for number, profile in enumerate(profiles):
        if profile.holds(shape):
            return number
    raise BackendUnavailable(
        "the TensorRT engine was not built for this shape",
        expected=[profile.largest for profile in profiles],
        actual=shape,
    )


def fitting_plan(plans: Sequence[PlanRecord], model_sha256: str) -> PlanRecord | None:
    """The plan of this graph that the installed library and the GPU at hand can run, if there is one."""
    target = cuda_target() if plans and cuda_is_there() else None
    for plan in plans:
        if (
            plan.model_sha256 == model_sha256
            and plan.target == target
            and _installed(plan.library) == plan.version
        ):
            return plan
    return None


def _installed(library: str) -> str | None:
    try:
        return str(import_module(PLAN_MODULES[library]).__version__)
    except ImportError:
        return None
