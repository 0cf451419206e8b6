"""Libraries that are loaded on first use, while no file can be opened."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.indexes.changes import prepare
from support.processes import run_python

from quarry.engine.process import libraries
from quarry.engine.process.libraries import loading, requiring
from quarry.formats.errors import AccessFailed, BackendUnavailable, CorruptFile


def test_a_library_that_is_missing() -> None:
    with pytest.raises(ModuleNotFoundError), loading("nothing"):
        import no_such_library  # noqa: F401


def test_a_missing_library_is_an_error_that_names_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable) as caught, requiring("no plots", "'quarry-search[plots]'", tmp_path):
        import no_such_library  # noqa: F401
    error = caught.value
    assert (error.message, error.expected, error.path) == (
        "no plots",
        "pip install 'quarry-search[plots]'",
        tmp_path,
    )
    assert "no_such_library" in str(error)


def test_a_library_that_is_refused() -> None:
    errors = (
        OSError(errno.EMFILE, os.strerror(errno.EMFILE), "x.so"),
        ImportError("x.so: cannot open shared object file: Too many open files", path="x.so"),
    )
    for error in errors:
        with pytest.raises(AccessFailed, match=r"^x\.so: cannot be loaded; .* open files") as caught, loading("x"):
            raise error
        assert caught.value.errno == errno.EMFILE


def test_errors_of_its_own_go_through() -> None:
    for error in (CorruptFile("damaged"), AccessFailed("refused"), ImportError("no such name")):
        with pytest.raises(type(error)) as caught, loading("x"):
            raise error
        assert caught.value is error


def test_a_missing_runtime_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ImportError("DLL load failed while importing x: The specified module could not be found.", name="x")
    monkeypatch.setattr(libraries, "sys", SimpleNamespace(platform="win32"))
    with pytest.raises(ImportError, match=r"be found\.; install .* msvc-runtime") as caught, loading("x"):
        raise error
    assert caught.value.name == "x"


SEARCH = """
import sys
from support.indexes.changes import open_index
from quarry.engine import AccessFailed
from pathlib import Path
from refusals import only
from support.indexes.word_encoder import WordEncoder
WordEncoder().vector("word")  # loads what the encoder of the tests needs
with open_index(Path(sys.argv[1])) as index:
    try:
        with only(0):
            index.search("old text1", mode=sys.argv[2])
    except AccessFailed as error:
        print(error)
    print(len(index.search("old text1", mode=sys.argv[2])))
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors cannot be listed on this system")
@pytest.mark.parametrize(("mode", "library"), [("lexical", "Stemmer"), ("dense", "simsimd")])
def test_the_first_search_without_a_descriptor(tmp_path: Path, mode: str, library: str) -> None:
    """A search that cannot load a library raises an error, and the next search works."""
    prepare("commit", tmp_path / "index")
    done = run_python("-c", SEARCH, tmp_path / "index", mode, timeout_s=120)
    assert done.returncode == 0, done.stderr
    refused, found = done.stdout.splitlines()
    assert library in refused
    assert "cannot be loaded; expected fewer open files" in refused
    assert int(found) > 0
