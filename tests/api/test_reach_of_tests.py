"""Tests import, replace and read no more than CONTRIBUTING.md says under "What a test may reach"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from quarry import engine

REPOSITORY = Path(__file__).resolve().parent.parent.parent
# What every test may import: None stands for all names of a module.
PUBLIC: Mapping[str, frozenset[str] | None] = {
    "quarry": None,
    "quarry.engine": frozenset(engine.__all__),
    "quarry.engine.bundled": None,
    "quarry.engine.cli.commands": frozenset({"main"}),
    "quarry.engine.thresholds": None,
    "quarry.exporters.export": None,
    "quarry.formats.container.directory": None,
    "quarry.readers": None,
    "quarry.server": None,
    "quarry.testing": None,
    "quarry.testing.models": None,
    "quarry.formats.errors": None,
    "bench.__main__": frozenset({"main"}),
}
# What a package takes from the machine, which its tests may replace: modules of Python, and what the machine has.
MACHINE = re.compile(r"os|sys|time|has_\w+")
# Names with an underscore that belong to Python and not to this project.
OF_PYTHON = {"_SubParsersAction", "_actions", "_asdict", "_exit", "_fields", "_getframe", "_make", "_replace"}
# The nodes of a syntax tree that say what a test reaches, and the import statements of a module that imports so.
WATCHED = (ast.Assign, ast.AugAssign, ast.Attribute, ast.Call, ast.Import, ast.ImportFrom)
LEAVES = (ast.Name, ast.Constant, ast.expr_context)
IMPORT = re.compile(r"^ *((?:from (?:quarry|bench)[\w.]* )?import (?:\([^)]*\)|.*))$", re.MULTILINE)
# The one module that reads private attributes, and says why.
INSIDE = "tests/support/indexes/inside.py"


class Import(NamedTuple):
    module: str
    name: str  # in the module; "" if the module itself is imported
    line: int


@cache
def folder_of(module: str) -> Path:
    parts = module.split(".")
    return REPOSITORY.joinpath(*(parts[1:] if parts[0] == "quarry" else parts))


@cache
def is_module(name: str) -> bool:
    return folder_of(name).is_dir() or folder_of(name).with_suffix(".py").exists()


def watched_nodes(source: str) -> list[ast.stmt | ast.expr]:
    """Return imports, attributes, calls and assignments of a source text, in the order of lines."""
    found: list[ast.stmt | ast.expr] = []
    left: list[ast.AST] = [ast.parse(source)]
    while left:  # twice as fast as ast.walk
        node = left.pop()
        if isinstance(node, WATCHED):
            found.append(node)
        for name in node._fields:
            value = getattr(node, name)
            if isinstance(value, list):
                left += [each for each in value if isinstance(each, ast.AST) and not isinstance(each, LEAVES)]
            elif isinstance(value, ast.AST) and not isinstance(value, LEAVES):
                left.append(value)
    return sorted(found, key=lambda node: node.lineno)


def imports_of(nodes: Iterable[ast.AST]) -> dict[str, Import]:
    """Return what is imported of the repository, by its local name."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ("quarry", "bench"):
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                module, name = (inner, "") if is_module(inner) else (node.module, each.name)
                found[each.asname or each.name] = Import(module, name, node.lineno)
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name.split(".")[0] in ("quarry", "bench"):
                    found[each.asname or each.name] = Import(each.name, "", node.lineno)
    return found


@cache
def known_to(package: str) -> frozenset[str]:
    """Return the modules that a package itself imports."""
    found: set[str] = set()
    for path in folder_of(package).glob("*.py" if package == "quarry.engine" else "**/*.py"):
        statements = IMPORT.findall(path.read_text(encoding="utf-8"))  # faster than parsing all of it
        found.update(each.module for each in imports_of(ast.parse("\n".join(statements)).body).values())
    return frozenset(found)


def is_within(module: str, package: str) -> bool:
    if package == "quarry.engine":  # the packages in it are packages of their own
        return f"{package}.{module.rpartition('.')[2]}" == module and not folder_of(module).is_dir()
    return module == package or module.startswith(f"{package}.")


def package_under_test(path: str, imports: Iterable[Import], replaced: Iterable[tuple[int, str]]) -> str:
    """Return the package of a unit test's folder; for another test, the one that explains most of what it does."""
    parts = path.split("/")
    if parts[1] != "unit":
        return min(
            packages(),
            key=lambda package: len(
                [*forbidden_imports(imports, package), *forbidden_replacements(replaced, package)]
            ),
        )
    if parts[2] == "bench":
        return "bench"
    return ".".join(["quarry", *parts[2 : 4 if parts[2] == "engine" and len(parts) > 4 else 3]])


@cache
def packages() -> list[str]:
    found = sorted(
        path.parent for pattern in ("*", "engine/*") for path in REPOSITORY.glob(f"{pattern}/__init__.py")
    )
    names = [".".join(path.relative_to(REPOSITORY).parts) for path in found]
    return [name if name == "bench" else f"quarry.{name}" for name in names]


def forbidden_imports(imports: Iterable[Import], package: str) -> Iterator[tuple[int, str]]:
    for module, name, line in imports:
        names = PUBLIC.get(module, frozenset())
        is_public = names is None or (module in PUBLIC and (not name or name in names))
        if not (is_public or is_within(module, package) or module in known_to(package)):
            yield line, f"imports {name or 'the module'} of {module}"


def full_names(nodes: Iterable[ast.AST], imports: Mapping[str, Import]) -> dict[str, str]:
    """Return the full names of what local names refer to: imports, and variables that these are assigned to."""
    found = {local: ".".join(filter(None, each[:2])) for local, each in imports.items()}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            for value in (
                (node.value.body, node.value.orelse) if isinstance(node.value, ast.IfExp) else (node.value,)
            ):
                if name := full_name(value, found):
                    found[node.targets[0].id] = name
    return found


def written(node: ast.expr) -> str:
    """Return a name with dots as it is written; "" for any other expression."""
    if isinstance(node, ast.Attribute):
        owner = written(node.value)
        return owner and f"{owner}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def full_name(node: ast.expr, names: Mapping[str, str]) -> str:
    """Return the full name of what was imported of the repository, or of something in it; "" for anything else."""
    local = name = written(node)
    while local and local not in names:
        local = local.rpartition(".")[0]
    return names[local] + name[len(local) :] if local else ""


def forbidden_replacements(replaced: Iterable[tuple[int, str]], package: str) -> Iterator[tuple[int, str]]:
    for line, name in replaced:
        owner, _, attribute = name.rpartition(".")
        if not (MACHINE.fullmatch(attribute) and (is_within(owner, package) or not package)):
            yield line, f"replaces {name}"


def called(node: ast.Call) -> str:
    """Return the last name of what is called."""
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


def replacements(nodes: Iterable[ast.AST], names: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Yield the full names of all in the repository that is replaced."""
    for node in nodes:
        if isinstance(node, ast.Call) and called(node) in ("setattr", "delattr"):
            target, *others = node.args
            if isinstance(target, ast.Constant | ast.JoinedStr):
                name = ast.unparse(target).strip("f'\"")
                if name.startswith(("quarry.", "bench.")):
                    yield node.lineno, name
            elif owner := full_name(target, names):
                attribute = others[0].value if isinstance(others[0], ast.Constant) else "?"
                yield node.lineno, f"{owner}.{attribute}"
        elif isinstance(node, ast.Assign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Attribute) and (owner := full_name(target.value, names)):
                    yield node.lineno, f"{owner}.{target.attr}"


def private_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.Attribute) and written(node.value) not in ("self", "cls"):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [each.name for each in node.names]
        for name in names:
            if name.startswith("_") and not name.startswith("__") and name not in OF_PYTHON:
                yield node.lineno, f"reads {name}"


def violations(path: str, source: str) -> list[str]:
    """Return what a file of tests should not do, with its lines."""
    nodes = watched_nodes(source)
    imports = imports_of(nodes)
    replaced = [*replacements(nodes, full_names(nodes, imports))]
    found: list[tuple[int, str]] = []
    package = ""  # helpers serve the tests of all packages
    if not path.startswith("tests/support/"):
        package = package_under_test(path, imports.values(), replaced)
        found += forbidden_imports(imports.values(), package)
    if path != INSIDE:
        found += [*forbidden_replacements(replaced, package), *private_names(nodes)]
    return [f"{path}:{line}: {what}" for line, what in sorted(set(found))]


def test_tests_reach_no_further_than_they_may() -> None:
    paths = sorted((REPOSITORY / "tests").rglob("*.py"))
    named = {path.relative_to(REPOSITORY).as_posix(): path for path in paths}
    found = [each for name, path in named.items() for each in violations(name, path.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


def test_every_public_module_is_documented() -> None:
    page = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [module for module in PUBLIC if f"`{module}`" not in page] == []


FORMATS, INDEX = "tests/unit/formats/test_a.py", "tests/unit/engine/index/test_a.py"
SNAPSHOT = "from quarry.formats.snapshot import Snapshot\n"  # which the package `index` imports too
LOCK = "import quarry.formats.write_lock as lock\n"


@pytest.mark.parametrize(
    ("path", "source", "found"),
    [
        (FORMATS, SNAPSHOT, ""),
        (INDEX, SNAPSHOT, ""),
        ("tests/unit/engine/analysis/test_a.py", SNAPSHOT, "imports Snapshot of quarry.formats.snapshot"),
        ("tests/crash/test_a.py", f"{SNAPSHOT}from quarry.training.run import train", "imports"),
        ("tests/support/a.py", f"{SNAPSHOT}from quarry.training.run import train", ""),
        (FORMATS, f"{LOCK}patch.setattr(lock, 'os', 1)", ""),
        (FORMATS, f"{LOCK}patch.setattr(lock, 'LOCK_NAME', 1)", "replaces quarry.formats.write_lock.LOCK_NAME"),
        (FORMATS, f"{LOCK}same = lock\nsame.LOCK_NAME = 1", "replaces"),
        (FORMATS, "patch.setattr('quarry.formats.write_lock.LOCK_NAME', 1)", "replaces"),
        (INDEX, "patch.setattr('quarry.formats.write_lock.os', 1)", "replaces"),
        (FORMATS, "patch.setattr('os.rename', 1)", ""),
        (FORMATS, "made._file", "reads _file"),
        (FORMATS, "from quarry.formats.write_lock import _held", "reads _held"),
        (INSIDE, "made._file", ""),
    ],
)
def test_what_is_found(path: str, source: str, found: str) -> None:
    violation = "".join(violations(path, source))
    assert found in violation
    assert bool(violation) == bool(found)
