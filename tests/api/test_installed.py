"""An installation contains one top-level package, ``quarry``, and works beside packages of any other name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.models.bundle_projects import BUNDLES

from quarry.engine import open_encoder
from quarry.engine.pyinstaller import hook_dirs

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from a source distribution, as pip does."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=repository, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("the sources of a checkout are found with git")
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (repository / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, source / name, follow_symlinks=False)
    program = "from setuptools import build_meta; print(build_meta.build_sdist('..'))"
    environment = folder / "environment"
    subprocess.run([*PIP, "install", "--target", environment, "setuptools>=77"], check=True)
    env = {**os.environ, "PYTHONPATH": str(environment)}
    subprocess.run([sys.executable, "-c", program], cwd=source, env=env, check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    return build_wheel(sdist, folder, environment)


def build_wheel(source: Path, folder: Path, environment: Path) -> Path:
    """Build a wheel with the setuptools of an environment."""
    command = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(environment)}, check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_a_checkout_is_the_same_everywhere(repository: Path) -> None:
    """Windows has no symbolic links without a privilege, other line ends, and names that it refuses."""
    command = ["git", "ls-files", "--stage", "--eol"]
    listed = subprocess.run(command, cwd=repository, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("the sources of a checkout are found with git")
    names = set()
    for line in listed.stdout.decode().splitlines():
        about, _, name = line.rpartition("\t")
        assert not about.startswith("120000"), name
        assert not re.search("i/(crlf|mixed)", about), name
        assert "attr/text=auto eol=lf" in about or "attr/-text" in about, name
        assert not re.search(r'[<>:"\\|?*]|[ .](/|$)|(^|/)(aux|con|nul|prn|com\d|lpt\d)(\.|/|$)', name.lower()), (
            name
        )
        assert name.lower() not in names, name
        names.add(name.lower())
    assert names


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Extract the wheel into a folder of packages."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_the_wheel_holds_every_package(wheel: Path, repository: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"quarry"}
    for top in (each.parent for each in repository.glob("*/__init__.py") if each.parent.name != "bench"):
        for path in top.rglob("*.py"):
            assert f"quarry/{path.relative_to(repository).as_posix()}" in names
    assert "quarry/formats/SPEC.md" in names
    assert "quarry/py.typed" in names
    assert "quarry/server/page.html" in names
    models = [name for name in names if name.endswith(".onnx")]
    assert models == ["quarry/engine/bundled/quarry-minilm-l6/model.onnx"]


@pytest.mark.parametrize("project", [each.parent.name for each in BUNDLES.glob("*/pyproject.toml")])
def test_the_wheel_of_an_encoder_holds_its_bundle(wheel: Path, project: str, tmp_path: Path) -> None:
    source = wheel.parent / "source" / "bundles" / project
    with zipfile.ZipFile(build_wheel(source, tmp_path, wheel.parent / "environment")) as archive:
        archive.extractall(tmp_path)
    (bundle,) = tmp_path.glob("*/*/bundle.json")
    assert open_encoder(bundle.parent).encode_query("tides").shape == (384,)


APPLICATION = """
import engine, exporters, formats
assert engine.WHOSE == formats.WHOSE == exporters.WHOSE == "the application's"
import quarry
assert {site!r} in quarry.__file__, quarry.__file__
quarry.build(["bread and butter", "a ship at sea", "rain in the hills"], "idx")
with quarry.Engine.open("idx") as index:
    print(index.search("sailing on the ocean", k=1)[0].text)
"""


def test_an_application_may_have_packages_of_the_same_names(site: Path, tmp_path: Path) -> None:
    for name in ("engine", "formats"):
        (tmp_path / f"{name}.py").write_text('WHOSE = "the application\'s"\n', encoding="utf-8")
    (tmp_path / "exporters").mkdir()
    (tmp_path / "exporters" / "__init__.py").write_text('WHOSE = "the application\'s"\n', encoding="utf-8")
    program = tmp_path / "application.py"
    program.write_text(APPLICATION.format(site=str(site)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "a ship at sea\n"


OF_OTHER_TESTS = (  # added by hooks of PyInstaller for functions that the program does not call
    *("IPython", "PIL", "cryptography", "fsspec", "huggingface_hub", "matplotlib", "networkx", "numba", "onnx"),
    *("pandas", "polars", "pyarrow", "pytest", "ray", "scipy", "setuptools", "sklearn", "sympy", "tensorrt"),
    *("torch", "transformers", "triton"),
)


def test_a_frozen_program_starts_and_answers(repository: Path, site: Path, tmp_path: Path) -> None:
    """A frozen example runs from a folder of its own, without a Python installation."""
    pytest.importorskip("PyInstaller")
    options = [f"--exclude-module={name}" for name in OF_OTHER_TESTS]
    options += [f"--additional-hooks-dir={folder}" for folder in hook_dirs()]  # not needed once installed
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--specpath", str(tmp_path), *options]
    environment = os.environ | {"PYINSTALLER_CONFIG_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(site)}
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
