"""Evaluates a condition on one document after another, where columns and postings do not say whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from quarry.engine.analysis.phrases import open_phrase
from quarry.engine.filtering.filter import (
    AllOf,
    AnyOf,
    Between,
    Comparison,
    Condition,
    Existence,
    HasId,
    HasMember,
    HasPhrase,
    ListSize,
    Negation,
    get_type_name,
)
from quarry.formats.metadata.values import Kind, Scalar, iterate_lists, iterate_values

__all__ = ["DocumentValues", "Kinds", "make_test"]

Kinds = dict[str, frozenset[Kind]]
"""The kinds of values at each path."""


class DocumentValues:
    """The texts of a document, and its values by path: its metadata, and its id, title and text if not empty."""

    def __init__(self, doc_id: str, title: str, metadata: Mapping[str, object], text: str) -> None:
        self.doc_id = doc_id
        self.texts = (text, title)
        self._metadata = metadata
        own = {"id": doc_id, "title": title, "text": text}
        self._values = {path: [Scalar(Kind.TEXT, each)] for path, each in own.items() if each}
        for path, value in iterate_values(metadata) if metadata else ():
            self._values.setdefault(path, []).append(value)

    def at(self, path: str) -> Sequence[Scalar]:
        """Return the values at a path."""
        return self._values.get(path, ())

    def texts_with(self, paths: Sequence[str]) -> Iterator[str]:
        """Return the text and the title, and each text at some paths."""
        yield from self.texts
        for path in paths:
            yield from (each.payload for each in self.at(path) if isinstance(each.payload, str))

    def lists_at(self, path: str) -> Iterator[Sequence[object]]:
        """Return the lists at a path, not those within them."""
        return iterate_lists(self._metadata, path)

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
    if isinstance(condition, ListSize):
        path, n = condition.path, condition.n_members
        return lambda document: any(len(each) == n for each in document.lists_at(path))
    if isinstance(condition, HasMember):
        return _make_member_test(condition.path, make_test(condition.part))
    return _make_leaf_test(condition)


def _make_leaf_test(
    condition: Comparison | Between | Existence | HasId | HasPhrase,
) -> Callable[[DocumentValues], bool]:
    if isinstance(condition, HasId):
        return lambda document: document.doc_id == condition.doc_id
    if isinstance(condition, HasPhrase):
        phrase = open_phrase(condition.text, condition.language, condition.rules)
        if not phrase.alternatives:
            return lambda _: True
        return lambda document: any(map(phrase.occurs_in, document.texts_with(condition.searchable)))
    if isinstance(condition, Comparison) and condition.operator == "eq":
        wanted = frozenset(_keys(condition.operands))
        return lambda document: not wanted.isdisjoint(_keys(document.at(condition.path)))
    return lambda document: condition.holds(document.at(condition.path))


def _make_member_test(path: str, test: Callable[[DocumentValues], bool]) -> Callable[[DocumentValues], bool]:
    def has_member(document: DocumentValues) -> bool:
        members = (member for each in document.lists_at(path) for member in each)
        return any(test(DocumentValues("", "", {path: member}, "")) for member in members)

    return has_member


def _keys(values: Sequence[Scalar]) -> Iterator[tuple[object, object]]:
    """Return values as they are compared for equality: numbers of both kinds with one another."""
    for value in values:
        is_number = get_type_name(value.kind) == "number"
        yield "number" if is_number else value.kind, value.payload
