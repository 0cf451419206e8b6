"""The names in signatures are the names that are accepted."""

from __future__ import annotations

from typing import get_args, get_type_hints

from quarry.engine.choices import CentroidType, Fusion, Mode
from quarry.engine.options import BuildKeywords, SearchKeywords
from quarry.formats.vectors.centroids import CENTROID_TYPES


def test_all_names_are_accepted() -> None:
    assert set(get_args(CentroidType)) == set(CENTROID_TYPES)


def test_signatures_have_them() -> None:
    assert get_type_hints(SearchKeywords)["mode"] == Mode
    assert get_type_hints(SearchKeywords)["fusion"] == Fusion
    assert get_type_hints(BuildKeywords)["centroids"] == CentroidType
