"""Evaluates a condition on one document after another, where columns and postings do not say whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from quarry.engine.analysis.phrases import open_phrase
from quarry.engine.filtering.filter import (
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    HasId,
    HasPhrase,
    Negation,
    get_type_name,
)
from quarry.formats.metadata.values import Kind, Scalar, iterate_values

__all__ = ["DocumentValues", "Kinds", "make_test"]

Kinds = dict[str, frozenset[Kind]]
"""The kinds of values at each path."""


class DocumentValues:
    """The texts of a document, and its values by path: its metadata, its id, and its title if it has one."""

    def __init__(self, doc_id: str, title: str, metadata: Mapping[str, object], text: str = "") -> None:
        self.doc_id = doc_id
        self.texts = (text, title)
        self._values: dict[str, list[Scalar]] = {"id": [Scalar(Kind.TEXT, doc_id)]}
        if title:
            self._values["title"] = [Scalar(Kind.TEXT, title)]
        for path, value in iterate_values(metadata) if metadata else ():
            self._values.setdefault(path, []).append(value)

    def at(self, path: str) -> Sequence[Scalar]:
        """Return the values at a path."""
        return self._values.get(path, ())

    def add_kinds(self, kinds: Kinds) -> None:
        """Add the kinds of its values to those of each path."""
        for path, present in kinds.items():
            if path in self._values:
                kinds[path] = present | {value.kind for value in self._values[path]}


def make_test(condition: Condition) -> Callable[[DocumentValues], bool]:
    """Return a function that returns whether a document satisfies the condition; for one thread at a time."""
    if isinstance(condition, Negation):
        test = make_test(condition.part)
        return lambda document: not test(document)
    if isinstance(condition, AllOf | AnyOf):
        tests, join = [make_test(part) for part in condition.parts], all if isinstance(condition, AllOf) else any
        return lambda document: join(test(document) for test in tests)
    if isinstance(condition, HasId):
        return lambda document: document.doc_id == condition.doc_id
    if isinstance(condition, HasPhrase):
        phrase = open_phrase(condition.text, condition.language, condition.rules)
        return lambda document: not phrase.alternatives or any(map(phrase.occurs_in, document.texts))
    if isinstance(condition, Comparison) and condition.operator == "eq":
        wanted = frozenset(_keys(condition.operands))
        return lambda document: not wanted.isdisjoint(_keys(document.at(condition.path)))
    return lambda document: condition.holds(document.at(condition.path))


def _keys(values: Sequence[Scalar]) -> Iterator[tuple[object, object]]:
    """Return values as they are compared for equality: numbers of both kinds with one another."""
    for value in values:
        is_number = get_type_name(value.kind) == "number"
        yield "number" if is_number else value.kind, value.payload
