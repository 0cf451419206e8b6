"""Loads the graph of a bundle into ONNX Runtime and runs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

import numpy as np

from quarry.engine.process.exit_gate import finishes_before_exit
from quarry.engine.process.libraries import loading
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.bundle.onnx_outline import MAPPED_BYTES, outline
from quarry.formats.errors import BackendUnavailable, CorruptFile

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, SessionOptions

__all__ = [
    "INPUT_NAMES",
    "check_numbers",
    "import_onnxruntime",
    "open_cuda_session",
    "open_graph",
    "open_session",
    "run_session",
]

INPUT_NAMES = frozenset({"input_ids", "attention_mask", "token_type_ids"})
"""The inputs that a graph may have, (batch, length) int64 each."""

# ONNX Runtime's fused kernel (1.31) takes six times as long as the addition and normalization it replaces, a
# quarter of the whole run.
_SLOW_FUSIONS = ["SkipLayerNormFusion"]


def import_onnxruntime() -> ModuleType:
    """Import ONNX Runtime with its telemetry off, as its Privacy.md describes.

    Otherwise the import starts a thread that sends usage events over the network, and a forked child that exits
    normally hangs or aborts waiting for that thread. ``ORT_DISABLE_TELEMETRY=0`` enables it.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    with loading("onnxruntime"):
        import onnxruntime

    return cast("ModuleType", onnxruntime)


def open_session(path: Path, lean: bool = False, mapped_bytes: int = MAPPED_BYTES) -> InferenceSession:
    """Load a graph for the CPU. A run uses the calling thread only; any number of threads may run it at once.

    Weights are mapped, whether they lie in the graph's file or beside it; the files must not change while the
    session exists.

    Args:
        path: the graph, verified by `quarry.formats.bundle.folder.BundleFolder.verify_graph`.
        lean: whether weights of matrix products are used in place. Otherwise they are copied into a second layout,
            which is faster and takes as much private memory again.
        mapped_bytes: size of the smallest tensor that is mapped.

    Raises:
        CorruptFile: the file is not a graph that can be run.
        BackendUnavailable: there is no /proc on Linux.
    """
    options = _options()
    # Memory patterns of past shapes save nothing measurable and take 15 MB: nearly every text has another length.
    options.enable_mem_pattern = False
    if lean:
        options.add_session_config_entry("session.disable_prepacking", "1")
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
    return _loaded(path, outline(path, mapped_bytes), options, ["CPUExecutionProvider"], _SLOW_FUSIONS)


def open_graph(graph: bytes) -> InferenceSession:
    """Load a graph made by the caller for the CPU. A run uses the calling thread only, as in `open_session`."""
    options = _options()
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = False  # it would keep the memory of the largest run
    return import_onnxruntime().InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def open_cuda_session(path: Path, stream: int) -> InferenceSession:
    """Load a graph for the first CUDA device. Not yet run on one.

    Args:
        path: the graph.
        stream: CUDA handle of the stream that runs are queued on.

    Raises:
        BackendUnavailable: ONNX Runtime was built without CUDA, or CUDA's libraries or a device are missing.
        CorruptFile: the file is not a graph that can be run.
    """
    hint = "a CUDA device; pip uninstall onnxruntime, then pip install onnxruntime-gpu"
    if "CUDAExecutionProvider" not in import_onnxruntime().get_available_providers():
        raise BackendUnavailable("this ONNX Runtime has no CUDA", expected=hint)
    options = _options()
    cuda = ("CUDAExecutionProvider", {"device_id": "0", "use_tf32": "0", "user_compute_stream": str(stream)})
    session = _loaded(path, str(path), options, [cuda, "CPUExecutionProvider"], [])
    if "CUDAExecutionProvider" not in session.get_providers():  # it falls back without an error
        raise BackendUnavailable("CUDA cannot be used", expected=hint, actual=session.get_providers())
    return session


@finishes_before_exit
def run_session(
    session: InferenceSession, path: Path, output: str, inputs: Mapping[str, Int64Array]
) -> Float32Array:
    """Run a graph for one of its outputs, and check that the values are finite.

    Args:
        session: session of the graph.
        path: file of the graph, for the error.
        output: name of the output.
        inputs: (batch, length) int64 each, by name.

    Raises:
        CorruptFile: the graph cannot be run with these inputs, or the output is not finite float32.
    """
    try:
        values: Float32Array = session.run([output], dict(inputs))[0]
    except Exception as error:  # the library's errors have no public common class
        raise CorruptFile(f"the graph cannot be run: {error}", path=path) from error
    check_numbers(values, output, path)
    return values


def check_numbers(values: Float32Array, output: str, path: Path) -> None:
    """Raise unless an output is finite float32.

    Raises:
        CorruptFile: it is not.
    """
    if values.dtype != np.float32 or not np.isfinite(values).all():
        raise CorruptFile(
            f"the output {output} of the graph cannot be used",
            path=path,
            expected="finite float32",
            actual="numbers that are not finite" if values.dtype == np.float32 else values.dtype,
        )


def _options() -> SessionOptions:
    options = import_onnxruntime().SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = import_onnxruntime().ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4  # errors are raised, with the same text
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Otherwise bytes that are ONNX with a certain text near their beginning are read in another format: as a graph
    # that was not looked through (`quarry.formats.bundle.onnx_check`).
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return options


def _loaded(
    path: Path,
    graph: str | bytes,
    options: SessionOptions,
    providers: list[str | tuple[str, dict[str, str]]],
    without: list[str],
) -> InferenceSession:
    """Return a session of a graph, given by its path or its contents."""
    try:
        return import_onnxruntime().InferenceSession(
            graph, options, providers=providers, disabled_optimizers=without
        )
    except Exception as error:  # the library's errors have no public common class
        if sys.platform == "linux" and not os.path.exists("/proc/self/fd"):  # noqa: PTH110
            hint = "/proc to be mounted: ONNX Runtime maps weights by it"
            raise BackendUnavailable(
                "the graph cannot be loaded", path=path, expected=hint, actual=error
            ) from error
        raise CorruptFile(f"the graph cannot be loaded: {error}", path=path) from error
