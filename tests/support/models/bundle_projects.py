"""The distributions in the folder `bundles`, as if they were installed."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from quarry.engine.bundled import is_installed
from quarry.formats.bundle.folder import add_bundle_file
from quarry.formats.bundle.relevance import BETWEEN_LANGUAGES, RELEVANCE_NAME, read_relevance, write_relevance

BUNDLES = Path(__file__).resolve().parents[3] / "bundles"


@contextmanager
def all_installed(site: Path) -> Iterator[None]:
    """Let them be found in this process and those that it starts; their metadata is written into a folder."""
    places = [str(site)]
    for path in sorted(BUNDLES.glob("*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        folder = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        folder.mkdir()
        groups = (
            "\n".join([f"[{group}]", *(f"{name} = {place}" for name, place in entries.items())])
            for group, entries in project["entry-points"].items()
        )
        (folder / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")
        (folder / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n", "utf-8")
        places.append(str(path.parent / "src"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*places, *sys.path])
        patch.setenv("PYTHONPATH", os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])]))
        is_installed.cache_clear()
        yield
    is_installed.cache_clear()


@contextmanager
def none_installed() -> Iterator[None]:
    """Let no part of another package be found in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.metadata, "entry_points", lambda group: importlib.metadata.EntryPoints())
        is_installed.cache_clear()
        yield
    is_installed.cache_clear()


def with_one_calibration(bundle: Path, out: Path) -> Path:
    """Copy a bundle without the calibration of relevance between languages; return its folder."""
    shutil.copytree(bundle, out)
    models = read_relevance(bundle / RELEVANCE_NAME)
    kept = {name: model for name, model in models.models.items() if name != BETWEEN_LANGUAGES}
    add_bundle_file(out, RELEVANCE_NAME, write_relevance(replace(models, models=kept)))
    return out
