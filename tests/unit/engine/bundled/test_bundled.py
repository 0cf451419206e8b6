"""Bundled encoders: opened by name, by identity, and by the index that was built with one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.models.bundle_projects import BUNDLES, none_installed

from quarry.engine import EncoderMismatch, Engine, InvalidSetting, build, open_encoder
from quarry.engine.bundled import (
    BUNDLED,
    DEFAULT_NAME,
    INSTALLABLE,
    bundled_path,
    default_bundle_path,
    path_by_identity,
)
from quarry.engine.cli.commands import main

DOCS = [
    {"id": "tides", "text": "The Moon raises the tides."},
    {"id": "bread", "text": "Bread rises because of yeast."},
    {"id": "trains", "text": "The night train to the coast leaves at nine."},
]
QUESTION = "why does the sea level change every day?"
# Of DOCS, on x86-64.
SCORES = {"quarry-minilm-l6": [0.3544, 0.1399, 0.2359], "all-MiniLM-L6-v2": [0.4277, 0.2077, 0.2888]}
SCORE_BOUND = 0.02  # between machines; docs/platforms.md
OTHER = "all-MiniLM-L6-v2"
IDENTITIES = BUNDLED | {OTHER: "a5d4b94e229bbcc70d2387a095aa1302"}  # existing indexes need it


@pytest.mark.parametrize("name", IDENTITIES)
def test_every_name_is_a_bundle_of_that_name(name: str) -> None:
    encoder = open_encoder(bundled_path(name))
    assert (encoder.name, encoder.identity) == (name, IDENTITIES[name])
    assert path_by_identity(IDENTITIES[name]) == bundled_path(name)


def test_every_folder_is_listed() -> None:
    folder = default_bundle_path().parent
    assert {path.name for path in folder.iterdir() if (path / "bundle.json").exists()} == set(BUNDLED)
    projects = {f"quarry-{path.name}": f"./bundles/{path.name} " for path in BUNDLES.iterdir()}
    named = {each.distribution.split()[0]: each.distribution for each in INSTALLABLE.values()}
    assert named.keys() == projects.keys()
    assert all(place in named[name] for name, place in projects.items())


def test_an_unknown_name_or_identity() -> None:
    with pytest.raises(InvalidSetting, match=r"no encoder of this name.*found '../bundled'"):
        bundled_path("../bundled")
    assert path_by_identity("given vectors") is None


@pytest.mark.parametrize("name", IDENTITIES)
def test_a_name_is_an_encoder(name: str) -> None:
    assert open_encoder(name).identity == open_encoder(Path(name)).identity == IDENTITIES[name]


def test_an_unknown_name_is_a_folder_that_is_missing() -> None:
    with pytest.raises(InvalidSetting, match="there is no encoder bundle"):
        open_encoder("models/elsewhere")


@pytest.mark.parametrize("name", IDENTITIES)
def test_scores_are_those_of_other_machines_within_a_bound(name: str, tmp_path: Path) -> None:
    build(DOCS, tmp_path, encoder=name, threads=1)
    with Engine.open(tmp_path, threads=1) as index:
        scores = {hit.id: hit.score for hit in index.search(QUESTION, mode="dense")}
    assert [scores[document["id"]] for document in DOCS] == pytest.approx(SCORES[name], abs=SCORE_BOUND)


def test_a_folder_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name, other = OTHER, bundled_path(DEFAULT_NAME)
    assert open_encoder(name).identity == IDENTITIES[name]
    Path(name).mkdir()
    with pytest.raises(InvalidSetting, match="there is no encoder bundle"):
        open_encoder(name)
    Path(name).rmdir()
    shutil.copytree(other, name)
    assert open_encoder(name).identity == BUNDLED[DEFAULT_NAME]


@pytest.fixture(scope="module", params=[None, 2], ids=["one folder", "shards"])
def old_index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an index with an encoder that is not the default."""
    path = tmp_path_factory.mktemp("bundled") / "old"
    build(DOCS, path, encoder=OTHER, shards=request.param)
    return path


def test_an_index_opens_with_the_bundled_encoder_that_it_has(old_index: Path) -> None:
    with Engine.open(old_index) as index, Engine.open(old_index, encoder=OTHER) as chosen:
        assert index.encoder.identity == IDENTITIES[OTHER]
        hits = index.search("the Moon and the sea", k=3)
        assert hits[0].id == "tides"
        assert hits.answerable is not None  # by the calibration of the same encoder
        assert hits.to_dict() == chosen.search("the Moon and the sea", k=3).to_dict()


@pytest.mark.parametrize("name", INSTALLABLE)
def test_an_encoder_that_is_not_installed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with none_installed():
        for use in (open_encoder, bundled_path):
            with pytest.raises(InvalidSetting, match=f"'{name}' is not installed; expected quarry-") as caught:
                use(name)
            assert caught.value.expected == INSTALLABLE[name].distribution
        with pytest.raises(InvalidSetting, match=rf"unknown encoder.*the nearest: {name}"):
            open_encoder(f"{name}s")
        assert main(["encoders"]) == 0
        assert f"{name}: not installed: {INSTALLABLE[name].distribution}\n" in capsys.readouterr().out
        assert main(["encoders", "--json"]) == 0
    rows = {row["name"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert not rows[name]["installed"]
    assert rows[DEFAULT_NAME] == {"name": DEFAULT_NAME, "origin": "part of Quarry, the default", "installed": True}


def test_an_index_without_the_distribution_of_its_encoder(
    old_index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(old_index, tmp_path / "index")
    how = rf"expected {OTHER} \({IDENTITIES[OTHER]}\) of quarry-minilm \(pip install \./bundles/minilm "
    with none_installed(), Engine.open(tmp_path / "index", writable=True) as index:
        assert index.search("Moon", mode="lexical", k=1)[0].id == "tides"
        for use in (
            lambda: index.search("Moon"),
            lambda: index.add([{"id": "salt", "text": "Salt."}]),
            lambda: index.search(["Moon", "sea"], mode="dense"),
        ):
            with pytest.raises(EncoderMismatch, match=how):
                use()
        with pytest.raises(EncoderMismatch, match=how):
            build(DOCS, tmp_path / "like", like=old_index)
        assert main(["search", str(old_index), "Moon"]) == 1
        assert "of quarry-minilm (pip install ./bundles/minilm " in capsys.readouterr().err


def test_an_index_is_encoded_again_without_its_encoder(tmp_path: Path) -> None:
    build(DOCS, tmp_path / "index", encoder=OTHER)
    with none_installed(), Engine.open(tmp_path / "index", writable=True) as index:
        index.reencode(None)
        assert index.search("the Moon and the sea", k=1)[0].id == "tides"


def test_a_chosen_encoder_is_not_replaced(old_index: Path) -> None:
    with pytest.raises(EncoderMismatch, match=f"expected {OTHER}.*found {DEFAULT_NAME}"):
        Engine.open(old_index, encoder=DEFAULT_NAME)


def test_a_writer_adds_documents_with_the_encoder_of_the_index(old_index: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed"
    shutil.copytree(old_index, path)
    with Engine.open(path, writable=True, create=True) as index:
        index.add([{"id": "salt", "text": "Salt is a mineral."}])
        index.commit()
        assert index.search("mineral", k=1)[0].id == "salt"
        assert index.encoder.identity == IDENTITIES[OTHER]
    build(DOCS, tmp_path / "like", like=path)
    with Engine.open(tmp_path / "like") as index:
        assert index.encoder.identity == IDENTITIES[OTHER]


def test_readers_follow_an_index_to_the_default_encoder(tmp_path: Path) -> None:
    build(DOCS, tmp_path / "index", encoder=OTHER)
    with Engine.open(tmp_path / "index") as reader, Engine.open(tmp_path / "index", writable=True) as writer:
        writer.reencode(None)
        assert writer.encoder.identity == reader_identity_after(reader) == BUNDLED[DEFAULT_NAME]
        assert reader.search("the Moon and the sea", k=1)[0].id == "tides"
    with Engine.open(tmp_path / "index") as reader:
        assert reader.encoder.identity == BUNDLED[DEFAULT_NAME]


def reader_identity_after(reader: Engine) -> str:
    assert reader.encoder.identity == IDENTITIES[OTHER]
    assert reader.refresh()
    return reader.encoder.identity


def test_processes_build_with_an_encoder_by_its_name_or_that_of_another_index(tmp_path: Path) -> None:
    build(DOCS, tmp_path / "old", encoder=OTHER, workers=1)
    build(DOCS, tmp_path / "new", like=tmp_path / "old", workers=1)
    with Engine.open(tmp_path / "new") as index:
        assert index.encoder.identity == IDENTITIES[OTHER]
        assert len(index) == len(DOCS)


def test_an_index_of_given_vectors_has_none_of_them(tmp_path: Path) -> None:
    build([{"id": "a", "vectors": [1.0, 0.0]}], tmp_path / "index", dim=2)
    with Engine.open(tmp_path / "index") as index, pytest.raises(EncoderMismatch, match="without an encoder"):
        index.search("a", mode="dense")
