"""All commands convert the words of the command line in the same way."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from quarry.engine.cli import commands
from quarry.engine.cli.words import decode_text, parse_filter_option, parse_path
from quarry.formats.errors import InvalidFilter


def all_commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command, those of plug-ins included."""
    (subparsers,) = [
        action for action in commands.make_parser([])._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return dict(subparsers.choices)


def test_the_commands_of_all_packages_are_there() -> None:
    assert {"build", "search", "sync", "export-docs", "export", "plan", "train"} <= all_commands().keys()


@pytest.mark.parametrize("name", sorted(all_commands().keys() - {"completion", "encoders"}))
def test_an_empty_path_is_refused_by_every_command(name: str) -> None:
    """Every command refuses an empty path, which is probably an unset variable and not the working directory."""
    paths = [action for action in all_commands()[name]._actions if _is_path(action)]
    assert paths, "a command without a path"
    for action in paths:
        with pytest.raises(argparse.ArgumentTypeError, match="empty path"):
            action.type("")  # type: ignore[operator]


def _is_path(action: argparse.Action) -> bool:
    return callable(action.type) and isinstance(action.type("1"), Path)


def test_words_become_paths_and_texts() -> None:
    assert parse_path("a b") == Path("a b")
    assert decode_text("caf\udcc3\udca9") == "café"
    assert decode_text("\udcff") == "\udcff"


def test_filters() -> None:
    assert parse_filter_option(None) is None
    assert parse_filter_option('{"a": 1}') == {"a": 1}
    for wrong in ("", "[1]", "{", "[" * 100_000):
        with pytest.raises(InvalidFilter):
            parse_filter_option(wrong)
