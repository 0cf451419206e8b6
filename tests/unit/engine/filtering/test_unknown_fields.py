"""Names suggested in warnings of unknown fields."""

from __future__ import annotations

import pytest

from quarry.engine.filtering.unknown_fields import find_nearest_names

NAMES = ["author.name", "author.born", "lang", "year", "tags", "id", "title"]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("autor.name", "author.name"),
        ("name", "author.name"),
        ("Lang", "lang"),
        ("language", "lang"),
        ("metadata.year", "year"),
        ("tag", "tags"),
        ("Titel", "title"),
        ("_id", "id"),
    ],
)
def test_the_nearest_name(field, expected):
    assert find_nearest_names(field, NAMES, lambda _: True)[0] == expected


def test_three_names_at_most_whatever_their_order():
    found = find_nearest_names("autor.name", NAMES, lambda _: True)
    assert len(found) == 3
    assert find_nearest_names("autor.name", NAMES[::-1], lambda _: True) == found
    assert find_nearest_names("autor.name", [], lambda _: True) == []


def test_names_that_are_not_known_take_no_place():
    names = [f"fields{number}" for number in range(100)]
    assert find_nearest_names("field", [*names, "other"], lambda name: name == "other") == ["other"]


def test_names_made_to_take_long():
    """Suggestions for very long names are found in time; full edit distances would take minutes."""
    names = [f"{'x' * 200}{number}" for number in range(4096)]
    assert len(find_nearest_names("x" * 5000, names, lambda _: True)) == 3
