"""Checkpoints to export."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.models.tiny_checkpoint import (
    write_checkpoint,
    write_reranker_checkpoint,
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "checkpoint")


@pytest.fixture
def cross_encoder(tmp_path: Path) -> Path:
    return write_reranker_checkpoint(tmp_path / "cross")
