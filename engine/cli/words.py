"""Conversions of the words of a command line: paths, names of indexes, texts and filters."""

from __future__ import annotations

import argparse
import json
import os
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from quarry.formats.errors import InvalidFilter, InvalidSetting, QuarryError

__all__ = ["decode_text", "name_indexes", "parse_filter_option", "parse_object", "parse_path"]


def parse_path(word: str) -> Path:
    """Convert a word to a path; an empty one, such as an unset variable, is refused.

    Raises:
        ArgumentTypeError: the word is empty; ``Path("")`` would be the working directory.
    """
    if not word:
        raise argparse.ArgumentTypeError("an empty path; '.' is the working directory")
    return Path(word)


def decode_text(word: str) -> str:
    """Decode a text, as UTF-8 if the locale could not decode it; not for paths."""
    try:
        return os.fsencode(word).decode() if any("\udc80" <= character <= "\udcff" for character in word) else word
    except UnicodeError:  # not UTF-8 either; validation of the text reports it
        return word


def parse_filter_option(given: str | None) -> Mapping[str, object] | None:
    """Return the filter that is given as JSON; None without one.

    Raises:
        InvalidFilter: it is not a JSON object.
    """
    return None if given is None else parse_object(given, "--filter", InvalidFilter)


def parse_object(given: str, option: str, kind: type[QuarryError]) -> Mapping[str, object]:
    """Return the JSON object that is given to an option.

    Raises:
        QuarryError: of that kind, it is not one.
    """
    try:
        only: object = json.loads(given)
    except ValueError as error:
        raise kind(f"{option} is not JSON", expected='{"field": value}', actual=str(error)) from error
    except RecursionError as error:
        raise kind(f"{option} is nested too deep", expected='{"field": value}') from error
    if not isinstance(only, dict):
        raise kind(f"{option} is not a JSON object", expected='{"field": value}', actual=reprlib.repr(given))
    return only


def name_indexes(words: Sequence[str]) -> dict[str, Path]:
    """Return folders of indexes by name: words are folders, or NAME=FOLDER; the default is a folder's own name.

    Raises:
        InvalidSetting: a path or a name is empty, or two indexes have the same name.
    """
    paths: dict[str, Path] = {}
    for word in words:
        name, sign, folder = word.partition("=")
        if not sign or Path(word).is_dir():
            folder, name = word, Path(word).resolve().name
        if not folder:
            raise InvalidSetting("an empty path", expected="the folder of an index")
        if not name:
            raise InvalidSetting("an index without a name", expected="NAME=FOLDER", actual=reprlib.repr(word))
        if name in paths:
            raise InvalidSetting(
                "two indexes have the same name", expected="other names, as NAME=FOLDER", actual=name
            )
        paths[name] = Path(folder)
    return paths
