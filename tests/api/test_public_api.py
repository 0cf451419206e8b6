"""The public names of ``quarry.engine`` are exactly those that are documented."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

from quarry import engine
from quarry.formats import errors

DOCUMENTED = {
    "AddIndexesReport",
    "AsyncEngine",
    "BuildReport",
    "Cls",
    "Coverage",
    "Document",
    "Encoder",
    "Engine",
    "FacetValue",
    "Facets",
    "FilePlace",
    "SnapshotReport",
    "SyncReport",
    "FirstM",
    "FunctionEncoder",
    "Hit",
    "Hits",
    "KMeans",
    "Linear",
    "Log1p",
    "Pin",
    "Recency",
    "Saturation",
    "Match",
    "MatchedWord",
    "Mean",
    "MergeLimits",
    "Passage",
    "Passages",
    "Pieces",
    "Pooled",
    "Representation",
    "Reranker",
    "SearchOptions",
    "Thresholds",
    "TokenVectors",
    "UnknownFieldWarning",
    "VerifyReport",
    "build",
    "open_encoder",
}


def test_the_names_are_the_documented_ones() -> None:
    assert sorted(engine.__all__) == sorted(DOCUMENTED | set(errors.__all__))
    assert len(set(engine.__all__)) == len(engine.__all__)


def test_every_name_is_there_and_documented() -> None:
    for name in engine.__all__:
        assert inspect.getdoc(getattr(engine, name)), name


def test_every_name_is_listed_before_it_is_used(repository: Path) -> None:
    """``dir`` lists every public name, so that interactive shells complete it."""
    listed = subprocess.run(
        [sys.executable, "-c", "from quarry import engine; print(*set(engine.__all__) - set(dir(engine)))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=repository,
    )
    assert listed.stdout.split() == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(engine, "Enigne")


def test_every_error_is_a_quarry_error() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(engine, name), engine.QuarryError)


def test_every_public_method_is_documented() -> None:
    for cls in (
        engine.Engine,
        engine.AsyncEngine,
        engine.Hits,
        engine.Facets,
        engine.Hit,
        engine.Match,
        engine.Document,
        engine.BuildReport,
    ):
        for name, member in vars(cls).items():
            if not name.startswith("_") and (callable(member) or isinstance(member, property | classmethod)):
                assert inspect.getdoc(getattr(cls, name)), f"{cls.__name__}.{name}"
