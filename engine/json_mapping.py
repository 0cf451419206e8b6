"""Results that are mappings of JSON-compatible values too, for web frameworks and other writers of JSON."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from pydantic_core import CoreSchema, SchemaSerializer

__all__ = ["JsonMapping", "JsonRecord", "pydantic_schema", "values_of"]


class _PydanticSerializer:
    """Class attribute ``__pydantic_serializer__``, by which pydantic writes objects in values of any type.

    pydantic-core is imported when pydantic reads the attribute.
    """

    def __get__(self, instance: object, owner: type[JsonMapping]) -> SchemaSerializer:
        return _serializer(owner)


class JsonMapping(Mapping[str, object]):
    """A result with attributes, and a mapping of JSON-compatible values: ``dict(result)`` is ``result.to_dict()``.

    FastAPI converts dataclasses attribute by attribute, private ones included, and calls `dict` for other
    objects; ``default=dict`` makes `json.dumps` and orjson do the same. pydantic accepts a mapping for ``dict``,
    and the class itself as the type of a response. Values are made when they are read.
    """

    __slots__ = ()
    __pydantic_serializer__ = _PydanticSerializer()

    @abstractmethod
    def _values(self) -> Mapping[str, Callable[[], object]]:
        """Return a function for each name, in order, that makes its JSON-compatible value."""

    def to_dict(self) -> dict[str, object]:
        """Return all values by name, for ``json.dumps`` or a web framework."""
        return {name: make() for name, make in self._values().items()}

    def __getitem__(self, name: str) -> object:
        return self._values()[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        return pydantic_schema(cls, cls.to_dict, dict)


class JsonRecord:
    """A dataclass of JSON-compatible values, and of tuples of these and of other records.

    ``dict(record)`` is ``record.to_dict()``, so ``default=dict`` makes `json.dumps` write it as FastAPI and orjson
    do, which know dataclasses. It has no other methods of mappings: ``values`` may be an attribute.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def to_dict(self) -> dict[str, object]:
        """Return all attributes by name as JSON-compatible values."""
        return {name: self[name] for name in self}

    def keys(self) -> list[str]:
        """Return the names of all attributes."""
        return list(self)

    def __getitem__(self, name: str) -> object:
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        return _plain(getattr(self, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dataclass_fields__)


def values_of(result: object, names: Iterable[str]) -> Mapping[str, Callable[[], object]]:
    """Return a function for each of these attributes, that makes its JSON-compatible value."""
    return {name: lambda name=name: _plain(getattr(result, name)) for name in names}  # type: ignore[misc]


def _plain(value: object) -> object:
    """Return results and mappings as dictionaries, tuples as lists, NumPy's numbers as Python's, else text."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str | int | float | list | NoneType):
        return value
    if isinstance(value, tuple):
        return [_plain(member) for member in value]
    if isinstance(value, JsonRecord | JsonMapping):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _plain(member) for name, member in value.items()}
    return str(value)


def pydantic_schema(
    kind: type, write: Callable[[Any], object], written: type[dict[Any, Any] | list[Any]]
) -> CoreSchema:
    """Return the schema of pydantic for a type whose instances are not converted, and are written by a function.

    Args:
        kind: the type.
        write: returns the JSON-compatible value of an instance.
        written: the type of this value.
    """
    from pydantic_core import core_schema

    returned = core_schema.dict_schema() if written is dict else core_schema.list_schema()
    serialization = core_schema.plain_serializer_function_ser_schema(write, return_schema=returned)
    return core_schema.is_instance_schema(kind, serialization=serialization)


@cache
def _serializer(kind: type[JsonMapping]) -> SchemaSerializer:
    from pydantic_core import SchemaSerializer

    return SchemaSerializer(kind.__get_pydantic_core_schema__(kind, None))
