"""Tests import, replace and read no more than CONTRIBUTING.md says under "What a test may reach"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
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
# The one module that reads private attributes, and says why.
INSIDE = "tests/support/indexes/inside.py"
# Files whose tests still reach further.
NOT_YET: tuple[str, ...] = (
    "tests/differential/test_device_pipeline",
    "tests/differential/test_device_reads_nothing",
    "tests/differential/test_device_representation",
    "tests/differential/test_gpu",
    "tests/differential/test_gpu_kernels",
    "tests/differential/test_half_query",
    "tests/differential/test_networks_against_torch",
    "tests/differential/test_short_codes",
    "tests/unit/bench/gpu/test_gpu_command",
    "tests/unit/bench/panel/test_panel",
    "tests/unit/bench/peers/test_peers",
    "tests/unit/distributed/test_routing",
    "tests/unit/distributed/test_serving",
    "tests/unit/engine/encoding/runtimes/test_batched_encoder",
    "tests/unit/engine/encoding/runtimes/test_mapped_weights",
    "tests/unit/engine/indexer/batches/test_batched_documents",
    "tests/unit/engine/indexer/commits/test_failures",
    "tests/unit/engine/indexer/segments/test_adopted_segments",
    "tests/unit/engine/indexer/test_index_writer",
    "tests/unit/engine/indexer/test_merging",
    "tests/unit/engine/indexer/test_merging_threads",
    "tests/unit/readers/files/test_files",
    "tests/unit/readers/sync/test_folder_sync",
    "tests/unit/training/test_reranker_runs",
)


class Import(NamedTuple):
    module: str
    name: str  # in the module; "" if the module itself is imported
    line: int


@cache
def folder_of(module: str) -> Path:
    parts = module.split(".")
    return REPOSITORY.joinpath(*(parts[1:] if parts[0] == "quarry" else parts))


@cache
def nodes_of(tree: ast.Module) -> list[ast.AST]:
    return list(ast.walk(tree))


@cache
def imports_of(tree: ast.Module) -> dict[str, Import]:
    """Return what is imported of the repository, by its local name."""
    found = {}
    for node in nodes_of(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ("quarry", "bench"):
            for each in node.names:
                inner = folder_of(f"{node.module}.{each.name}")
                is_module = inner.is_dir() or inner.with_suffix(".py").exists()
                module, name = (f"{node.module}.{each.name}", "") if is_module else (node.module, each.name)
                found[each.asname or each.name] = Import(module, name, node.lineno)
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name.split(".")[0] in ("quarry", "bench"):
                    found[each.asname or each.name] = Import(each.name, "", node.lineno)
    return found


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def known_to(package: str) -> frozenset[str]:
    """Return the modules that a package itself imports."""
    files = folder_of(package).glob("*.py" if package == "quarry.engine" else "**/*.py")
    return frozenset(each.module for path in files for each in imports_of(parse(path)).values())


def is_within(module: str, package: str) -> bool:
    if package == "quarry.engine":  # the packages in it are packages of their own
        return f"{package}.{module.rpartition('.')[2]}" == module and not folder_of(module).is_dir()
    return module == package or module.startswith(f"{package}.")


def package_under_test(path: str, tree: ast.Module) -> str:
    """Return the package of a unit test's folder; for another test, the one that explains most of its imports."""
    parts = path.split("/")
    if parts[1] != "unit":
        return min(packages(), key=lambda package: len([*forbidden_imports(tree, package)]))
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


def forbidden_imports(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    for module, name, line in imports_of(tree).values():
        names = PUBLIC.get(module, frozenset())
        is_public = names is None or (module in PUBLIC and (not name or name in names))
        if not (is_public or is_within(module, package) or module in known_to(package)):
            yield line, f"imports {name or 'the module'} of {module}"


def full_names(tree: ast.Module) -> dict[str, str]:
    """Return the full names of what local names refer to: imports, and variables that these are assigned to."""
    found = {local: ".".join(filter(None, each[:2])) for local, each in imports_of(tree).items()}
    for node in nodes_of(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            for value in (
                (node.value.body, node.value.orelse) if isinstance(node.value, ast.IfExp) else (node.value,)
            ):
                if isinstance(value, ast.Name | ast.Attribute) and (name := full_name(value, found)):
                    found[node.targets[0].id] = name
    return found


def full_name(node: ast.expr, names: Mapping[str, str]) -> str:
    """Return the full name of what was imported of the repository, or of something in it; "" for anything else."""
    written = ast.unparse(node)
    for local in sorted(names, key=len, reverse=True):
        if written == local or written.startswith(f"{local}."):
            return names[local] + written[len(local) :]
    return ""


def forbidden_replacements(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    for line, name in replacements(tree):
        owner, _, attribute = name.rpartition(".")
        if not (MACHINE.fullmatch(attribute) and (is_within(owner, package) or not package)):
            yield line, f"replaces {name}"


def replacements(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the full names of all in the repository that is replaced."""
    names = full_names(tree)
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("setattr", "delattr"):
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


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in nodes_of(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [each.name for each in node.names]
        for name in names:
            if name.startswith("_") and not name.startswith("__") and name not in OF_PYTHON:
                yield node.lineno, f"reads {name}"


def violations(path: str, tree: ast.Module) -> list[str]:
    """Return what a file of tests should not do, with its lines."""
    found: list[tuple[int, str]] = []
    package = ""  # helpers serve the tests of all packages
    if not path.startswith("tests/support/"):
        package = package_under_test(path, tree)
        found += forbidden_imports(tree, package)
    if path != INSIDE:
        found += [*forbidden_replacements(tree, package), *private_names(tree)]
    return [f"{path}:{line}: {what}" for line, what in sorted(set(found))]


@cache
def all_violations() -> list[str]:
    paths = sorted((REPOSITORY / "tests").rglob("*.py"))
    named = {path.relative_to(REPOSITORY).as_posix(): path for path in paths}
    found = [each for name, path in named.items() for each in violations(name, parse(path))]
    for cached in (parse, nodes_of, imports_of):  # millions of objects, which slow every later garbage collection
        cached.cache_clear()
    return found


def test_tests_reach_no_further_than_they_may() -> None:
    found = [each for each in all_violations() if each.partition(".py:")[0] not in NOT_YET]
    assert not found, "\n".join(found)


def test_only_files_that_reach_further_are_left_out() -> None:
    done = [name for name in NOT_YET if not any(each.startswith(f"{name}.py:") for each in all_violations())]
    assert done == []


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
    violation = "".join(violations(path, ast.parse(source)))
    assert found in violation
    assert bool(violation) == bool(found)
