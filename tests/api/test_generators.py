"""A suspended generator may be finalized by the garbage collector in any thread, so it must not have to wait.

Therefore no generator of the project yields inside a ``with`` or ``try ... finally`` statement. The exceptions are
listed with what their finalization does; a context manager among them ends with its ``with`` statement.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

# bench exhausts its generators in the main thread
PACKAGES = ("engine", "exporters", "formats", "readers", "training")
ALLOWED = {
    "JsonArrayDocuments.__iter__": "closes a file",
    "LineReader.__iter__": "closes a file",
    "StoredDocuments._read_in_order": "closes files",
    "_exit_on_sigterm": "a context manager: sets a signal handler",
    "_open_output": "a context manager: deletes a temporary file",
    "_quiet_root_logger": "a context manager: sets the level of a logger",
    "_read_batches": "closes files",
    "_read_lines": "closes a file",
    "_run_concurrently": "a context manager: waits for a thread",
    "_silent": "a context manager: sets the level of a logger",
    "_suppress_output": "a context manager: sets the levels of loggers and warnings, and standard output",
    "_warnings_in_one_line": "a context manager: sets how warnings are shown",
    "_workspace": "a context manager: deletes a folder",
    "iterate_rows": "closes a file",
    "new_segment": "a context manager: deletes a file",
    "opened_folder": "a context manager: closes a folder",
    "open_temporary_index": "a context manager: closes an index and deletes a folder",
}


def held_across_yields(node: ast.AST, name: str = "", *, inside: bool = False) -> Iterator[str]:
    """Yield the names of functions below a node that yield inside a ``with`` or a ``try`` with ``finally``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            prefix = f"{name}." if isinstance(node, ast.ClassDef) else ""
            yield from held_across_yields(child, prefix + child.name)
        elif isinstance(child, ast.Lambda | ast.GeneratorExp):
            yield from held_across_yields(child, name)
        else:
            if inside and isinstance(child, ast.Yield | ast.YieldFrom):
                yield name
            holds = isinstance(child, ast.With) or (isinstance(child, ast.Try) and bool(child.finalbody))
            yield from held_across_yields(child, name, inside=inside or holds)


def test_generators_hold_no_resources_that_must_be_released(repository: Path) -> None:
    found = {
        name
        for package in PACKAGES
        for path in (repository / package).rglob("*.py")
        for name in held_across_yields(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == ALLOWED.keys()


def test_the_search_finds_them() -> None:
    source = """
class Reader:
    def lines(self):
        with self.file:
            yield 1
def pool():
    try:
        for item in items:
            yield item
    finally:
        shutdown()
def nothing():
    with lock:
        value = make(lambda: 1)
    yield value
def errors():
    try:
        yield 2
    except ValueError:
        pass
"""
    assert list(held_across_yields(ast.parse(source))) == ["Reader.lines", "pool"]
