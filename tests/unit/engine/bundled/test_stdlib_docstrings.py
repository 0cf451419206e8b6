"""The docstrings of the standard library as documents."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from quarry.engine import Document
from quarry.engine.bundled.stdlib_docstrings import StdlibDocument, stdlib_documents


@pytest.fixture(scope="module")
def documents() -> dict[str, StdlibDocument]:
    return {document["id"]: document for document in stdlib_documents()}


def test_there_are_several_thousand_and_each_is_valid(documents: dict[str, StdlibDocument]) -> None:
    assert 4_000 < len(documents) < 12_000
    for name, document in documents.items():
        assert Document(**document).title.startswith(f"{document['metadata']['kind']} {name}")
        assert len(document["text"]) >= 20
        assert document["metadata"]["module"] in {name, name[: len(document["metadata"]["module"])]}


def test_all_kinds_are_there(documents: dict[str, StdlibDocument]) -> None:
    kinds = {
        "subprocess": "module",
        "argparse.ArgumentParser": "class",
        "subprocess.run": "function",
        "threading.Thread.start": "method",
        # written in C
        "itertools": "module",
        "builtins.dict": "class",
        "math.sqrt": "function",
        "builtins.str.join": "method",
        "socket.socket.bind": "method",
        "functools.partial": "class",
        "io.open": "function",
        "decimal.Decimal": "class",
    }
    assert {name: documents[name]["metadata"]["kind"] for name in kinds} == kinds


def test_a_title_shows_how_to_call_it(documents: dict[str, StdlibDocument]) -> None:
    assert documents["subprocess.run"]["title"].startswith("function subprocess.run(*popenargs, input=None")
    assert documents["shelve.Shelf"]["title"].startswith("class shelve.Shelf(dict, ")
    assert documents["math.sqrt"]["title"] == "function math.sqrt(x, /)"
    assert documents["builtins.str.join"]["title"] == "method builtins.str.join(iterable, /)"
    assert documents["subprocess"]["title"] == "module subprocess"


def test_a_module_carries_its_own_docstring(documents: dict[str, StdlibDocument]) -> None:
    assert documents["argparse"]["text"].startswith("Command-line parsing library")
    assert documents["argparse"]["metadata"] == {"kind": "module", "module": "argparse"}


def test_private_names_and_tests_are_left_out(documents: dict[str, StdlibDocument]) -> None:
    parts = {part for name in documents for part in name.split(".")}
    assert not [part for part in parts if part.startswith("_")]
    assert not parts & {"idlelib", "lib2to3", "turtledemo"}
    assert "test" not in {name.split(".")[0] for name in documents}


def test_the_library_is_neither_run_nor_ordered_by_chance() -> None:
    program = (
        "import json, sys\n"
        "from quarry.engine.bundled.stdlib_docstrings import stdlib_documents\n"
        "print(json.dumps(list(stdlib_documents())))\n"
        "assert not {'tkinter', 'antigravity', 'turtle', 'pdb', 'asyncio'} & set(sys.modules)\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(json.loads(runs[0])) > 4_000
