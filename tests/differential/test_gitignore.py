"""``.gitignore`` files exclude the same files as in git."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from quarry.readers.files.kinds import FileKinds
from quarry.readers.folders.folder_files import FolderFile, Unlisted, folder_files
from quarry.readers.folders.glob_pattern import GlobPattern
from quarry.readers.folders.ignore_rules import IgnoreRules

needs_git = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
NAMES = [
    "a",
    "b",
    "ab",
    "abc",
    "a.py",
    "b.txt",
    "x y",
    "[a]",
    "a]b",
    "Ab",
    "!a",
    "#a",
    "a-b",
    "a*b",
    "1",
    "a\\b",
    "b ",
    "é",
    "ab 文",
    "a\vb",
    "~\x01",
]
PIECES = [
    "a",
    "b",
    "ab",
    "*",
    "**",
    "?",
    "/",
    "/",
    "[ab]",
    "[!a]",
    "[a-c]",
    "[]a]",
    "[[:alpha:]]",
    "[[:nope:]]",
    "[^[:digit:]]",
]
PIECES += [
    ".py",
    ".txt",
    "\\*",
    "\\",
    "!",
    "#",
    " ",
    "[",
    "]",
    "-",
    "**/",
    "/**",
    "[a",
    "[z-a]",
    "[\\]]",
    "[a\\-c]",
    "x",
    "***",
    "/***",
    "**\\/",
    "\\/",
    "é",
    "[é]",
    "[a-é]",
    "[a/b]",
    "[[:space:]]",
    "[[:punct:]]",
    "[^[:cntrl:]]",
    "[[:]",
    "[--a]",
]


def pattern(rng: random.Random) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 5)))


def make_tree(folder: Path, rng: random.Random, depth: int = 0) -> None:
    for name in rng.sample(NAMES, 7):
        if depth < 3 and rng.random() < 0.4:
            (folder / name).mkdir()
            make_tree(folder / name, rng, depth + 1)
        else:
            (folder / name).write_text("x")
    if (depth < 2 and rng.random() < 0.7) or depth == 0:
        lines = [("!" if rng.random() < 0.25 else "") + pattern(rng) for _ in range(rng.randint(1, 5))]
        (folder / ".gitignore").write_bytes(rng.choice(["\n", "\r\n"]).join(lines).encode())


def git(folder: Path, *words: str) -> str:
    settings = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "HOME": str(folder),
    }
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, env=settings)
    return done.stdout


def kept(folder: Path, prefix: str, rules: IgnoreRules) -> set[str]:
    """Return the files that are not ignored, of all kinds and names."""
    rules = rules.with_file_of(folder)
    found: set[str] = set()
    for entry in sorted(folder.iterdir()):
        if entry.name in {".git"} or rules.is_ignored(entry.name, entry.is_dir()):
            continue
        name = f"{prefix}{entry.name}"
        found |= kept(entry, f"{name}/", rules.below(entry.name)) if entry.is_dir() else {name}
    return found


@needs_git
@pytest.mark.parametrize("seed", range(60))
def test_the_files_that_are_left_are_those_of_git(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    make_tree(tmp_path, rng)
    git(tmp_path, "init", "-q")
    theirs = set(git(tmp_path, "ls-files", "-z", "--others", "--exclude-standard").split("\0")) - {""}
    assert kept(tmp_path, "", IgnoreRules.above(tmp_path)) == theirs
    inner = next((each for each in sorted(tmp_path.iterdir()) if each.is_dir() and each.name != ".git"), None)
    if inner is not None and not IgnoreRules().with_file_of(tmp_path).is_ignored(inner.name, is_folder=True):
        ours = kept(inner, f"{inner.name}/", IgnoreRules.above(inner))
        assert ours == {name for name in theirs if name.startswith(f"{inner.name}/")}


@needs_git
@pytest.mark.parametrize(
    "lines",
    [
        ["*", "!*/", "!*.py"],
        ["a/", "!a/a"],
        ["/a"],
        ["a/**"],
        ["**/a"],
        ["a/**/b"],
        ["**"],
        ["**/"],
        ["a**"],
        ["\\!a", "\\#a"],
        ["b\\ "],
        ["b "],
        ["*.[pt]*"],
        ["a//b", "/", "//", "!", "! "],
        ["[[:alpha:][:digit:]]"],
        ["a\\"],
        ["***"],
        ["***/b"],
        ["a/***"],
        ["a/****/b"],
        ["**\\/b"],
        ["a\\/b"],
        ["a**/b"],
        ["d**/a.py"],
        ["[a/b]"],
        ["a/[/]a"],
        ["?"],
        ["??"],
        ["[!a]"],
        ["[!a]*", "!*[!é]?.txt"],
        ["é[[:space:]]*"],
        ["[b-a]", "[]-[]"],
    ],
)
def test_rules_of_the_manual(tmp_path: Path, lines: list[str]) -> None:
    for name in ("a", "b", "d"):
        (tmp_path / name).mkdir()
        for other in ("a", "b"):
            (tmp_path / name / other).mkdir()
            for file in ("a", "b", "a.py", "b.txt", "!a", "#a", "b ", "1", "a\\", "é", "文.txt", "é\v"):
                (tmp_path / name / other / file).write_text("x")
    (tmp_path / ".gitignore").write_text("\n".join(lines))
    git(tmp_path, "init", "-q")
    theirs = set(git(tmp_path, "ls-files", "-z", "--others", "--exclude-standard").split("\0")) - {""}
    assert kept(tmp_path, "", IgnoreRules()) == theirs


def test_no_pattern_takes_exponential_time() -> None:
    assert not GlobPattern(b"*a" * 100 + b"b").matches(b"a" * 255)
    assert not GlobPattern(b"/".join([b"**", b"a"] * 50 + [b"b"])).matches(b"/".join([b"a"] * 100))


def test_folders_and_files_that_are_left_out(tmp_path: Path) -> None:
    for name in ("keep.txt", "drop.txt", "build/x.txt", "src/a.py", "src/b.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("build/\ndrop.*\n")
    (tmp_path / "src" / ".gitignore").write_text("*.log\n")
    assert [each.name for each in folder_files(tmp_path, FileKinds())] == ["keep.txt", "src/a.py"]


def test_the_spelling_of_the_path_makes_no_difference(tmp_path: Path) -> None:
    (tmp_path / "tree" / ".git").mkdir(parents=True)
    (tmp_path / "tree" / "src").mkdir()
    (tmp_path / "tree" / ".gitignore").write_text("drop.txt\n")
    for name in ("keep.txt", "drop.txt"):
        (tmp_path / "tree" / "src" / name).write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "tree" / "src")
    for folder in ("tree/src", "link", "tree/src/../src", "link/../src"):
        assert [each.name for each in folder_files(tmp_path / folder, FileKinds())] == ["keep.txt"]


def test_a_name_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    try:
        (tmp_path / os.fsdecode(b"a\xff.txt")).write_text("x")
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    (found,) = folder_files(tmp_path, FileKinds())
    assert isinstance(found, Unlisted)
    assert "its name is not UTF-8" in str(found.error)
    assert not isinstance(found, FolderFile)
