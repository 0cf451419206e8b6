"""Evaluates a condition on one document in memory, as for documents that are not in a segment yet."""

from __future__ import annotations

from collections.abc import Mapping

from quarry.engine.filtering.evaluation import Kinds
from quarry.engine.filtering.filter import (
    AllOf,
    AnyOf,
    Condition,
    HasId,
    HasPhrase,
    Negation,
)
from quarry.formats.metadata.values import Scalar, iterate_values, to_scalar

__all__ = ["DocumentValues"]


class DocumentValues:
    """The values of a document by path: those of its metadata, its id, and its title unless that is empty."""

    def __init__(self, doc_id: str, title: str, metadata: Mapping[str, object]) -> None:
        self._values: dict[str, list[Scalar]] = {"id": [to_scalar(doc_id)]}
        if title:
            self._values["title"] = [to_scalar(title)]
        for path, value in iterate_values(metadata):
            self._values.setdefault(path, []).append(value)

    def satisfy(self, condition: Condition) -> bool:
        """Return whether the document satisfies the condition."""
        if isinstance(condition, Negation):
            return not self.satisfy(condition.part)
        if isinstance(condition, AllOf):
            return all(map(self.satisfy, condition.parts))
        if isinstance(condition, AnyOf):
            return any(map(self.satisfy, condition.parts))
        if isinstance(condition, HasId):
            return self._values["id"][0].payload == condition.doc_id
        if isinstance(condition, HasPhrase):
            raise TypeError("phrases are conditions of searches alone")
        return condition.holds(self._values.get(condition.path, ()))

    def add_kinds(self, kinds: Kinds) -> None:
        """Add the kinds of its values to those of each path."""
        for path, found in kinds.items():
            if path in self._values:
                kinds[path] = found | {value.kind for value in self._values[path]}
