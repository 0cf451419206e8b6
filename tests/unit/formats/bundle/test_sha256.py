"""SHA-256 is SHA-256, wherever it comes from."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from quarry.formats.bundle.sha256 import file_sha256, short_sha256

CONTENT = bytes(range(250)) * 5000


@pytest.mark.parametrize("n_bytes", [0, 1, 55, 56, 64, 1000])
def test_the_digest_is_that_of_hashlib(n_bytes: int) -> None:
    assert short_sha256(CONTENT[:n_bytes]) == hashlib.sha256(CONTENT[:n_bytes]).hexdigest()


def test_where_python_has_none_of_its_own_it_is_that_of_hashlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_sha2", "_sha256"):
        monkeypatch.setitem(sys.modules, name, None)
    assert short_sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("lean", [False, True])
@pytest.mark.parametrize("n_bytes", [0, 1 << 18, (1 << 18) + 1, 1 << 20, (1 << 20) + 1])
def test_of_a_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lean: bool, n_bytes: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT[:n_bytes])
    expected = hashlib.sha256(CONTENT[:n_bytes]).hexdigest()
    assert file_sha256(path, lean=lean) == expected
    monkeypatch.delitem(sys.modules, "_hashlib", raising=False)
    assert file_sha256(path, lean=lean) == expected


@pytest.mark.parametrize(
    ("lean", "n_bytes", "loaded"), [(True, 1 << 21, False), (False, 10, False), (False, 1 << 21, True)]
)
def test_openssl_is_loaded_for_long_files_alone(
    tmp_path: Path, repository: Path, lean: bool, n_bytes: int, loaded: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(n_bytes))
    program = (
        "import sys, pathlib; from quarry.formats.bundle.sha256 import file_sha256;"
        f"file_sha256(pathlib.Path({str(path)!r}), lean={lean}); print('_hashlib' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], cwd=repository, capture_output=True, check=True)
    assert answer.stdout.decode().strip() == str(loaded)
