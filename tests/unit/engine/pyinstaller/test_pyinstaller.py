"""The hook for PyInstaller names everything that PyInstaller's analysis does not find by itself."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from quarry.engine.backends.registry import BACKENDS
from quarry.engine.pyinstaller import hidden_imports, hook_dirs


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
