"""`Engine.sync`: files that are added, changed, removed or unchanged, and the report."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.indexes.file_samples import read_documents
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.engine.cli.commands import main
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import AccessFailed, CommitFailed, InvalidDocument, InvalidSetting, ReadOnlyIndex
from quarry.readers.folders import without_links

ENCODER = WordEncoder(dim=16)
OLD = 1_600_000_000_000_000_000  # nanoseconds, far from the times of the tests; Windows rounds to hundreds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a folder with three files."""
    for name in ("a.txt", "b.md", "sub/c.py"):
        write(tmp_path / "files" / name, f"Text of {name}.")
    return tmp_path / "files"


@pytest.fixture(params=[None, 3], ids=["one", "shards"])
def index(folder: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Open an index of the folder and one more document, with and without shards."""
    engine.build(["Given by a caller."], tmp_path / "index", encoder=ENCODER, threads=1, shards=request.param)
    with Engine.open(tmp_path / "index", writable=True, encoder=ENCODER, threads=1) as opened:
        opened.sync(folder)
        yield opened


def write(path: Path, text: str | bytes, modified: int = OLD) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(path, ns=(modified, modified))


def before_reading(patch: pytest.MonkeyPatch, folder: Path, see: Callable[[Path], object]) -> None:
    """Call a function with the path of each file of a folder before it is opened."""
    real = os.open

    def opened(path: Any, *arguments: Any, **options: Any) -> int:
        if "dir_fd" not in options and Path(path).is_relative_to(folder) and Path(path).suffix:
            see(Path(path))
        return real(path, *arguments, **options)

    patch.setattr(os, "open", opened)


def texts(index: Engine) -> dict[str, str]:
    found = index.search("text given", k=100, mode="dense")
    return {hit.id: hit.text for hit in found if "file" in hit.metadata}


def expected(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.read_bytes().strip())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


def test_all_kinds_of_changes_in_one_commit(folder: Path, index: Engine) -> None:
    assert texts(index) == expected(folder)
    before = index.stats()["generation"]
    write(folder / "a.txt", "Text anew.", OLD + 1_000)
    (folder / "b.md").unlink()
    write(folder / "d.txt", "Text of d.")
    report = index.sync(folder)
    assert (report.added, report.changed, report.removed) == (("d.txt",), ("a.txt",), ("b.md",))
    assert (report.n_unchanged, report.failed, report.empty) == (1, {}, ())
    assert report.generation == index.stats()["generation"]
    assert before < report.generation <= before + index.stats().get("n_shards", 1)
    assert texts(index) == expected(folder)
    assert len(index) == 4  # with the document of the caller
    again = index.sync(folder)
    assert (again.n_unchanged, again.generation) == (3, report.generation)


def test_a_dry_run_changes_nothing_and_needs_no_writer(folder: Path, index: Engine, tmp_path: Path) -> None:
    write(folder / "a.txt", "Text anew.", OLD + 1_000)
    write(folder / "bad.docx", "no")
    with Engine.open(tmp_path / "index") as reader:
        report = reader.sync(folder, dry_run=True)
        assert (report.changed, list(report.failed), report.generation) == (("a.txt",), ["bad.docx"], None)
        with pytest.raises(ReadOnlyIndex):
            reader.sync(folder)
    assert index.get("a.txt")[0].text == "Text of a.txt."
    assert index.sync(folder).changed == ("a.txt",)


def test_time_and_size_are_enough_and_else_the_content_decides(folder: Path, index: Engine, monkeypatch) -> None:
    read: list[str] = []
    before_reading(monkeypatch, folder, lambda path: read.append(path.name))
    assert index.sync(folder).n_unchanged == 3
    assert read == []
    write(folder / "a.txt", "Text of a.txt.", OLD + 1_000)  # touched
    assert index.sync(folder).n_unchanged == 3
    assert read == ["a.txt"]
    write(folder / "b.md", "Text of B.md.", OLD + 2_000)  # of the same size
    assert index.sync(folder).changed == ("b.md",)


def test_a_change_within_the_clock_of_the_file_system_is_found(folder: Path, index: Engine) -> None:
    (folder / "e.txt").write_text("One.")
    status = (folder / "e.txt").stat()
    index.sync(folder)
    write(folder / "e.txt", "Two.", status.st_mtime_ns)
    assert index.sync(folder).changed == ("e.txt",)


def test_unreadable_files_are_not_treated_as_deleted(folder: Path, index: Engine, monkeypatch) -> None:
    write(folder / "page.html", "<p>Text of a page.")
    index.sync(folder)
    known = texts(index)
    write(folder / "page.html", b"\0\0", OLD + 1_000)
    real = os.scandir

    def refuse(path: object) -> object:
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return real(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", refuse)
    report = index.sync(folder)
    assert set(report.failed) == {"page.html", "sub/"}
    assert "binary" in report.failed["page.html"]
    assert (report.removed, report.n_unchanged) == ((), 2)
    assert texts(index) == known


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
@pytest.mark.parametrize("linked", ["b.md", "sub", "sub/deep", "sub/deep/t.csv"])
@pytest.mark.parametrize("is_build", [False, True])
def test_links_made_after_the_listing_are_not_followed(
    folder: Path, tmp_path: Path, monkeypatch, linked: str, is_build: bool
) -> None:
    outside = tmp_path / "outside"
    for name in ("b.md", "sub/deep/t.csv", "deep/t.csv", "t.csv"):
        write(outside / name, "id,text\n1,secret\n")
    write(folder / "sub/deep/t.csv", "id,text\n1,public\n")
    target = outside / {"b.md": "b.md", "sub": "sub", "sub/deep": "deep", "sub/deep/t.csv": "t.csv"}[linked]

    def replace(_: Path) -> None:
        if not (folder / linked).is_symlink():
            (folder / linked).rename(tmp_path / "moved")
            (folder / linked).symlink_to(target)

    before_reading(monkeypatch, folder, replace)
    with Engine.open(tmp_path / "index", create=True, writable=True, encoder=ENCODER) as index:
        if is_build:
            with pytest.raises((InvalidDocument, AccessFailed), match=r"replaced|cannot be read"):
                index.add(folder)
        else:
            assert index.sync(folder).failed
        assert not [text for text in texts(index).values() if "secret" in text]


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
@pytest.mark.parametrize("is_plain", [False, True])
def test_a_table_that_becomes_a_link_while_rows_are_read(
    folder: Path, tmp_path: Path, monkeypatch, is_plain: bool
) -> None:
    write(tmp_path / "secret.csv", "id,text\n1,secret\n")
    write(folder / "t.csv", "id,text\n1,public\n")
    if is_plain:
        monkeypatch.setattr(without_links, "has_descriptors", lambda: False)
    read: list[str] = []
    before_reading(monkeypatch, folder, lambda path: read.append(path.name))

    def check_then_link(real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def look_up(path: object, **options: Any) -> os.stat_result:
            found = real(path, **options)
            if "t.csv" in read and str(path).endswith("t.csv"):
                read.clear()
                (folder / "t.csv").unlink()
                (folder / "t.csv").symlink_to(tmp_path / "secret.csv")
            return found

        return look_up

    monkeypatch.setattr(os, "lstat" if is_plain else "stat", check_then_link(os.lstat if is_plain else os.stat))
    with Engine.open(tmp_path / "index", create=True, writable=True, encoder=ENCODER) as index:
        index.sync(folder)
        assert (folder / "t.csv").is_symlink()
        assert texts(index)["t.csv#1"] == "public"
        monkeypatch.undo()
        (folder / "t.csv").unlink()
        (folder / "sub").rename(tmp_path / "sub")
        (folder / "sub").symlink_to(tmp_path / "sub")
        assert "t.csv" in index.sync(folder).removed


def test_a_document_that_cannot_be_encoded_is_reported(folder: Path, tmp_path: Path) -> None:
    class Picky(WordEncoder):
        def windows(self, text: str):
            if "poison" in text:
                raise InvalidDocument("not this one")
            return super().windows(text)

    encoder = Picky(dim=16)
    engine.build([], tmp_path / "picky", encoder=encoder, threads=1)
    with Engine.open(tmp_path / "picky", writable=True, encoder=encoder, threads=1) as index:
        index.sync(folder)
        write(folder / "a.txt", "poison", OLD + 1_000)
        write(folder / "n.txt", "poison", OLD + 1_000)
        write(folder / "z.txt", "Text of z.", OLD + 1_000)
        report = index.sync(folder)
        assert (report.added, report.changed, set(report.failed)) == (("z.txt",), (), {"a.txt", "n.txt"})
        assert index.get("a.txt")[0].text == "Text of a.txt."


def test_files_that_are_ignored_or_blank_leave_the_index(folder: Path, index: Engine) -> None:
    write(folder / ".gitignore", "sub/\n")
    write(folder / "b.md", "\n", OLD + 1_000)
    report = index.sync(folder)
    assert (report.removed, report.empty) == (("b.md", "sub/c.py"), ("b.md",))
    assert list(texts(index)) == ["a.txt"]


def test_a_mailbox_that_shrinks_loses_its_last_messages(folder: Path, index: Engine) -> None:
    messages = [f"From x\nSubject: Mail {number}\n\nText {number}.\n\n" for number in range(3)]
    write(folder / "m.mbox", "".join(messages))
    assert index.sync(folder).added == ("m.mbox",)
    write(folder / "m.mbox", "".join(messages[:2]), OLD + 1_000)
    assert index.sync(folder).changed == ("m.mbox",)
    assert sorted(name for name in texts(index) if "#" in name) == ["m.mbox#1", "m.mbox#2"]
    (folder / "m.mbox").unlink()
    index.sync(folder)
    assert texts(index) == expected(folder)


def test_renamed_and_copied_files_are_not_encoded_again(folder: Path, index: Engine, monkeypatch) -> None:
    """All files may be renamed, also the only one; documents of tables and mailboxes follow, too."""
    write(folder / "t.csv", "id,text\nx,Text of a row.\ny,Text of another.\n")
    index.sync(folder)
    known = sorted(texts(index).values())
    encoded: set[str] = set()
    real = WordEncoder.windows
    monkeypatch.setattr(WordEncoder, "windows", lambda self, text: (encoded.add(text), real(self, text))[1])
    for path in [each for each in folder.rglob("*") if each.is_file()]:
        path.rename(path.with_name(f"new {path.name}"))
    report = index.sync(folder)
    assert (len(report.added), len(report.removed), report.failed) == (4, 4, {})
    assert report.moved["sub/new c.py"] == "sub/c.py"
    assert sorted(report.moved.values()) == ["a.txt", "b.md", "sub/c.py", "t.csv"]
    assert sorted(texts(index).values()) == known
    shutil.copy(folder / "new a.txt", folder / "copy.txt")
    assert index.sync(folder).moved == {"copy.txt": "new a.txt"}
    for path in [each for each in folder.rglob("*") if each.is_file() and each.name != "copy.txt"]:
        path.unlink()
    index.sync(folder)
    (folder / "copy.txt").rename(folder / "last.txt")
    assert index.sync(folder).moved == {"last.txt": "copy.txt"}
    assert texts(index) == {"last.txt": "Text of a.txt."}
    assert encoded == {"text given"}  # the query


def test_files_are_chosen_by_patterns(folder: Path, index: Engine, tmp_path: Path) -> None:
    report = index.sync(folder, exclude=["sub/", "*.md"])
    assert (report.removed, report.n_unchanged) == (("b.md", "sub/c.py"), 1)
    with pytest.raises(InvalidSetting, match="or passes the patterns"):
        index.sync(folder, include=["*.py", "/b.*"])
    assert index.sync(folder, include=["*.py", "/b.*"], remove_all=True).added == ("b.md", "sub/c.py")
    assert texts(index).keys() == {"b.md", "sub/c.py"}
    assert index.sync(folder, include="sub", exclude="!c.py").removed == ("b.md",)
    with pytest.raises(InvalidSetting, match="not a pattern"):
        index.sync(folder, exclude=[""])
    with pytest.raises(InvalidSetting, match="not a pattern"):
        index.sync(folder, include=7)
    words = ["sync", str(folder), str(tmp_path / "new"), "--include", "*.md", "--include", "*.txt", "--exclude"]
    assert main([*words, "a.*", "--dry-run"]) == 0


LOG = "\n".join(f"2025 error number{n}: disk full in volume {n % 7}" for n in range(400))


@pytest.mark.parametrize("metric", ["cosine", "ip"])
@pytest.mark.parametrize("shards", [None, 3])
def test_large_files_are_found_by_words_alone(
    folder: Path, tmp_path: Path, metric: str, shards: int | None
) -> None:
    write(folder / "a.log", LOG)
    write(folder / "rows.csv", "id,text\n" + "\n".join(f"{n},row number{n} of disks" for n in range(400)))
    settings: Any = {"encoder": ENCODER, "metric": metric, "shards": shards, "threads": 1}
    with Engine.open(tmp_path / "index", create=True, writable=True, **settings) as index:
        report = index.sync(folder, vectors_up_to="8kB")
        assert report.by_words == ("a.log", "rows.csv")
        assert (len(report.added), report.failed, len(index)) == (5, {}, 404)
        assert index.sync(folder, vectors_up_to=8000).n_unchanged == 5
        (log,) = index.get("a.log", vectors=True)
        assert (log.stored_as, log.vectors is not None and log.vectors.any()) == ("words", False)
        assert log.metadata["file"]["indexed"] == "words"  # type: ignore[index]
        for mode in ("hybrid", "lexical", "dense"):
            for unit in ("document", "passage"):
                hits = index.search("number123", k=500, mode=mode, unit=unit, explain=True)
                found = {hit.id: hit for hit in hits if mode == "dense" or hit.lexical_score}
                assert {"a.log", "rows.csv#123"} <= found.keys(), (mode, unit)
                assert mode == "dense" or found["a.log"].passages[0].text.count("number123") == 1
                assert mode == "lexical" or found["a.log"].dense_score == 0
        assert index.count({"file.indexed": "words"}) == 401
        index.add(index.get("a.log", vectors=True))
        index.commit()
        index.merge()
        index.verify()

        write(folder / "z.log", LOG)  # the same content, and now with vectors
        report = index.sync(folder, vectors_up_to="9kB", exclude="a.log")
        assert (report.added, report.changed, report.by_words) == (("z.log",), (), ("z.log",))
        report = index.sync(folder)
        assert (report.added, report.changed) == (("a.log",), ("rows.csv", "z.log"))
        assert (report.by_words, report.moved) == ((), {})
        assert not any(document.stored_as == "words" for document in index.get(index.ids(), vectors=True))
        for wrong in ("much", -1, "1 parsec"):
            with pytest.raises(InvalidSetting, match="vectors_up_to is not a size"):
                index.sync(folder, vectors_up_to=wrong)


def test_files_that_are_not_read_are_named(folder: Path, tmp_path: Path, capsys) -> None:
    for name in (
        "photo.jpg",
        "sub/film.mov",
        ".hidden.jpg",
        "drafts/x.jpg",
        *(f"many/{n}.jpg" for n in range(30)),
    ):
        write(folder / name, b"\xff\xd8")
    with Engine.open(tmp_path / "i", create=True, writable=True, encoder=ENCODER) as index:
        report = index.sync(folder, exclude=["drafts/", "many/"])
        assert set(report.left_out) == {"photo.jpg", "sub/film.mov"}
        assert set(report.left_out.values()) == {"files of this kind are not read"}
        assert index.sync(folder, include="*.mov", remove_all=True).left_out.keys() == {"sub/film.mov"}
    assert main(["sync", str(folder), str(tmp_path / "index"), "--dry-run"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith(". "))
    assert line.endswith("and 13 more: files of this kind are not read")


def test_zeros_are_not_near_by_distance(folder: Path, tmp_path: Path) -> None:
    with Engine.open(tmp_path / "i", create=True, writable=True, encoder=ENCODER, metric="l2") as index:
        with pytest.raises(InvalidSetting, match="found l2"):
            index.sync(folder, vectors_up_to="1MB")
        assert index.sync(folder).n_unchanged == 0


def test_the_command_names_large_files(folder: Path, tmp_path: Path, capsys) -> None:
    write(folder / "a.log", LOG)
    command = ["sync", str(folder), str(tmp_path / "index"), "--vectors-up-to", "8kB"]
    assert main([*command, "--dry-run"]) == 0
    assert "+ a.log (large: found by words alone)" in capsys.readouterr().out
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "+ a.log (large: found by words alone)" in out
    assert "1 by words alone; generation" in out
    assert main(["search", str(tmp_path / "index"), "number123"]) == 0
    assert "a.log" in capsys.readouterr().out
    exported = tmp_path / "documents.jsonl"
    assert main(["export-docs", str(tmp_path / "index"), str(exported), "--vectors"]) == 0
    assert main(["build", str(exported), str(tmp_path / "other")]) == 0
    assert main([*command[:3], "--vectors-up-to", "lots"]) == 1
    assert "vectors_up_to is not a size" in capsys.readouterr().err


@pytest.mark.parametrize("shards", [None, 3])
def test_an_index_that_is_opened_and_synchronized_is_as_one_that_is_built(
    folder: Path, tmp_path: Path, shards: int | None
) -> None:
    def fields(index: Engine, word: str) -> int:
        return len(index.search(word, k=9, mode="lexical"))

    write(folder / "letters" / "a.txt", "Dear Ada.")
    settings: Any = {"encoder": ENCODER, "shards": shards}
    engine.build(folder, tmp_path / "built", **settings)
    with Engine.open(tmp_path / "new", create=True, writable=True, **settings) as index:
        index.set_synonyms({"mail": ["letters"]})
        index.sync(folder)
        with Engine.open(tmp_path / "built", encoder=ENCODER) as built:
            assert [fields(index, "letters"), fields(built, "letters")] == [1, 1]
        assert fields(index, "mail") == 1  # what was set before the first document stays
    with Engine.open(tmp_path / "new", create=True, writable=True, **settings) as index:
        assert fields(index, "letters") == 1
        write(folder / "letters" / "b.txt", "Dear Bob.")
        index.sync(folder)
        assert fields(index, "letters") == 2
    for given in ([], ["author"]):
        with Engine.open(
            tmp_path / f"own{len(given)}", create=True, writable=True, searchable=given, **settings
        ) as own:
            own.sync(folder)
            assert fields(own, "letters") == 0


def test_the_command_follows_changes(folder: Path, tmp_path: Path, repository: Path) -> None:
    pytest.importorskip("watchfiles", reason="following a folder needs the extra watch")
    command = [sys.executable, "-m", "quarry", "sync", str(folder), str(folder / "index"), "--watch"]
    with subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(4)]
            assert lines[0] == "+ a.txt\n"
            (folder / "a.txt").rename(folder / "z.txt")
            assert process.stdout.readline() == "+ z.txt (was a.txt)\n"
        finally:
            process.kill()


def test_ids_do_not_depend_on_the_form_of_names(folder: Path, index: Engine) -> None:
    """macOS writes names with combining characters (NFD); ids and comparisons are those of NFC."""
    one, other = "caf\u00e9.txt", "cafe\u0301.txt"
    write(folder / other, "Text of a café.")
    assert index.sync(folder).added == (other,)
    assert index.get([one])[0].metadata["file"]["path"] == other
    write(folder / "table\u0301.csv", "id,text\n1,Text of a row.\n")
    index.sync(folder)
    assert index.get(["tabl\u00e9.csv#1"])[0].text == "Text of a row."
    (folder / other).rename(folder / one)
    report = index.sync(folder)
    assert (report.added, report.removed, report.n_unchanged) == ((), (), 5)
    assert index.get([one])[0].metadata["file"]["path"] == one
    write(folder / other, "Text of another café.")  # some systems have both
    assert index.sync(folder).failed.keys() == {other}
    assert index.get([one])[0].text == "Text of a café."


def test_a_name_of_which_only_the_case_changes(folder: Path, index: Engine) -> None:
    (folder / "a.txt").rename(folder / "a.tmp").rename(folder / "A.txt")  # Wine does nothing for a change of case
    report = index.sync(folder)
    assert (report.added, report.removed) == (("A.txt",), ("a.txt",))
    assert texts(index) == expected(folder)


def test_a_folder_without_its_files_is_refused(folder: Path, index: Engine, tmp_path: Path) -> None:
    known = texts(index)
    shutil.rmtree(folder)
    for names in ([], ["x.txt"]):
        folder.mkdir(exist_ok=True)
        for name in names:
            write(folder / name, "Text.")
        with pytest.raises(InvalidSetting, match=r"none of the 3 files.*remove_all=True"):
            index.sync(folder)
        with pytest.raises(InvalidSetting, match="none of the 3 files"):
            index.sync(folder, dry_run=True)
        for name in names:
            (folder / name).unlink()
    with pytest.raises(InvalidSetting, match="no such folder"):
        index.sync(tmp_path / "none")
    write(folder / "x.txt", "Text.")
    with pytest.raises(InvalidSetting, match="no such folder"):
        index.sync(folder / "x.txt")
    assert texts(index) == known
    assert index.sync(folder, remove_all=True).removed == ("a.txt", "b.md", "sub/c.py")
    assert list(texts(index)) == ["x.txt"]


def test_documents_that_came_from_elsewhere_are_not_replaced(folder: Path, index: Engine) -> None:
    messages = [f"From x\nSubject: Mail {number}\n\nText {number}.\n\n" for number in range(3)]
    write(folder / "m.mbox", "".join(messages[:2]))
    index.sync(folder)
    foreign = {"d.txt": "Text of a caller.", "m.mbox#3": "Text of another."}
    index.add([{"id": doc_id, "text": text} for doc_id, text in foreign.items()])
    index.commit()
    write(folder / "d.txt", "Text of d.")
    write(folder / "m.mbox", "".join(messages), OLD + 1_000)
    write(folder / "e.txt", "Text of e.")
    for is_dry in (True, False):
        report = index.sync(folder, dry_run=is_dry)
        assert (report.added, report.changed, report.removed) == (("e.txt",), (), ())
        assert list(report.failed) == ["d.txt", "m.mbox"]
        assert "the id 'd.txt' that was not read from a file" in report.failed["d.txt"]
        assert "the id 'm.mbox#3' that was not read from a file" in report.failed["m.mbox"]
    (folder / "d.txt").unlink()
    (folder / "m.mbox").unlink()
    assert index.sync(folder).removed == ("m.mbox",)
    assert {doc_id: index.get(doc_id)[0].text for doc_id in foreign} == foreign
    index.delete("d.txt")
    index.commit()
    write(folder / "d.txt", "Text of d.")
    assert index.sync(folder).added == ("d.txt",)


def test_documents_of_other_folders_stay(folder: Path, index: Engine, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write(other / "a.txt", "Text of another a.")  # a document of the first folder has the same path
    write(other / "x.txt", "Text of x.")
    write(tmp_path / "third" / "y.txt", "Text of y.")
    index.add(tmp_path / "third" / "y.txt")
    index.commit()
    report = index.sync(other)
    assert (report.added, report.removed, list(report.failed)) == (("x.txt",), (), ["a.txt"])
    assert "that was not read from a file of this folder; it stays" in report.failed["a.txt"]
    assert texts(index) == expected(folder) | {"x.txt": "Text of x.", "y.txt": "Text of y."}
    (folder / "b.md").unlink()
    assert index.sync(folder).removed == ("b.md",)
    (other / "x.txt").unlink()
    with pytest.raises(InvalidSetting, match="none of the 1 files"):
        index.sync(other)
    assert index.sync(other, remove_all=True).removed == ("x.txt",)
    assert texts(index) == expected(folder) | {"y.txt": "Text of y."}
    assert index.delete(filter={"file.folder": str(folder)}) == 2


def test_a_folder_that_was_moved_is_not_encoded_again(
    folder: Path, index: Engine, tmp_path: Path, monkeypatch
) -> None:
    encoded: list[str] = []
    moved = folder.rename(tmp_path / "moved")
    write(moved / "a.txt", "Text anew.", OLD + 1_000)
    (moved / "b.md").unlink()
    real = WordEncoder.windows
    monkeypatch.setattr(WordEncoder, "windows", lambda self, text: (encoded.append(text), real(self, text))[1])
    report = index.sync(moved)
    assert (report.added, report.changed, report.removed, report.failed) == ((), ("a.txt",), (), {})
    assert (report.n_unchanged, encoded) == (1, ["Text anew."])
    assert texts(index) == expected(moved) | {"b.md": "Text of b.md."}  # it may have been deleted, or not moved
    assert index.sync(moved).n_unchanged == 2
    (moved / "sub" / "c.py").unlink()
    assert index.sync(moved).removed == ("sub/c.py",)


def test_documents_that_do_not_name_their_folder_belong_to_any(folder: Path, tmp_path: Path) -> None:
    documents = [
        {"id": doc.id, "text": doc.text, "metadata": without_folder(doc.metadata)}
        for doc in read_documents(folder)
    ]
    engine.build(documents, tmp_path / "old", encoder=ENCODER, threads=1)
    write(tmp_path / "other" / "x.txt", "Text.")
    (folder / "b.md").unlink()
    with Engine.open(tmp_path / "old", writable=True, encoder=ENCODER, threads=1) as index:
        with pytest.raises(InvalidSetting, match="none of the 3 files"):
            index.sync(tmp_path / "other")
        report = index.sync(folder)
        assert (report.removed, report.n_unchanged) == (("b.md",), 2)
        assert [doc.metadata["file"]["folder"] for doc in index] == [str(folder)] * 2
        assert index.sync(tmp_path / "other").removed == ()
        generation = index.stats()["generation"]
        assert index.sync(folder).generation == generation


def without_folder(metadata: Mapping[str, Any]) -> dict[str, object]:
    return {**metadata, "file": {name: value for name, value in metadata["file"].items() if name != "folder"}}


def test_a_long_run_commits_whole_files_on_its_way(folder: Path, tmp_path: Path, monkeypatch) -> None:
    engine.build([], tmp_path / "index", encoder=ENCODER, threads=1)
    write(folder / "m.mbox", "".join(f"From x\nSubject: Mail {number}\n\nText.\n\n" for number in range(5)))
    options = {"writable": True, "encoder": ENCODER, "threads": 1, "thresholds": Thresholds(sync_s=0)}

    def fail(path: Path) -> None:
        if path.name == "c.py":
            raise KeyboardInterrupt

    with Engine.open(tmp_path / "index", **options) as index:
        with monkeypatch.context() as patch:
            before_reading(patch, folder, fail)
            with pytest.raises(KeyboardInterrupt):
                index.sync(folder)
        index.refresh()
        assert len(index) == 7
        read: list[str] = []
        before_reading(monkeypatch, folder, lambda path: read.append(path.name))
        report = index.sync(folder)
        assert (read, report.added, report.n_unchanged) == (["c.py"], ("sub/c.py",), 3)
        assert len(index) == 8


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
def test_an_index_inside_the_folder_is_left_out(folder: Path, tmp_path: Path, capsys) -> None:
    path = folder / "sub" / "index"
    (tmp_path / "link").symlink_to(folder)
    for place in (folder, tmp_path / "link"):
        assert main(["sync", str(place), str(path)]) == 0
        write(path / "stray.txt", "Text inside of the index.")
    write(folder / "sub" / "index.txt", "Text beside the index.")
    with Engine.open(path) as index:
        report = index.sync(folder, dry_run=True)
    assert (report.added, report.n_unchanged) == (("sub/index.txt",), 3)
    capsys.readouterr()


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
@pytest.mark.parametrize("place", ["files", "link"])
def test_the_folder_of_the_index_is_refused(
    place: str, folder: Path, index: Engine, tmp_path: Path, capsys
) -> None:
    (tmp_path / "link").symlink_to(folder)
    before = sorted(path.name for path in folder.iterdir())
    for more in ([], ["--dry-run"]):
        assert main(["sync", str(folder), str(tmp_path / place), *more]) == 1  # there is no index yet
        assert "this is the folder of the index" in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == before
    with pytest.raises(InvalidSetting, match="this is the folder of the index"):
        index.sync(tmp_path / "index")


def test_changes_that_are_not_committed_are_not_mixed_in(folder: Path, index: Engine) -> None:
    index.add(["More."])
    with pytest.raises(InvalidSetting, match="not committed"):
        index.sync(folder)
    index.rollback()
    assert index.sync(folder).n_unchanged == 3


def test_a_commit_that_fails_leaves_nothing_behind(folder: Path, index: Engine, monkeypatch) -> None:
    write(folder / "d.txt", "Text of d.")
    known = texts(index)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        with pytest.raises(CommitFailed):
            index.sync(folder)
    assert texts(index) == known
    assert index.sync(folder).added == ("d.txt",)
    assert texts(index) == expected(folder)


def test_a_build_from_the_folder_is_followed_too(folder: Path, tmp_path: Path) -> None:
    engine.build(folder, tmp_path / "built", encoder=ENCODER, threads=1)
    with Engine.open(tmp_path / "built", writable=True, encoder=ENCODER, threads=1) as index:
        assert index.sync(folder).n_unchanged == 3
        index.merge()
        assert index.sync(folder).n_unchanged == 3
    assert Directory(tmp_path / "built").names()


def test_the_command(folder: Path, tmp_path: Path, capsys) -> None:
    path = str(tmp_path / "new")
    assert main(["sync", str(folder), path, "--dry-run"]) == 0  # there is no index yet
    planned = capsys.readouterr().out.splitlines()
    assert planned[:3] == ["+ a.txt", "+ b.md", "+ sub/c.py"]
    assert planned[3].endswith("nothing was changed")
    assert not Path(path).exists()
    assert main(["sync", str(folder), path]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:3] == ["+ a.txt", "+ b.md", "+ sub/c.py"]
    assert out[3].startswith("3 added, 0 changed, 0 removed, 0 failed, 0 without text, 0 unchanged; generation")
    write(folder / "bad.docx", "no")
    assert main(["sync", str(folder), path, "--json"]) == 1
    assert '"failed": {"bad.docx": ' in capsys.readouterr().out
    (folder / "bad.docx").unlink()
    (folder / "a.txt").unlink()
    assert main(["sync", str(folder), path, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "- a.txt"
    assert main(["search", path, "Text of b.md", "-k", "1"]) == 0
    assert "b.md" in capsys.readouterr().out


def test_the_rows_of_tables_are_followed(folder: Path, index: Engine) -> None:
    rows = [
        f'{{"_id": "{number}", "text": "Row {number}.", "metadata": {{"year": {number}}}}}' for number in range(4)
    ]
    write(folder / "sub" / "rows.jsonl", "\n".join(rows[:3]))
    write(folder / "numbers.csv", "text,size\nFirst,1\nSecond,2\nThird,3\n")
    write(folder / "package.json", '{\n  "name": "x"\n}\n')
    write(folder / "empty.json", "[]")
    report = index.sync(folder)
    assert (report.added, report.failed, report.empty) == (("numbers.csv", "sub/rows.jsonl"), {}, ("empty.json",))
    assert list(report.left_out) == ["package.json"]
    there = {doc_id: text for doc_id, text in texts(index).items() if "#" in doc_id}
    tables = {"numbers.csv#1": "First", "numbers.csv#2": "Second", "numbers.csv#3": "Third"}
    assert there == tables | {f"sub/rows.jsonl#{number}": f"Row {number}." for number in range(3)}
    assert index.count({"year": 2}) == index.count({"size": 3}) == 1
    assert str(index.search("Second", k=1, mode="lexical")[0].place) == "numbers.csv, row 2"
    again = index.sync(folder)
    assert (again.n_unchanged, again.generation) == (5, report.generation)
    write(folder / "sub" / "rows.jsonl", "\n".join([rows[0], rows[2], rows[3]]), OLD + 1_000)
    write(folder / "numbers.csv", "text,size\nFirst,1\n", OLD + 1_000)
    assert index.sync(folder).changed == ("numbers.csv", "sub/rows.jsonl")
    there = {doc_id: text for doc_id, text in texts(index).items() if "#" in doc_id}
    rest = {f"sub/rows.jsonl#{number}": f"Row {number}." for number in (0, 2, 3)}
    assert there == {"numbers.csv#1": "First"} | rest
    (folder / "numbers.csv").unlink()
    assert index.sync(folder).removed == ("numbers.csv",)
    assert {doc_id for doc_id in texts(index) if "#" in doc_id} == set(rest)


def test_a_table_that_is_broken_keeps_its_documents(folder: Path, index: Engine) -> None:
    write(folder / "rows.csv", "text\nFirst\nSecond\n")
    index.sync(folder)
    known = texts(index)
    for number, broken in enumerate(
        ("text\n\nx,y\n", "text\nFirst\nx,y\n", "other\nFirst\n", b"\xff\xfe\x00", "")
    ):
        write(folder / "rows.csv", broken, OLD + 1_000 + number)
        report = index.sync(folder)
        if broken:
            assert (list(report.failed), report.left_out, report.removed) == (["rows.csv"], {}, ()), broken
            assert texts(index) == known
    assert (report.removed, report.empty) == (("rows.csv",), ("rows.csv",))
    write(folder / "rows.csv", "text\nFirst\nx,y\n", OLD + 9_000)
    report = index.sync(folder)
    assert "line 3 has too many values" in report.failed["rows.csv"]


def test_columns_of_tables_are_named(folder: Path, index: Engine, tmp_path: Path, capsys) -> None:
    write(folder / "books.csv", "isbn,name,blurb\n007,Tides,The Moon.\n")
    report = index.sync(folder, dry_run=True)
    assert "no column 'text'; expected text='NAME'" in report.left_out["books.csv"]
    names = ["--id", "isbn", "--title", "name", "--text", "blurb"]
    assert main(["sync", str(folder), str(tmp_path / "index"), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^\. books\.csv: no column|^\. books\.csv: .*no column 'text'", out, re.MULTILINE), out
    assert "1 left out;" in out
    index.sync(folder, id="isbn", title="name", text="blurb")
    assert index.get("books.csv#007")[0].title == "Tides"
    for more in (["--dry-run"], []):
        assert main(["sync", str(folder), str(tmp_path / "new"), *names, *more]) == 0
        assert capsys.readouterr().out.splitlines()[2] == "+ books.csv"


def test_all_rows_of_a_table_are_added_or_none(folder: Path, index: Engine) -> None:
    table = folder / "t.jsonl"
    rows = ['{"id": "a", "text": "First"}', '{"id": "b", "text": "%s"}', '{"id": "c", "text": "Third"}']
    write(table, "\n".join(rows) % "\u200b")
    for is_dry in (True, False, False):
        report = index.sync(folder, dry_run=is_dry)
        assert (report.added, list(report.failed)) == ((), ["t.jsonl"])
        assert "t.jsonl#b" in report.failed["t.jsonl"]
        assert "no token" in report.failed["t.jsonl"]
        assert texts(index) == without(folder, "t.jsonl")
    write(table, "\n".join(rows) % "Second", OLD + 1_000)
    assert index.sync(folder).added == ("t.jsonl",)
    known = texts(index)
    write(table, '{"id": "a", "text": "Other"}\n{"id": "b", "text": "!"}', OLD + 2_000)
    for is_dry in (True, False, False):
        report = index.sync(folder, dry_run=is_dry)
        assert (report.changed, report.removed, list(report.failed)) == ((), (), ["t.jsonl"])
        assert texts(index) == known


def without(folder: Path, name: str) -> dict[str, str]:
    return {path: text for path, text in expected(folder).items() if path != name}


def test_what_the_encoder_refuses_late_undoes_the_other_rows_of_the_table(
    folder: Path, index: Engine, monkeypatch
) -> None:
    write(folder / "t.csv", "id,text\na,First\nb,Second\nc,Third\n")
    index.sync(folder)
    known = texts(index)
    real = WordEncoder.windows

    def windows(self: WordEncoder, text: str) -> object:
        if text == "poison":
            raise InvalidDocument("no vector")
        return real(self, text)

    monkeypatch.setattr(WordEncoder, "windows", windows)
    write(folder / "t.csv", "id,text\na,Other\nb,poison\n", OLD + 1_000)
    write(folder / "u.csv", "text\nFourth\npoison\n")
    write(folder / "d.txt", "Text of d.")
    (folder / "b.md").unlink()
    del known["b.md"]
    report = index.sync(folder)
    assert (report.added, report.changed, report.removed) == (("d.txt",), (), ("b.md",))
    assert (list(report.failed), report.n_unchanged) == (["t.csv", "u.csv"], 2)
    assert texts(index) == known | {"d.txt": "Text of d."}
    again = index.sync(folder)
    assert (again.failed, again.n_unchanged, again.generation) == (report.failed, 3, report.generation)


def test_a_file_without_tokens_fails_in_a_dry_run_too(folder: Path, index: Engine, tmp_path: Path, capsys) -> None:
    write(folder / "d.txt", "\u200b\u0301")
    for is_dry in (True, False, False):
        report = index.sync(folder, dry_run=is_dry)
        assert (report.added, report.empty, list(report.failed)) == ((), (), ["d.txt"])
    assert main(["sync", str(folder), str(tmp_path / "none"), "--dry-run"]) == 1
    assert "! d.txt: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "failed", "names"),
    [
        ({"t.jsonl": '{"id": "2", "text": "A"}\n{"text": "B"}'}, "t.jsonl", "'t.jsonl#2'"),
        ({"t.csv": "id,text\nd,First\nd,Second\n"}, "t.csv", "'t.csv#d'"),
        ({"t.csv": "id,text\nx.txt,First\n", "t.csv#x.txt": "Second."}, "t.csv#x.txt", "file 't.csv'"),
    ],
)
def test_an_id_that_two_documents_have_is_reported(
    files: dict[str, str], failed: str, names: str, folder: Path, index: Engine
) -> None:
    for name, text in files.items():
        write(folder / name, text)
    for is_dry in (True, False, False):
        report = index.sync(folder, dry_run=is_dry)
        assert list(report.failed) == [failed]
        assert names in report.failed[failed]
    known = {"t.csv#x.txt": "First"} if len(files) > 1 else {}
    assert {doc_id: text for doc_id, text in texts(index).items() if "#" in doc_id} == known
    (folder / next(iter(files))).unlink()
    index.sync(folder)
    index.sync(folder)
    assert {doc_id for doc_id in texts(index) if "#" in doc_id} == files.keys() - {next(iter(files))}


def test_a_new_file_does_not_take_the_place_of_one_that_the_index_has(folder: Path, index: Engine) -> None:
    write(folder / "t.csv#x.txt", "Second.")
    index.sync(folder)
    write(folder / "t.csv", "id,text\nx.txt,First\n")
    for _ in range(2):
        assert list(index.sync(folder).failed) == ["t.csv"]
        assert index.get("t.csv#x.txt")[0].text == "Second."


def test_a_table_that_is_damaged_fails_and_is_not_left_out(folder: Path, index: Engine) -> None:
    pytest.importorskip("pyarrow")
    write(folder / "t.parquet", b"PAR1xxxx")
    write(folder / "u.csv", "size\n1\n")
    for is_dry in (True, False, False):
        report = index.sync(folder, dry_run=is_dry)
        assert (list(report.failed), list(report.left_out)) == (["t.parquet"], ["u.csv"])


def test_a_table_that_has_not_changed_stays_whatever_the_names(folder: Path, index: Engine) -> None:
    write(folder / "t.csv", "id,text\na,First\n")
    index.sync(folder)
    report = index.sync(folder, text="nope")
    assert (report.failed, report.n_unchanged) == ({}, 4)
    assert index.get("t.csv#a")[0].text == "First"
