"""Combinations of parameters: pairs of values by default, all of them at full figures (`make torture`)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product

from support.faults.torture import SHARE


def pairs_of(*axes: Iterable[object]) -> list[tuple[object, ...]]:
    """Return combinations of one value of each axis in which any two values of different axes meet at least once.

    At full figures this is the whole product.
    """
    lists = [list(axis) for axis in axes]
    if SHARE >= 1:
        return list(product(*lists))
    everything = list(product(*(range(len(values)) for values in lists)))
    missing = {pair for each in everything for pair in _pairs(each)}
    chosen = []
    while missing:
        best = max(everything, key=lambda each: len(missing & _pairs(each)))
        chosen.append(best)
        missing -= _pairs(best)
    return [tuple(values[place] for values, place in zip(lists, each, strict=True)) for each in sorted(chosen)]


def _pairs(places: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    return set(combinations(enumerate(places), 2))
