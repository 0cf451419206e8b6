"""Parts of other packages are found by name; what fails or is not a part is named with its distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

import pytest
from support.indexes.word_encoder import WordEncoder

from quarry.engine import Engine, Mean, build, open_encoder
from quarry.engine.representation.registry import representation_for, stored_representation
from quarry.engine.search.reranker import open_reranker
from quarry.formats.errors import ExtensionFailed, InvalidDocument, InvalidSetting
from quarry.readers import FileText, UnreadableError

ENCODER = WordEncoder(dim=16)
MODULE = """
class Part:
    pass

class Representation:
    name, reads, pooling = "{name}", "token", None
    def __init__(self, size=3):
        self.size = size
    def settings(self):
        return dict(size=self.size)
    def represent(self, text, windows, normalize):
        from quarry.engine import Mean
        return Mean().represent(text, windows, normalize)

def fail():
    raise KeyError("no key")

def nothing():
    return None
"""


@dataclass(frozen=True)
class Given(Mean):
    """A representation that no package registers."""

    size: int = 2
    name: ClassVar[str] = "given-here"

    def settings(self) -> dict[str, int]:
        return {"size": self.size}


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Return a function (kind, name, object) that installs a package whose entry point it is."""
    n_installed = 0

    def install(kind: str, name: str, place: str) -> None:
        nonlocal n_installed
        n_installed += 1
        site = tmp_path / f"site{n_installed}"
        folder = site / f"acme{n_installed}-2.0.dist-info"
        folder.mkdir(parents=True)
        module = f"acme_{uuid4().hex}"  # of no other test: modules stay imported
        (site / f"{module}.py").write_text(MODULE.format(name=name), encoding="utf-8")
        entry = f"[quarry.{kind}s]\n{name} = {module}:{place}\n"
        (folder / "entry_points.txt").write_text(entry, encoding="utf-8")
        (folder / "METADATA").write_text(f"Name: acme{n_installed}\nVersion: 2.0\n", encoding="utf-8")
        monkeypatch.syspath_prepend(site)

    return install


def use(kind: str, name: str, folder: Path) -> object:
    index = folder / "index"
    if kind == "representation":
        return build(["a text"], index, encoder=ENCODER, representation=name, overwrite=True)
    if kind == "backend":
        build(["a text"], index, encoder=ENCODER, overwrite=True)
        return Engine.open(index, backend=name).close()
    if kind == "reader":
        (folder / f"file.{name}").write_text("content", encoding="utf-8")
        return build(folder / f"file.{name}", index, encoder=ENCODER, overwrite=True)
    return open_encoder(name) if kind == "encoder" else open_reranker(name)


KINDS = ("backend", "encoder", "reader", "representation", "reranker")


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_cannot_be_loaded_is_named_with_its_distribution(kind, register, tmp_path) -> None:
    register(kind, "lost", "missing")
    with pytest.raises(ExtensionFailed, match=rf"the {kind} 'lost' of acme1 2.0 cannot be used.*AttributeError"):
        use(kind, "lost", tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_two_packages_with_one_name_are_named(kind, register, tmp_path) -> None:
    register(kind, "twice", "Part")
    register(kind, "twice", "Part")
    with pytest.raises(
        ExtensionFailed, match=rf"several packages register the {kind} 'twice'.*acme1 2.0, acme2 2.0"
    ):
        use(kind, "twice", tmp_path)


@pytest.mark.parametrize(
    ("kind", "place", "problem"),
    [
        ("backend", "Part", "is not a class with the method needed_bytes"),
        ("encoder", "fail", "KeyError: 'no key'"),
        ("encoder", "nothing", "not a function that returns something"),
        ("reranker", "fail", "KeyError: 'no key'"),
        ("representation", "Part", "not an object with the methods represent and settings"),
        ("representation", "fail", "KeyError: 'no key'"),
        ("representation", "nothing", "not an object with the methods"),
        ("reader", "__name__", "it is not a function"),
    ],
)
def test_what_is_no_part_is_refused(kind, place, problem, register, tmp_path) -> None:
    register(kind, "odd", place)
    with pytest.raises(ExtensionFailed, match=rf"the {kind} 'odd' of acme1 2.0 cannot be used; found .*{problem}"):
        use(kind, "odd", tmp_path)


def test_objects_that_are_no_parts_are_refused(register, tmp_path) -> None:
    register("encoder", "part", "Part")
    register("reranker", "part", "Part")
    with pytest.raises(InvalidSetting, match="not an encoder"):
        open_encoder("part")
    with pytest.raises(InvalidSetting, match="not a reranker"):
        open_reranker("part")


def test_an_unknown_name_has_the_nearest_ones(register, tmp_path) -> None:
    register("representation", "halves", "Representation")
    with pytest.raises(InvalidSetting, match=r"one of pieces, .*halves \(the nearest: halves\); found 'halfes'"):
        build(["a text"], tmp_path / "index", encoder=ENCODER, representation="halfes")


def test_a_misspelled_encoder_or_reranker_is_named(register) -> None:
    register("reranker", "letters", "Part")
    with pytest.raises(
        InvalidSetting, match=r"unknown encoder; .*the nearest: quarry-minilm-l6\); found 'quary-minilm-l6'"
    ):
        open_encoder("quary-minilm-l6")
    with pytest.raises(InvalidSetting, match=r"unknown reranker; .*the nearest: letters\); found 'leters'"):
        open_reranker("leters")


def test_names_of_quarrys_parts_are_not_taken(register, tmp_path) -> None:
    parts = ("representation", "mean"), ("backend", "scan"), ("reader", "txt"), ("encoder", "quarry-minilm-l6")
    for kind, name in parts:
        register(kind, name, "fail")
        use(kind, name, tmp_path)


def test_an_index_names_the_representation_that_is_missing(register, tmp_path, monkeypatch) -> None:
    register("representation", "acme_rep", "Representation")
    path = tmp_path / "index"
    build(["a text"], path, encoder=ENCODER, representation="acme_rep", shards=2)
    with Engine.open(path, encoder=ENCODER, writable=True) as index:
        index.add(["another text"])
        index.commit()
    monkeypatch.undo()
    with pytest.raises(InvalidSetting, match="representation 'acme_rep', which no installed package registers"):
        Engine.open(path, encoder=ENCODER, writable=True)
    with Engine.open(path, encoder=ENCODER) as index:  # a search needs none
        assert len(index.search("text", mode="dense")) == 2


def test_a_file_gives_no_settings_to_a_package(register) -> None:
    register("representation", "sized", "Representation")
    assert stored_representation("sized", {"size": 3}).settings() == {"size": 3}
    for settings in ({"size": 4}, {}, {"size": 3, "other": 1}):
        with pytest.raises(InvalidSetting, match="stored settings of the representation 'sized' are not those"):
            stored_representation("sized", settings)


def test_objects_of_other_classes_are_given_again_to_change_an_index(tmp_path) -> None:
    path = tmp_path / "index"
    build(["a text"], path, encoder=ENCODER, representation=Given(5), workers=1)
    with pytest.raises(InvalidSetting, match="representation 'given-here', which no installed package registers"):
        Engine.open(path, encoder=ENCODER, writable=True)
    with pytest.raises(InvalidSetting, match=r"another value of representation; expected .*6}; found .*5}"):
        Engine.open(path, encoder=ENCODER, representation=Given(6))
    with Engine.open(path, encoder=ENCODER, representation=Given(5), writable=True) as index:
        index.add(["another text"])
        index.commit()
        index.reencode(WordEncoder(dim=8))
        assert len(index.search("text", mode="dense")) == 2


def read_cards(content: bytes) -> list[FileText]:
    if not content.startswith(b"CARDS"):
        raise UnreadableError("does not begin with CARDS")
    lines = content.decode().splitlines()[1:]
    return [FileText(line, part=f"card {number}") for number, line in enumerate(lines, 1)]


def test_readers_are_given_as_functions(tmp_path) -> None:
    folder, path = tmp_path / "notes", tmp_path / "index"
    folder.mkdir()
    (folder / "a.card").write_text("CARDS\nbread\ntea", encoding="utf-8")
    (folder / "b.txt").write_text("CARDS\nsoup", encoding="utf-8")
    readers = {".card": read_cards, ".txt": read_cards}
    assert build(folder / "a.card", path, encoder=ENCODER, readers=readers).n_documents == 2
    build(folder, path, encoder=ENCODER, readers=readers, overwrite=True)
    with Engine.open(path, encoder=ENCODER, writable=True) as index:
        assert sorted(index.ids()) == ["a.card#1", "a.card#2", "b.txt#1"]
        (folder / "a.card").write_text("CARDS\nmilk", encoding="utf-8")
        (folder / "b.txt").write_text("soup", encoding="utf-8")
        report = index.sync(folder, readers=readers)
        assert report.changed == ("a.card",)
        assert "does not begin with CARDS" in report.failed["b.txt"]
        assert sorted(index.ids()) == ["a.card#1", "b.txt#1"]
        with pytest.raises(InvalidDocument, match="does not begin with CARDS"):
            index.add(folder / "b.txt", readers=readers)


@pytest.mark.parametrize(
    "readers", [[read_cards], {"card": read_cards}, {".a.b": read_cards}, {".csv": read_cards}, {".x": 5}]
)
def test_readers_that_are_none(readers, tmp_path) -> None:
    with pytest.raises(InvalidSetting, match="readers are not valid; expected a mapping of endings"):
        build(tmp_path, tmp_path / "index", encoder=ENCODER, readers=readers)


def test_readers_need_a_path(tmp_path) -> None:
    with pytest.raises(InvalidSetting, match="docs is not a path"):
        build(["a text"], tmp_path / "index", encoder=ENCODER, readers={".card": read_cards})


def test_a_bundle_that_names_a_representation_of_a_package(register) -> None:
    @dataclass(frozen=True)
    class Trained(WordEncoder):
        trained_representation: str = "sized"  # type: ignore[misc]
        quantizer: None = None
        size: int = 4

        @property
        def representation_settings(self) -> dict[str, int]:
            return {"size": self.size}

    register("representation", "sized", "Representation")
    assert representation_for(Trained(size=3)).settings() == {"size": 3}
    with pytest.raises(InvalidSetting, match="stored settings of the representation 'sized' are not those"):
        representation_for(Trained())
