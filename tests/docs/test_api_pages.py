"""docs/api.md and the pages of docs/api are those of the docstrings, which say what a caller has to know."""

from __future__ import annotations

import builtins
import re
import runpy
from pathlib import Path

import pytest

from quarry import engine

ROOT = Path(__file__).resolve().parents[2]
HEADING = re.compile(r"^##+ `(.*)`$", re.MULTILINE)
CODE = re.compile(r"```py\n(.*?)```\n", re.DOTALL)


@pytest.fixture(scope="module")
def pages() -> dict[Path, str]:
    pytest.importorskip("griffe", reason="docs/api.py needs it")
    return runpy.run_path(str(ROOT / "docs" / "api.py"))["pages"]()


@pytest.fixture(scope="module")
def entries(pages: dict[Path, str]) -> dict[str, str]:
    """Return the text of each name: of "quarry.Engine", and of "Engine.search"."""
    parts = [part for path, text in pages.items() if path.name != "api.md" for part in HEADING.split(text)[1:]]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_pages_are_up_to_date(pages: dict[Path, str]) -> None:
    assert {ROOT / "docs" / "api.md", *(ROOT / "docs" / "api").iterdir()} == pages.keys()
    old = [path.name for path, text in pages.items() if path.read_text(encoding="utf-8") != text]
    assert not old, "make docs writes them anew"


def test_every_public_name_is_on_a_page(entries: dict[str, str]) -> None:
    assert {f"quarry.{name}" for name in engine.__all__} - entries.keys() == set()


def test_every_entry_is_described(entries: dict[str, str]) -> None:
    assert len(entries) > 250
    assert [name for name, text in entries.items() if not CODE.sub("", text).strip()] == []


def test_a_list_of_arguments_is_complete(entries: dict[str, str]) -> None:
    found, n_lists = [], 0
    for name, text in entries.items():
        code = "".join(CODE.findall(text)).partition("(")[2].rpartition(")")[0]
        given = re.findall(r"(?:^|, |\n    )(\w+)(?=: )", code)
        listed = set(re.findall(r"^\* `\**(\w+)`: ", CODE.sub("", text), re.MULTILINE))
        is_listed = "**Parameters**" in text or ("**Attributes**" in text and name.startswith("quarry."))
        n_lists += is_listed
        found += [f"{name}: {each}" for each in given if is_listed and each not in listed]
    assert n_lists > 80
    assert found == []


def test_arrays_have_shapes(entries: dict[str, str]) -> None:
    arrays = {name: text for name, text in entries.items() if re.search("ArrayLike|NDArray", text)}
    assert len(arrays) > 3
    shape = re.compile(r"\((n|dim)\b|see `Engine")
    assert [name for name, text in arrays.items() if not shape.search(CODE.sub("", text))] == []


def test_errors_exist(entries: dict[str, str]) -> None:
    lists = re.findall(r"\*\*Raises\*\*\n\n(.*?)\n\n", "\n".join(entries.values()) + "\n\n", re.DOTALL)
    names = {name for each in lists for name in re.findall(r"^\* `(\w+)`", each, re.MULTILINE)}
    assert len(names) > 15
    of_frameworks = {"DocumentStoreError", "DuplicateDocumentError", "FilterError", "RayTaskError"}
    assert {name for name in names if not hasattr(builtins, name)} <= {*engine.__all__, *of_frameworks}


def test_docstrings_name_nothing_that_is_not_public(entries: dict[str, str]) -> None:
    modules = {name.rpartition(".")[0] for name in entries}
    named = {name for text in entries.values() for name in re.findall(r"`(quarry\.[\w.]+)`", text)}
    known = entries.keys() | {f"quarry.{name}" for name in entries} | modules
    assert [name for name in named if name not in known and name.replace("engine.", "", 1) not in known] == []
