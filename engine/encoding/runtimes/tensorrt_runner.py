"""Runs batches with a TensorRT engine, on device buffers of torch.

Written from the library's documentation and not yet run on a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from quarry.engine.encoding.tokenizer import Ids
from quarry.engine.process.cuda import get_cuda_target, has_cuda
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.bundle.plan import PlanRecord
from quarry.formats.errors import BackendUnavailable

if TYPE_CHECKING:
    import torch

    from quarry.engine.gpu.stream import SideStream

__all__ = ["PLAN_MODULES", "TensorRtRunner", "fitting_plan"]

PLAN_MODULES = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}
"""Library of a plan -> its Python module."""

_log = logging.getLogger(__name__)
_TYPES = {"FLOAT": "float32", "HALF": "float16", "INT64": "int64", "INT32": "int32"}  # TensorRT's dtypes in torch
_LENGTH_STEP = 8  # lengths of single texts are rounded up, so that few CUDA graphs are needed


class TensorRtRunner:
    """An `quarry.engine.encoding.runtimes.batched_encoder.BatchRunner`.

    Single texts, such as queries, run as CUDA graphs: one for each length, rounded up to a multiple of 8, captured
    at its first use. If a capture fails, a warning is logged and texts of that length run as batches.

    Args:
        bundle: the bundle.
        name: file name of the graph that the plan was built from.
        plan: record of the plan, whose digest is verified before it is loaded.
        device: "cuda" for the first CUDA device; or "cpu", for tests with a substitute library, without graphs.

    Raises:
        BackendUnavailable: the library cannot load the plan.
        FormatError: the file of the plan is damaged.
    """

    def __init__(self, bundle: EncoderBundle, name: str, plan: PlanRecord, device: str = "cuda") -> None:
        import torch

        from quarry.engine.gpu.stream import SideStream

        assert bundle.files[name].sha256 == plan.model_sha256
        self._trt: Any = import_module(PLAN_MODULES[plan.library])
        self.place = torch.device("cuda", 0) if device == "cuda" else torch.device("cpu")
        self._stream = SideStream(self.place)  # makes the CUDA context that the library then uses
        self._runtime = self._trt.Runtime(self._trt.Logger(self._trt.Logger.ERROR))
        with self._stream.active():
            self._engine: Any = self._runtime.deserialize_cuda_engine(plan.load(bundle.path))
        if self._engine is None:
            raise BackendUnavailable(
                f"{plan.library} cannot load its engine", path=bundle.path, expected=f"quarry plan {bundle.path}"
            )
        self._profiles = plan.profiles
        self._contexts: dict[int, Any] = {}
        self._graphs: dict[int, _GraphedText | None] = {}
        self.max_batch = max(profile.largest[0] for profile in plan.profiles)

    def run(self, output: str, ids: Ids, mask: Ids) -> torch.Tensor:
        """See `quarry.engine.encoding.runtimes.batched_encoder.BatchRunner.run`."""
        return self._stream.run(partial(self._run, output, ids, mask))

    def _run(self, output: str, ids: Ids, mask: Ids) -> torch.Tensor:
        """Run a batch on the current stream."""
        length = -(-ids.shape[1] // _LENGTH_STEP) * _LENGTH_STEP
        fits = self.place.type == "cuda" and len(ids) == 1 and self._profiles[0].accepts((1, length))
        graph = self._graph(length) if fits else None
        if graph is None:
            return self._run_batch(output, ids, mask)
        values = graph.run(output, ids, mask)
        return values[:, : ids.shape[1]] if output == "token_vectors" else values

    def _run_batch(self, output: str, ids: Ids, mask: Ids) -> torch.Tensor:
        number = _profile_for(self._profiles, ids.shape)
        if number not in self._contexts:
            self._contexts[number] = self._context(number)
        buffers = _Buffers(self._engine, self._contexts[number], ids.shape, self._stream)
        buffers.fill(ids, mask)
        buffers.execute()
        return buffers.outputs[output].float()

    def _graph(self, length: int) -> _GraphedText | None:
        """Return the CUDA graph for a length, None if it cannot be captured."""
        if length not in self._graphs:
            try:
                self._graphs[length] = _GraphedText(self._engine, self._context(0), length, self._stream)
            except Exception as error:  # whatever the library, torch or the driver raises
                _log.warning("no CUDA graph for texts of %d tokens: %s", length, error)
                self._graphs[length] = None
        return self._graphs[length]

    def _context(self, number: int) -> Any:  # noqa: ANN401
        """Return a new execution context of a profile, with memory for that profile only."""
        strategy = self._trt.ExecutionContextAllocationStrategy.ON_PROFILE_CHANGE
        context = self._engine.create_execution_context(strategy)
        if context is None or not context.set_optimization_profile_async(number, self._stream.handle):
            raise BackendUnavailable("TensorRT could not prepare its engine", actual=f"profile {number}")
        return context


class _Buffers:
    """Device buffers for one shape, bound to a context that runs on torch's current stream."""

    def __init__(self, engine: Any, context: Any, shape: tuple[int, ...], stream: SideStream) -> None:  # noqa: ANN401
        self._context = context
        self._stream = stream
        names = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
        inputs = [name for name in names if engine.get_tensor_mode(name).name == "INPUT"]
        for name in inputs:
            if not context.set_input_shape(name, shape):
                raise BackendUnavailable(
                    "TensorRT does not accept a shape", expected="one of its profile", actual=shape
                )
        tensors = {name: _tensor_for(engine, context, name, stream.place) for name in names}
        for name, tensor in tensors.items():
            if not context.set_tensor_address(name, tensor.data_ptr()):
                raise BackendUnavailable("TensorRT does not accept an address", actual=name)
        self.inputs = {name: tensors[name] for name in inputs}
        self.outputs = {name: tensors[name] for name in names if name not in inputs}

    def fill(self, ids: Ids, mask: Ids) -> None:
        """Copy a batch, whose texts may be shorter than the buffers, into them."""
        import torch

        for name, values in (("input_ids", ids), ("attention_mask", mask)):
            if name in self.inputs:
                shape, pinned = self.inputs[name].shape, self._stream.place.type == "cuda"
                padded = torch.zeros(shape, dtype=torch.int64, pin_memory=pinned)
                padded[:, : values.shape[1]] = torch.from_numpy(values)
                self.inputs[name].copy_(padded, non_blocking=True)

    def execute(self) -> None:
        """Run the engine on the stream."""
        if not self._context.execute_async_v3(self._stream.handle):
            raise BackendUnavailable("TensorRT could not run its engine")


def _tensor_for(engine: Any, context: Any, name: str, place: torch.device) -> torch.Tensor:  # noqa: ANN401
    """Allocate an input, initially zero, or an output of a context with known input shapes."""
    import torch

    kind = getattr(torch, _TYPES[engine.get_tensor_dtype(name).name])
    return torch.zeros(tuple(context.get_tensor_shape(name)), dtype=kind, device=place)


class _GraphedText:
    """A CUDA graph for one text of a fixed length, with fixed buffers."""

    def __init__(self, engine: Any, context: Any, length: int, stream: SideStream) -> None:  # noqa: ANN401
        self._buffers = _Buffers(engine, context, (1, length), stream)
        self._graph = stream.capture(self._buffers.execute)

    def run(self, output: str, ids: Ids, mask: Ids) -> torch.Tensor:
        """Return one output for a text that is not longer than the buffers, as a new tensor."""
        self._buffers.fill(ids, mask)
        self._graph.replay()
        return self._buffers.outputs[output].float().clone()


def _profile_for(profiles: Sequence[Any], shape: tuple[int, ...]) -> int:
    """Return the number of the first profile that includes a shape."""
    for number, profile in enumerate(profiles):
        if profile.accepts(shape):
            return number
    raise BackendUnavailable(
        "the TensorRT engine was not built for this shape",
        expected=[profile.largest for profile in profiles],
        actual=shape,
    )


def fitting_plan(plans: Sequence[PlanRecord], model_sha256: str) -> PlanRecord | None:
    """Return the plan of a graph for this GPU and the installed library, None if there is none."""
    target = get_cuda_target() if plans and has_cuda() else None
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
