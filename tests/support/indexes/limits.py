"""Small memory limits of writers, so that few documents are enough to use temporary files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quarry.formats.container.directory import Directory


def limit_memory(patch: pytest.MonkeyPatch, **limits: int) -> None:
    """Change some of the default `WriterLimits` of directories."""
    patch.setattr(Directory, "limits", replace(Directory.limits, **limits))
