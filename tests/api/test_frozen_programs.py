"""A program frozen by PyInstaller includes everything that PyInstaller's analysis does not find by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from quarry.engine.backends.registry import BACKENDS
from quarry.engine.pyinstaller import hidden_imports, hook_dirs

OF_OTHER_TESTS = (  # added by hooks of PyInstaller for functions that the program does not call
    *("IPython", "PIL", "cryptography", "fsspec", "huggingface_hub", "matplotlib", "networkx", "numba", "onnx"),
    *("pandas", "polars", "pyarrow", "pytest", "ray", "scipy", "setuptools", "sklearn", "sympy", "tensorrt"),
    *("torch", "transformers", "triton"),
)


def test_all_that_is_loaded_by_name_is_named() -> None:
    modules = {name: import_module(name) for name in hidden_imports()}
    for name in ("exact", "scan", "cpu_faiss", "hnsw"):
        module, _, class_name = BACKENDS[name].place.partition(":")
        assert hasattr(modules[module], class_name)
    assert {
        "quarry.engine.engine",
        "quarry.engine.building.builder",
        "quarry.engine.index.verification",
    } <= modules.keys()


def test_pyinstaller_finds_the_folder_of_the_hook(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    place = project["project"]["entry-points"]["pyinstaller40"]["hook-dirs"]
    module, _, function = place.partition(":")
    assert getattr(import_module(module), function) is hook_dirs
    assert [Path(folder, "hook-quarry.py").is_file() for folder in hook_dirs()] == [True]


def test_the_hook_collects_the_model() -> None:
    pytest.importorskip("PyInstaller")
    hook: dict[str, object] = {}
    exec(Path(hook_dirs()[0], "hook-quarry.py").read_text(), hook)
    assert {Path(source).name for source, _ in hook["datas"]} >= {"bundle.json", "model.onnx", "tokenizer.json"}
    assert hook["hiddenimports"] == hidden_imports()


def test_a_frozen_program_starts_and_answers(repository: Path, tmp_path: Path) -> None:
    """A frozen example runs from a folder of its own, without a Python installation."""
    pytest.importorskip("PyInstaller")
    options = [f"--exclude-module={name}" for name in OF_OTHER_TESTS]
    options += [f"--additional-hooks-dir={folder}" for folder in hook_dirs()]  # not needed once installed
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--specpath", str(tmp_path), *options]
    environment = os.environ | {"PYINSTALLER_CONFIG_DIR": str(tmp_path / "cache")}
    example = repository / "examples" / "desktop_search.py"
    done = subprocess.run(
        [*command, str(example)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "bread.md").write_text("# Bread\n\nBread is baked for forty minutes.\n", encoding="utf-8")
    (notes / "garden.md").write_text("# Garden\n\nTomatoes are planted in May.\n", encoding="utf-8")
    program = tmp_path / "dist" / "desktop_search" / "desktop_search"
    for _ in range(2):  # the second run finds an index
        done = subprocess.run(
            [program, notes, "how long is bread baked?"],
            cwd=tmp_path,
            env={"PATH": os.defpath, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("bread.md, line")
        assert "forty minutes" in done.stdout
    assert (tmp_path / "notes.index").is_dir()
