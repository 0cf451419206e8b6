"""Exports in a tenth of a second: a tiny checkpoint is compared on two texts, and by no ranking."""

from __future__ import annotations

from functools import partial

from quarry.exporters.export import export

__all__ = ["quick_export"]

quick_export = partial(export, texts=("the cat sat on a mat.", "a dog"), retrieval=False, n_recorded=1)
