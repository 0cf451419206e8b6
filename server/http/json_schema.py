"""Values of JSON checked against the JSON Schemas that the OpenAPI document publishes.

The same schemas describe requests and check them, so that the description is true. Of JSON Schema, those keywords
are supported that the schemas of this package use.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeAlias, cast

from quarry.server.http.failures import RequestError

__all__ = ["Schema", "check", "parse_json", "parsed"]

Schema: TypeAlias = Mapping[str, Any]

_MAX_DIGITS = 400  # an integer of more cannot be meant
_MAX_EXACT = 1 << 53  # larger floats stand for several integers
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


def parse_json(body: bytes) -> object:
    """Parse the body of a request as RFC 8259 has it: UTF-8, without NaN, with finite numbers and distinct names.

    Raises:
        RequestError: 400, the body is not JSON.
    """
    try:
        return json.loads(
            body.decode(),
            object_pairs_hook=_parse_object,
            parse_constant=_refuse_constant,
            parse_float=_parse_float,
            parse_int=_parse_int,
        )
    except UnicodeDecodeError as error:
        raise _not_json(f"it is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise _not_json("it is nested too deeply") from None
    except ValueError as error:
        raise _not_json(str(error)) from None


def parsed(body: bytes, schema: Schema) -> dict[str, Any]:
    """Parse a body that is an object with a schema; what it leaves out has the defaults of the schema.

    Raises:
        RequestError: 400, the body is not JSON; 422, it does not satisfy the schema.
    """
    value = parse_json(body)
    check(value, schema)
    properties: Mapping[str, Schema] = schema["properties"]
    defaults = {name: each["default"] for name, each in properties.items() if "default" in each}
    return defaults | cast("dict[str, Any]", value)


def check(value: object, schema: Schema, field: str = "") -> None:
    """Check that a value satisfies a schema.

    Args:
        value: the parsed value.
        schema: the schema.
        field: the path of the value in the request, such as ``queries[2]``; empty for the body itself.

    Raises:
        RequestError: 422, with the path of the first value that does not, what was expected and what was found.
    """
    _check_type(value, schema, field)
    if "enum" in schema and value not in schema["enum"]:
        raise _invalid(field, "is unknown", " or ".join(map(str, schema["enum"])), _shown(value))
    if isinstance(value, str):
        _check_string(value, schema, field)
    elif isinstance(value, list):
        _check_array(value, schema, field)
    elif isinstance(value, dict):
        _check_object(value, schema, field)
    elif isinstance(value, int | float):
        _check_range(value, schema, field)


def _check_type(value: object, schema: Schema, field: str) -> None:
    given = schema.get("type", list(_TYPES))
    names: Sequence[str] = [given] if isinstance(given, str) else given
    if not any(
        isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool)) for name in names
    ):
        raise _invalid(field, "is of the wrong type", " or ".join(names), _shown(value))


def _check_string(value: str, schema: Schema, field: str) -> None:
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise _invalid(field, "has a lone surrogate", "text that UTF-8 can encode", _shown(value))
    low, high = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    if not low <= len(value) <= high:
        raise _invalid(field, "has the wrong length", f"{low} to {high} characters", len(value))


def _check_array(value: list[object], schema: Schema, field: str) -> None:
    low, high = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    if not low <= len(value) <= high:
        raise _invalid(field, "has the wrong length", f"{low} to {high} items", len(value))
    for number, item in enumerate(value):
        check(item, schema.get("items", {}), f"{field}[{number}]")


def _check_object(value: Mapping[str, object], schema: Schema, field: str) -> None:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    dependent = schema.get("dependentRequired", {})
    for name in (
        *schema.get("required", ()),
        *(each for given in dependent if given in value for each in dependent[given]),
    ):
        if name not in value:
            raise _invalid(_joined(field, name), "is missing", properties[name].get("type"))
    _check_alternatives(value, schema, field)
    for name, item in value.items():
        if name in properties:
            check(item, properties[name], _joined(field, name))
        elif schema.get("additionalProperties") is False:
            shown, expected = _shown(name), ", ".join(properties)
            raise RequestError(
                422,
                "InvalidRequest",
                f"the field {shown} is unknown",
                field=_joined(field, name[:60]),
                expected=expected,
                found=shown,
            )


def _check_alternatives(value: Mapping[str, object], schema: Schema, field: str) -> None:
    """Check that a value has exactly one of the names that the schemas of `oneOf` require, one name each."""
    names = [name for each in schema.get("oneOf", ()) for name in each["required"]]
    given = [name for name in names if name in value]
    if not names or len(given) == 1:
        return
    name = given[-1] if given else names[0]
    problem = "is given together with another" if given else "is missing"
    expected = f"{schema['properties'][name]['type']}; one of {', '.join(names)}"
    raise _invalid(_joined(field, name), problem, expected, ", ".join(given) or None)


def _check_range(value: float, schema: Schema, field: str) -> None:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if not low <= value <= high:
        raise _invalid(field, "is out of range", f"a number from {low} to {high}", _shown(value))


def _joined(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _invalid(field: str, problem: str, expected: object, found: object = None) -> RequestError:
    """Return the error of a field; the empty name is the body itself."""
    message = f"{field or 'the body'} {problem}"
    return RequestError(422, "InvalidRequest", message, field=field or "body", expected=expected, found=found)


def _shown(value: object) -> str:
    """Return a value as JSON, shortened."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = 60
    return json.dumps(value) if value is None or isinstance(value, bool) else short.repr(value)


def _not_json(problem: str) -> RequestError:
    return RequestError(400, "InvalidJson", f"the body is not JSON: {problem}", field="body", expected="JSON")


def _parse_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object; a name that occurs twice is refused, since readers differ in which value they take."""
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        message = f"the body has the name {_shown(twice)} twice in one object"
        raise RequestError(400, "InvalidJson", message, field=twice[:60], expected="each name once")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _parse_float(digits: str) -> float:
    """Return a number; one that is an integer is that integer, because 3.0 and 3 are the same in JSON Schema."""
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:60]} is too large")
    return int(value) if value.is_integer() and abs(value) <= _MAX_EXACT else value


def _parse_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"the number {digits[:60]}... is too large")
    return int(digits)
