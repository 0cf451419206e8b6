"""JSON Schemas of classes, made of their annotations and of the descriptions in their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from quarry.engine.json_mapping import JsonMapping, JsonRecord

__all__ = ["schema_of", "schemas_of_fields"]

_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_REFERENCE = re.compile(r",? \(?see `quarry[^`]*`\)?|\. See `quarry[^`]*`(?=\.)", re.IGNORECASE)


def schema_of(kind: Any) -> dict[str, Any]:  # noqa: ANN401  # a type, or what stands for one in an annotation
    """Return the schema of a type: a class, or another annotation."""
    if kind in _NAMES:
        return {"type": _NAMES[kind]}
    if get_origin(kind) is not None or isinstance(kind, UnionType):
        return _schema_of_form(get_origin(kind), get_args(kind))
    if issubclass(kind, Enum):
        return {"type": "string", "enum": [each.value for each in kind]}
    if not issubclass(kind, JsonMapping | JsonRecord):
        return {"type": "string"}  # as text
    properties = schemas_of_fields(kind)
    return {"type": "object", "required": list(properties), "properties": properties}


def schemas_of_fields(kind: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401  # dataclasses have no common type
    """Return the schemas of the values of a dataclass or of a `JsonMapping` by their names, with descriptions.

    Those of a dataclass have its defaults, too.
    """
    defaults: dict[str, object] = {}
    if is_dataclass(kind):
        hints, names = get_type_hints(kind), [each.name for each in fields(kind)]
        defaults = {each.name: each.default for each in fields(kind) if each.default is not MISSING}
    else:  # its values are made when they are read
        hints, names = get_type_hints(kind.__init__) | get_type_hints(kind), list(kind.__new__(kind))
    descriptions = dict(_ATTRIBUTE.findall(inspect.getdoc(kind) or ""))
    schemas = {}
    for name in names:
        attribute = inspect.getattr_static(kind, name, None)
        hint, description = hints.get(name), descriptions.get(name)
        if isinstance(attribute, property):
            hint, description = get_type_hints(attribute.fget)["return"], inspect.getdoc(attribute)
        schemas[name] = schema_of(hint)
        if name in defaults:
            schemas[name]["default"] = defaults[name]
        if description:
            schemas[name]["description"] = _for_clients(description)
    return schemas


def _for_clients(description: str) -> str:
    """Return a description without what clients in other languages do not know."""
    words = _REFERENCE.sub("", " ".join(description.split())).rstrip(".;")
    return re.sub(r"\bNone\b", "null", re.sub(r"``(\w+)=True``", r"`\1`", words))


def _schema_of_form(origin: Any, inner: tuple[Any, ...]) -> dict[str, Any]:  # noqa: ANN401
    """Return the schema of a form with parameters, such as a tuple."""
    if origin is Literal:
        return {"type": "string", "enum": list(inner)}
    if origin in (Union, UnionType):
        return _schema_of_union([schema_of(each) for each in inner])
    if issubclass(origin, Mapping):
        return {"type": "object"} | ({} if inner[1] is object else {"additionalProperties": schema_of(inner[1])})
    array: dict[str, Any] = {"type": "array", "items": schema_of(inner[0])}
    is_open = origin is not tuple or inner[-1] is ...
    return array if is_open else array | {"minItems": len(inner), "maxItems": len(inner)}


def _schema_of_union(members: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of one of these types, of which at most one is more than a name."""
    joined: dict[str, Any] = {}
    for each in members:
        joined |= each
    return joined | {"type": [each["type"] for each in members]}
