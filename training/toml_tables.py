"""Tables of a TOML file as frozen dataclasses: known names and exact types only."""

from __future__ import annotations

import os
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from quarry.engine.bundled import bundled_path
from quarry.formats.errors import InvalidSetting

__all__ = ["TableReader", "add_place", "resolve_path"]

T = TypeVar("T")

_PACKAGE = "package:"
_BUNDLED = "bundled:"


class TableReader:
    """Reads the tables of one file.

    Args:
        path: the path of the file, for messages; relative paths in it start at its folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, kind: type[T], table: object, where: str) -> T:
        """Make a dataclass of a table.

        Args:
            kind: a dataclass of booleans, numbers, strings, paths, and tuples of them; missing members have the
                class's defaults.
            table: the parsed table.
            where: its name in the file, for messages.

        Raises:
            InvalidSetting: an unknown or missing member, one of another type, or a value that the class refuses.
        """
        if not isinstance(table, dict):
            raise InvalidSetting(f"[{where}] is not a table", path=self._path, actual=type(table).__name__)
        hints = get_type_hints(kind)
        known = {each.name: each for each in fields(kind) if each.init}  # type: ignore[arg-type]
        unknown = sorted(table.keys() - known.keys())
        if unknown:
            raise InvalidSetting(
                f"[{where}] has an unknown member", path=self._path, expected=", ".join(known), actual=unknown[0]
            )
        missing = [
            name
            for name, each in known.items()
            if name not in table and each.default is MISSING and each.default_factory is MISSING
        ]
        if missing:
            raise InvalidSetting(f"[{where}] lacks a member", path=self._path, expected=missing[0])
        values = {name: self._value(hints[name], value, f"{where}.{name}") for name, value in table.items()}
        try:
            return kind(**values)
        except InvalidSetting as error:
            raise add_place(error, self._path, where) from error

    def _value(self, hint: object, value: object, where: str) -> object:
        if get_origin(hint) in (Union, types.UnionType):
            hint = next(each for each in get_args(hint) if each is not type(None))
        if get_origin(hint) is tuple:
            if not isinstance(value, list):
                raise self._wrong(where, "a list", value)
            return tuple(self._value(get_args(hint)[0], each, where) for each in value)
        if hint is Path and isinstance(value, str):
            return resolve_path(value, self._path)
        if hint is float and type(value) is int:
            return float(value)
        if get_origin(hint) is Literal:
            hint = str  # the value is checked by the class of the table
        if type(value) is not hint:
            names: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false"}
            raise self._wrong(where, names.get(hint, "a string"), value)
        return value

    def _wrong(self, where: str, expected: str, actual: object) -> InvalidSetting:
        return InvalidSetting(f"{where} has another type", path=self._path, expected=expected, actual=repr(actual))


def add_place(error: InvalidSetting, path: Path, table: str = "") -> InvalidSetting:
    """The error of a setting with the file, and the table, that it stands in."""
    where = f"[{table}]: " if table else ""
    return InvalidSetting(f"{where}{error.message}", path=path, expected=error.expected, actual=error.actual)


def resolve_path(value: str, recipe: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """The path that a recipe names.

    ``bundled:NAME`` is an encoder that comes with Quarry or has a distribution of its own there;
    ``package:NAME/FOLDER`` lies in an installed Python package, which is not imported; ``$NAME`` at the beginning
    is an environment variable; a relative path starts at the recipe's folder.

    Raises:
        InvalidSetting: there is no such encoder, it or the package is not installed, or the variable is not set.
    """
    if value.startswith(_BUNDLED):
        try:
            return bundled_path(value.removeprefix(_BUNDLED))
        except InvalidSetting as error:
            raise add_place(error, recipe) from error
    if value.startswith(_PACKAGE):
        name, _, inside = value.removeprefix(_PACKAGE).partition("/")
        spec = find_spec(name) if name.isidentifier() else None
        places = None if spec is None else spec.submodule_search_locations
        if not places:
            raise InvalidSetting("the package is not installed", path=recipe, expected=name, actual=repr(value))
        return Path(next(iter(places))) / inside
    if value.startswith("$"):
        name, _, inside = value[1:].partition("/")
        if name not in environment:
            raise InvalidSetting("the environment variable is not set", path=recipe, expected=name)
        return Path(environment[name]) / inside
    return recipe.parent / value
