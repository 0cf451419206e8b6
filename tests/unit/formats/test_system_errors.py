"""Errors of the operating system are converted to errors of Quarry."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import stat
import sys
from pathlib import Path

import pytest

from quarry.formats.errors import AccessFailed, InvalidSetting, QuarryError
from quarry.formats.system_errors import access_failed, checked_path, long_path, mode_at, system_errors


def refused(number: int = errno.EACCES) -> OSError:
    return OSError(number, os.strerror(number), "of the system")


def test_it_is_an_error_of_both_kinds() -> None:
    error = access_failed(refused(), "opened", "/some/file", "or leave it")
    assert isinstance(error, QuarryError)
    assert isinstance(error, OSError)
    assert (error.errno, error.strerror, error.filename) == (errno.EACCES, "Permission denied", "/some/file")
    assert error.path == Path("/some/file")
    assert str(error) == (
        f"{error.path}: cannot be opened; expected permission for this user on it and on the folders above it; "
        "or leave it; found Permission denied"
    )


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO, errno.ENAMETOOLONG, errno.EDOM])
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_copy_is_the_same(number, duplicate) -> None:
    error = access_failed(refused(number), "read", "file")
    again = duplicate(error)
    assert type(again) is AccessFailed
    assert str(again) == str(error)
    assert (again.errno, again.strerror, again.filename, again.path) == (
        number,
        os.strerror(number),
        "file",
        Path("file"),
    )


@pytest.mark.parametrize("error", [OSError("in words"), OSError(), OSError(None, None)])
def test_an_error_without_a_number(error) -> None:
    found = access_failed(error, "read", "file")
    assert found.errno is None
    assert str(found).startswith("file: cannot be read; found ")


def test_what_the_block_raises() -> None:
    with pytest.raises(AccessFailed) as caught, system_errors("written", "file"):
        raise refused(errno.ENOSPC)
    assert caught.value.errno == errno.ENOSPC
    assert isinstance(caught.value.__cause__, OSError)
    for error in (FileNotFoundError(), FileExistsError(), access_failed(refused(), "read", "x"), ValueError()):
        with pytest.raises(type(error)) as caught, system_errors("written", "file"):
            raise error
        assert caught.value is error


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
def test_modes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    assert stat.S_ISDIR(mode_at(tmp_path))
    assert stat.S_ISREG(mode_at(tmp_path / "file"))
    assert stat.S_ISREG(mode_at(tmp_path / "link"))
    assert mode_at(tmp_path / "missing") == mode_at(tmp_path / "file" / "below") == 0
    for path in (tmp_path / "loop", tmp_path / ("x" * 300)):
        with pytest.raises(AccessFailed, match="cannot be looked up"):
            mode_at(path)


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("x", Path("x"), "/", Path(), "\udcff"):
        assert checked_path(given, "name") == Path(given)
    for given in (5, None, b"x", [], object()):
        with pytest.raises(InvalidSetting, match=r"^name is not a path; expected a str or an os.PathLike of str"):
            checked_path(given, "name")  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match=r"^name is empty"):
        checked_path("", "name")
    for given in ("a\0b", *(["\ud800"] if sys.platform != "win32" else [])):  # Windows has such names
        with pytest.raises(InvalidSetting, match=r"^name has a character that is not allowed in paths"):
            checked_path(given, "name")


@pytest.mark.parametrize("root", ["C:\\", "\\\\server\\share\\"])
def test_long_paths_of_windows(root: str) -> None:
    folder = root + "index"
    assert long_path(folder) == folder
    nested = root + "\\".join(["folder"] * 30)
    assert long_path(nested) == "\\\\?\\" + nested.replace("\\\\", "UNC\\", 1)
    assert long_path(nested.replace("\\folder", "/folder").replace("folder/", "folder/./")) == long_path(nested)
    assert long_path(long_path(nested)) == long_path(nested)


@pytest.mark.skipif(sys.platform == "win32", reason="a working directory cannot be deleted on this system")
def test_a_relative_path_without_a_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(InvalidSetting, match=r"name is relative, .*; expected an absolute path; found 'x'"):
        checked_path("x", "name")
    assert checked_path("/x", "name") == Path("/x")
