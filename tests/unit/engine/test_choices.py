"""The names in signatures are the names that are accepted."""

from __future__ import annotations

from typing import get_args, get_type_hints

from quarry.engine import Engine, build
from quarry.engine.backends.registry import BACKENDS
from quarry.engine.choices import BackendName, CentroidType, Fusion, Mode, RepresentationName
from quarry.engine.options import BuildKeywords, SearchKeywords
from quarry.engine.representation.registry import representation_from
from quarry.formats.vectors.centroids import CENTROID_TYPES


def test_all_names_are_accepted() -> None:
    assert set(get_args(BackendName)) == {"auto", *BACKENDS}
    assert set(get_args(CentroidType)) == set(CENTROID_TYPES)
    assert [representation_from(name).name for name in get_args(RepresentationName)] == list(
        get_args(RepresentationName)
    )


def test_signatures_have_them() -> None:
    assert get_type_hints(SearchKeywords)["mode"] == Mode
    assert get_type_hints(SearchKeywords)["fusion"] == Fusion
    assert get_type_hints(BuildKeywords)["centroids"] == CentroidType
    assert get_type_hints(Engine.open)["backend"] == BackendName
    assert RepresentationName in get_args(get_type_hints(build)["representation"]) or set(
        get_args(RepresentationName)
    ) <= {name for each in get_args(get_type_hints(build)["representation"]) for name in get_args(each)}
