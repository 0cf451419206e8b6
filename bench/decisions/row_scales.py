"""What one quantization scale per token in feed-forward layers changes: error and time of an int8 encoder.

``python -m bench row_scales CHECKPOINT`` quantizes one checkpoint twice: with one scale per tensor everywhere,
and with one per token in feed-forward layers (`quarry.exporters.precision.row_scales`). It compares the vectors of
both with those of fp32, and times both in turn, with texts as long as queries and as long as passages.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import onnx

from bench.harness.latency import time_in_turn
from bench.harness.records import add_out, append_result
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.exporters.export import export
from quarry.exporters.graph.head import HEAD
from quarry.exporters.parity.encoder import measure_parity
from quarry.exporters.parity.sample_texts import sample_texts
from quarry.exporters.precision.int8 import quantize_int8, quantize_tensors
from quarry.formats.bundle.encoder import EncoderBundle, write_bundle
from quarry.formats.bundle.folder import MODEL_NAME

__all__ = ["add_arguments", "run"]

_QUANTIZERS: dict[str, Callable[[onnx.ModelProto, str], onnx.ModelProto]] = {
    "tensor": quantize_tensors,
    "token": quantize_int8,
}
_N_WORDS = {"query": 12, "passage": 110}  # about 20 and 160 tokens
_N_TIMED = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench row_scales``."""
    parser.add_argument("checkpoint", type=Path, help="a folder that `quarry export` can read")
    add_out(parser, "row_scales")


def run(args: argparse.Namespace) -> int:
    """Quantize, compare and time, print a line for each kind of scales and append the raw results."""
    texts = sample_texts()
    with tempfile.TemporaryDirectory() as folder:
        exact = export(args.checkpoint, Path(folder) / "fp32", "fp32", retrieval=False)
        encoders = {name: _quantize(exact, name, Path(folder) / name) for name in _QUANTIZERS}
        times = _times(encoders, texts)
        for name, encoder in encoders.items():
            parity, _ = measure_parity(open_encoder(exact.path), encoder, texts)
            record = {"scales": name, "encoder": encoder.name, **asdict(parity), **times[name]}
            print(*(f"{key}={value:.4g}" if isinstance(value, float) else value for key, value in record.items()))
            append_result(args.out, {"measurement": "row_scales", **record})
    return 0


def _quantize(exact: EncoderBundle, name: str, out: Path) -> Encoder:
    model = _QUANTIZERS[name](onnx.load(exact.path / MODEL_NAME), HEAD)
    files: dict[str, Path | bytes] = {each: exact.path / each for each in exact.files}
    settings = replace(exact.settings, precision="int8")
    return open_encoder(write_bundle(out, settings, files | {MODEL_NAME: model.SerializeToString()}).path)


def _times(encoders: dict[str, Encoder], texts: list[str]) -> dict[str, dict[str, float]]:
    """Median milliseconds of processor time a text, for each length of texts."""
    found: dict[str, dict[str, float]] = {name: {} for name in encoders}
    words = " ".join(texts).split()
    words *= -(-_N_TIMED * max(_N_WORDS.values()) // len(words))
    calls = {name: lambda text, encoder=encoder: list(encoder.windows(text)) for name, encoder in encoders.items()}
    for length, n_words in _N_WORDS.items():
        cut = [" ".join(words[first : first + n_words]) for first in range(0, n_words * _N_TIMED, n_words)]
        for name, timing in time_in_turn(calls, cut).items():
            found[name][f"{length}_p50_cpu_ms"] = statistics.median(timing.cpu_ms.tolist())
    return found
