"""Small memory limits for everything that is written, so that few documents reach the temporary files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quarry.formats.container.directory import Directory


def limit_memory(patch: pytest.MonkeyPatch, **limits: int) -> None:
    """Change some of the `WriterLimits` of all directories that were opened without any."""
    patch.setattr(Directory, "limits", replace(Directory.limits, **limits))
