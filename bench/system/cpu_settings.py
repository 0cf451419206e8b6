"""Compares settings of ONNX Runtime on the CPU for the bundled encoder: time, and whether vectors change.

One text at a time on one thread, as the engine runs it, each text with every setting before the next one. A
setting that this processor or version does not know has no effect. Matrix products in bfloat16 are tried by a
graph of one product, because the bundled graph has int8 products; it needs the package ``onnx``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bench.data.collections import add_collection, load_collection
from bench.harness.latency import time_in_turn
from bench.harness.records import Record, add_out, append_result
from quarry.engine.bundled import default_bundle_path
from quarry.engine.encoding.runtimes.onnx_session import INPUT_NAMES, import_onnxruntime
from quarry.engine.encoding.tokenizer import TextTokenizer
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.bundle.folder import MODEL_NAME

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

__all__ = ["add_arguments", "run"]

Ids = npt.NDArray[np.int64]

_DEFAULT = "as the engine runs it"
_SETTINGS: dict[str, dict[str, str]] = {
    _DEFAULT: {},
    "bfloat16 products of float32 (ARM)": {"mlas.enable_gemm_fastmath_arm64_bfloat16": "1"},
    "denormals as zero": {"session.set_denormal_as_zero": "1"},
    "signed int8 products": {"session.x64quantprecision": "1"},
    "approximate GELU": {"optimization.enable_gelu_approximation": "1"},
    "all fusions": {"fusions": "all"},
    "no memory arena": {"arena": "off"},
    "weights not copied": {"session.disable_prepacking": "1"},
}
_FLAGS = ("avx2", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimddp", "i8mm", "bf16")
_WINDOW = 254  # tokens without special ones
_WARM_UP = 5  # texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_collection(parser, queries=1)
    parser.add_argument("--texts", type=int, default=300, help="number of texts")
    add_out(parser, "cpu_settings")


def run(arguments: argparse.Namespace) -> int:
    """Measure every setting, print a line for each and append the raw results."""
    rows = _token_rows(list(load_collection(arguments).documents.values())[: arguments.texts])
    encoders = {name: _encoder(settings) for name, settings in _SETTINGS.items()}
    for encode in encoders.values():
        for row in rows[:_WARM_UP]:
            encode(row)
    timings = time_in_turn(encoders, rows)
    n_tokens = np.array([row.shape[1] for row in rows])
    about: Record = {"n_texts": len(rows), "n_tokens": int(n_tokens.sum()), "cpu_flags": _cpu_flags()}
    default = timings[_DEFAULT]
    for name, timing in timings.items():
        changes = [float(np.abs(a - b).max()) for a, b in zip(timing.results, default.results, strict=True)]
        record: Record = {
            "name": name,
            "settings": _SETTINGS[name],
            "tokens_per_cpu_s": float(n_tokens.sum() / timing.cpu_ms.sum() * 1e3),
            "relative_time": float(np.median(timing.cpu_ms / default.cpu_ms)),
            "largest_change": max(changes),
            **about,
        }
        append_result(arguments.out, record)
        print(
            f"{name:<36}{record['tokens_per_cpu_s']:>8.0f} tokens/s{record['relative_time']:>7.3f} x the time"
            f"   change {record['largest_change']:.1e}"
        )
    found = _try_bfloat16()
    append_result(arguments.out, {"name": "a product in bfloat16", "found": found, **about})
    print(f"a product in bfloat16: {found}")
    return 0


def _token_rows(texts: Sequence[str]) -> list[Ids]:
    """Return (1, n) int64 ids of each text, with special tokens."""
    tokenizer = TextTokenizer(load_bundle(default_bundle_path()).tokenizer_path)
    rows = []
    for text in texts:
        ids = np.array(tokenizer.encode_with_special_tokens(text).ids, np.int64)
        rows.append(np.concatenate([ids[: _WINDOW + 1], ids[-1:]])[np.newaxis])
    return rows


def _encoder(settings: Mapping[str, str]) -> Callable[[Ids], npt.NDArray[np.float32]]:
    runtime = import_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = settings.get("arena") != "off"
    for key, value in settings.items():
        if "." in key:
            options.add_session_config_entry(key, value)
    without = [] if settings.get("fusions") == "all" else ["SkipLayerNormFusion"]
    session = runtime.InferenceSession(
        str(default_bundle_path() / MODEL_NAME),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=without,
    )
    names = [node.name for node in session.get_inputs() if node.name in INPUT_NAMES]
    return partial(_pooled, session, names)


def _pooled(session: InferenceSession, names: Sequence[str], ids: Ids) -> npt.NDArray[np.float32]:
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    pooled: npt.NDArray[np.float32] = session.run(["pooled"], {name: inputs[name] for name in names})[0]
    return pooled


def _try_bfloat16() -> str:
    """Return whether the CPU provider multiplies matrices of bfloat16, or why not."""
    if find_spec("onnx") is None:
        return "not tried: needs the package onnx"
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info(name, TensorProto.BFLOAT16, [8, 8]) for name in "abc"]
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"])], "product", values[:2], values[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    try:
        runtime = import_onnxruntime()
        runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's errors have no public common class
        return f"refused: {str(error).splitlines()[0][:200]}"
    return "there is a kernel"


def _cpu_flags() -> list[str]:
    """Return the instructions for small numbers that the processor has; none on systems other than Linux."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    words = {word for line in lines if line.startswith(("flags", "Features")) for word in line.split()}
    return [flag for flag in _FLAGS if flag in words]
