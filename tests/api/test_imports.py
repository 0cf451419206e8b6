"""Imports and searches load large libraries only when they are needed, and otherwise only core dependencies."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

OPTIONAL = {"torch", "hnswlib", "tensorrt", "onnx", "safetensors", "ir_measures", "hypothesis"}
HEAVY = OPTIONAL | {"faiss", "onnxruntime", "tokenizers"}


def run(program: str, repository: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=repository, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(statement: str, repository: Path) -> set[str]:
    """Return the top-level modules that are loaded after a statement in a new process."""
    return set(run(f"{statement}\nimport sys\nprint(*sys.modules)", repository).split())


def test_importing_the_engine_loads_nothing_heavy(repository: Path) -> None:
    assert "quarry.engine" in loaded_by("import quarry", repository)
    assert not loaded_by("import quarry", repository) & (HEAVY | {"numpy"})


def test_importing_every_name_loads_nothing_heavy(repository: Path) -> None:
    loaded = loaded_by("from quarry.engine import *", repository)
    assert "quarry.engine.engine" in loaded
    assert not loaded & HEAVY


def test_the_version_is_that_of_the_installation(repository: Path) -> None:
    assert run("import quarry; print(quarry.__version__)", repository).strip() == metadata.version("quarry-search")


def test_the_command_line_starts_with_nothing_heavy(repository: Path) -> None:
    for words in (["--help"], ["build", "--help"], ["search", "--help"]):
        program = f"from quarry.engine.cli import commands\ntry: commands.main({words!r})\nexcept SystemExit: pass"
        assert not loaded_by(program, repository) & (HEAVY | {"numpy", "zstandard"})


def test_opening_an_index_leaves_the_encoder_alone(repository: Path, small_index: Path) -> None:
    loaded = loaded_by(f"from quarry import engine\nengine.Engine.open({str(small_index)!r}).close()", repository)
    assert not loaded & {"onnxruntime", "tokenizers", "faiss"}


@pytest.mark.parametrize(
    ("library", "extra", "statement"),
    [
        ("langchain_core", "langchain", "import quarry.integrations.langchain"),
        ("llama_index", "llama-index", "import quarry.integrations.llama_index"),
        ("haystack", "haystack", "from quarry.integrations.haystack import QuarryRetriever"),
        ("starlette", "server", "from quarry.server import app"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(
    repository: Path, library: str, extra: str, statement: str
) -> None:
    program = f"import sys\nsys.modules[{library!r}] = None\ntry:\n    {statement}\nexcept ImportError as error:\n"
    assert f"pip install 'quarry-search[{extra}]'" in run(f"{program}    print(error)", repository)


CORE_ONLY = """
import sys

allowed = set({allowed!r})


class OnlyCore:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"no module {{name}} in a core installation", name=name)


sys.meta_path.insert(0, OnlyCore())
from quarry import engine

engine.build(["bread and butter", "a ship at sea", "rain in the hills"], {path!r})
with engine.Engine.open({path!r}) as index:
    assert index.search("sailing on the ocean", k=1)[0].text == "a ship at sea"
    index.verify()
print("answered")
"""


def test_the_core_dependencies_are_enough(repository: Path, tmp_path: Path) -> None:
    allowed = core_modules(repository)
    assert {"numpy", "onnxruntime"} <= allowed
    assert not allowed & OPTIONAL
    program = CORE_ONLY.format(allowed=sorted(allowed), path=str(tmp_path / "index"))
    assert run(program, repository) == "answered\n"


def core_modules(repository: Path) -> set[str]:
    """Return the top-level modules of a core installation: of Python, the project, and its dependencies."""
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    wanted = [canonical(requirement) for requirement in project["dependencies"]]
    distributions: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in distributions:
            distributions.add(name)
            wanted += required_by(name)
    modules = {
        module
        for module, owners in metadata.packages_distributions().items()
        if distributions & {canonical(owner) for owner in owners}
    }
    return modules | set(sys.stdlib_module_names) | {"quarry", "__main__"}


def required_by(distribution: str) -> list[str]:
    try:
        requirements = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:  # for another platform
        return []
    return [canonical(requirement) for requirement in requirements if "extra ==" not in requirement]


def canonical(requirement: str) -> str:
    name = re.match(r"[\w.-]+", requirement)
    assert name
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_an_optional_module_is_missed_by_that_test(repository: Path, tmp_path: Path) -> None:
    program = CORE_ONLY.format(allowed=sorted(core_modules(repository)), path=str(tmp_path / "index"))
    with pytest.raises(AssertionError, match="no module safetensors"):
        run(program + "import safetensors\n", repository)
