"""Encoders that take many texts in one call, on torch's CPU device."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from quarry.engine.encoding.runtimes.batched_encoder import BatchedEncoder
from quarry.engine.encoding.runtimes.onnx_runner import OnnxRunner
from quarry.formats.bundle.encoder import load_bundle


def batched_encoder(bundle: Path) -> BatchedEncoder:
    """Open a bundle for texts in batches."""
    return BatchedEncoder(load_bundle(bundle), partial(OnnxRunner, device="cpu"))
