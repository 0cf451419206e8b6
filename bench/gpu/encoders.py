"""Measures encoders on a device: runtimes of Quarry beside transformers, with the shapes of two common encoders.

Weights are random, which does not change times. Passages have 128 tokens and come in batches of 128; a query has
16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import torch

from bench.gpu.device import time_matrix_product
from bench.gpu.harness import guarded, median_ms
from bench.gpu.shapes import DRY_SHAPE, EncoderShape, write_checkpoint
from bench.gpu.sizes import Size
from bench.gpu.synthetic import make_texts
from bench.harness.records import Record
from quarry.engine.bundled import default_bundle_path
from quarry.engine.encoding.runtimes.batched_encoder import BatchRunner
from quarry.engine.encoding.runtimes.onnx_runner import OnnxRunner
from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
from quarry.engine.encoding.runtimes.torch_runner import TorchRunner
from quarry.engine.encoding.tokenizer import Ids
from quarry.exporters.parity.encoder import LEAST_MEAN_COSINES, check_bundle
from quarry.exporters.to_tensorrt import build_plan
from quarry.formats.bundle.encoder import load_bundle
from quarry.formats.bundle.folder import MODEL_NAME
from quarry.formats.bundle.plan import PlanProfile
from quarry.formats.errors import BackendUnavailable

__all__ = ["measure_encoders"]

_SHAPES = (EncoderShape("MiniLM", 6, 384, 1536, 12), EncoderShape("BERT-base", 12, 768, 3072, 12))
_LENGTHS = {"passages": (128, 128), "query": (1, 16)}  # texts, tokens
_LEAST_COSINE = 0.99  # of token vectors with those of torch
Forward = Callable[[Ids, Ids], torch.Tensor]


def measure_encoders(place: torch.device, size: Size, work: Path) -> Iterator[Record]:
    """Yield a record for each runtime, shape and kind of text, torch first and TensorRT last."""
    peak = time_matrix_product(place, size)["tflop_s"]
    for runtime in _RUNTIMES:
        for shape in (DRY_SHAPE,) if size.is_dry else _SHAPES:
            about: Record = {"what": "encoder", "shape": shape.name, "runtime": runtime}
            measure = partial(_measure, runtime, shape, work / shape.name, place, size, peak)
            yield from guarded(about, measure, (ImportError, BackendUnavailable))
    yield from guarded({"what": "check vectors", "shape": "bundled", "runtime": "torch"}, _check_recorded)


def _check_recorded() -> Iterator[Record]:
    """Yield whether the bundled encoder has the vectors that were recorded when it was exported."""
    record = check_bundle(default_bundle_path(), "torch")
    sound = min(record.token_mean, record.pooled_mean) >= LEAST_MEAN_COSINES["fp16"]
    yield {"cosine": record.pooled_min, "token_cosine": record.token_min, "sound": sound}


def _measure(
    runtime: str, shape: EncoderShape, folder: Path, place: torch.device, size: Size, peak: object
) -> Iterator[Record]:
    """Yield times of one runtime, and whether its vectors agree with torch's."""
    _write_once(folder, shape)
    forward = _RUNTIMES[runtime](folder, place)
    for kind, (n, length) in _LENGTHS.items():
        n = size.count(n)  # noqa: PLW2901
        ids, mask = _make_batch(n, length)
        ms = median_ms(partial(forward, ids, mask), place, size.n_calls)
        rate = shape.count_operations(length) * n * length / ms / 1e9
        about: Record = {"kind": kind, "batch": n, "n_tokens": length, "ms": ms, "tokens_s": n * length / ms * 1e3}
        yield {**about, "tflop_s": rate, "peak_share": rate / float(str(peak))}
    yield from guarded(
        {"what": "check vectors", "kind": "check"}, partial(_compare_with_torch, forward, folder, place)
    )


def _write_once(folder: Path, shape: EncoderShape) -> None:
    """Write the checkpoint of a shape if it is missing."""
    if not (folder / "checkpoint").exists():
        write_checkpoint(folder / "checkpoint", shape)


def _export_once(folder: Path) -> Path:
    """Export the checkpoint in fp16 if the bundle is missing, and return the bundle's folder."""
    from quarry.exporters.export import export

    if not (folder / "bundle").exists():
        export(
            folder / "checkpoint", folder / "bundle", "fp16", texts=make_texts(1, 8), retrieval=False, n_recorded=1
        )
    return folder / "bundle"


def _make_batch(n: int, length: int) -> tuple[Ids, Ids]:
    ids = np.random.default_rng(n).integers(1000, 20_000, (n, length))
    return ids.astype(np.int64), np.ones((n, length), np.int64)


def _open_torch(attention: str, folder: Path, place: torch.device) -> Forward:
    """Open the checkpoint in transformers, in float16 on a CUDA device."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    kind = torch.float16 if place.type == "cuda" else torch.float32
    path = folder / "checkpoint"
    model = AutoModel.from_pretrained(path, dtype=kind, attn_implementation=attention, add_pooling_layer=False)
    model = model.to(place).eval()

    def forward(ids: Ids, mask: Ids) -> torch.Tensor:
        with torch.inference_mode():
            given = {"input_ids": ids, "attention_mask": mask}
            here = {name: torch.from_numpy(values).to(place) for name, values in given.items()}
            vectors: torch.Tensor = model(**here).last_hidden_state
            return vectors

    return forward


def _open_onnx(folder: Path, place: torch.device) -> BatchRunner:
    if place.type == "cuda" and "CUDAExecutionProvider" not in import_onnxruntime().get_available_providers():
        raise BackendUnavailable("this ONNX Runtime has no CUDA")  # before the export, which takes long
    return OnnxRunner(load_bundle(_export_once(folder)), MODEL_NAME, place.type)


def _open_tensorrt(folder: Path, place: torch.device) -> BatchRunner:
    del place
    import_module("tensorrt")
    from quarry.engine.encoding.runtimes.tensorrt_runner import TensorRtRunner

    profiles = [PlanProfile((1, 1), shape, (shape[0], 2 * shape[1])) for shape in sorted(_LENGTHS.values())]
    plan = build_plan(_export_once(folder), library="tensorrt", profiles=profiles)
    return TensorRtRunner(load_bundle(_export_once(folder)), MODEL_NAME, plan)


def _open_torch_runner(kind: torch.dtype, folder: Path, place: torch.device) -> BatchRunner:
    usual = torch.float32 if place.type == "cpu" else kind
    return TorchRunner(load_bundle(_export_once(folder)), MODEL_NAME, place.type, usual)


_RUNNERS: dict[str, Callable[[Path, torch.device], BatchRunner]] = {
    "torch": partial(_open_torch_runner, torch.float16),
    "torch bfloat16": partial(_open_torch_runner, torch.bfloat16),
    "onnx": _open_onnx,
    "tensorrt": _open_tensorrt,
}


def _open_forward(runtime: str, folder: Path, place: torch.device) -> Forward:
    return partial(_RUNNERS[runtime](folder, place).run, "token_vectors")


_RUNTIMES: dict[str, Callable[[Path, torch.device], Forward]] = {
    "eager": partial(_open_torch, "eager"),
    "sdpa": partial(_open_torch, "sdpa"),
    **{runtime: partial(_open_forward, runtime) for runtime in _RUNNERS},
}


def _compare_with_torch(forward: Forward, folder: Path, place: torch.device) -> Iterator[Record]:
    """Yield the smallest cosine of a token vector with torch's, for a single text and a batch."""
    reference = _open_torch("eager", folder, place)
    for n, length in ((1, 13), (5, 40)):
        ids, mask = _make_batch(n, length)
        vectors, expected = (each(ids, mask).double().cpu() for each in (forward, reference))
        cosine = float(torch.nn.functional.cosine_similarity(vectors, expected, dim=2).min())
        yield {"batch": n, "n_tokens": length, "cosine": cosine, "sound": cosine >= _LEAST_COSINE}
