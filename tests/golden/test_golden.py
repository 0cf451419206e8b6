"""Every released version of the file format stays readable: an index of each is kept, with its answers.

`make.py` writes the folder of the current version.
"""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from golden.make import FOLDER, HERE, GoldenEncoder, answers, make
from support.indexes.small_index import Container, current

from quarry.engine import Engine
from quarry.formats.container.directory import Directory
from quarry.formats.write_lock import LOCK_NAME

VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "expected.json").exists())
# sections that do not depend on other libraries: zstd compresses texts, FAISS trains and encodes
OUR_OWN = ("centroids", "centroid_scales", "centroid_offsets", "ids", "id_offsets", "id_hashes", "id_ordinals")


@pytest.fixture(params=VERSIONS)
def golden(request):
    return HERE / request.param


def test_there_is_one_of_every_version_that_is_read():
    assert FOLDER.name in VERSIONS
    assert VERSIONS[0] == "1.0"


def test_it_is_small(golden):
    assert sum(file.stat().st_size for file in (golden / "index").iterdir()) < 100_000


def test_answers_are_unchanged(golden):
    expected = json.loads((golden / "expected.json").read_text(encoding="utf-8"))
    found = json.loads(json.dumps(answers(golden / "index")))
    for then, now in zip(expected.pop("searches"), found.pop("searches"), strict=True):
        question = {name: then[name] for name in ("query", "mode", "filter")}
        assert {name: now[name] for name in question} == question
        assert now["hits"] == then["hits"], (
            question
        )  # scores too, to the last bit: the vectors are of small integers
    assert found == expected


def test_all_kinds_of_files_are_there(golden):
    suffixes = {file.name.partition(".")[2] for file in (golden / "index").iterdir()}
    assert suffixes >= {"", "seg", "del", "quant"}


def test_it_is_sound_and_can_be_changed(golden, tmp_path):
    path = tmp_path / "index"
    shutil.copytree(golden / "index", path)
    with Engine.open(path, encoder=GoldenEncoder(), writable=True) as index:
        n_documents = index.verify().n_documents
        index.add([{"id": "later", "text": "quiet moon, quiet moon"}])
        index.commit()
        assert index.search("quiet moon", k=1)[0].id == "later"
        assert len(index) == index.verify().n_documents == n_documents + 1


def test_it_can_be_upgraded(golden, tmp_path):
    path = tmp_path / "index"
    shutil.copytree(golden / "index", path)
    with Engine.open(path, encoder=GoldenEncoder(), writable=True) as index:
        before = {each.id: each for each in index.documents()}
        index.upgrade()
        assert {each.id: each for each in index.documents()} == before
        assert index.stats()["n_passages"] >= index.verify().n_documents == len(before)


def files(path):
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != LOCK_NAME}


def test_the_same_documents_make_the_same_bytes(tmp_path):
    make(tmp_path / "one")
    make(tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two")


def data_files(path):
    """Yield segments and tombstones in the order of the manifest."""
    for segment in current(Directory(path)).segments:
        yield segment.file.name
        if segment.tombstones:
            yield segment.tombstones.name


def test_what_is_written_today_is_what_was_written_then(tmp_path):
    """Sections that do not depend on other libraries are written byte for byte as before, on every machine."""
    make(tmp_path / "index")
    n_compared = 0
    for name_now, name_then in zip(data_files(tmp_path / "index"), data_files(FOLDER / "index"), strict=True):
        now, then = Container(tmp_path / "index" / name_now), Container(FOLDER / "index" / name_then)
        assert now.contents["sections"].keys() == then.contents["sections"].keys()
        for section in {*OUR_OWN, "deleted"} & now.contents["sections"].keys():
            np.testing.assert_array_equal(
                now.array(section), then.array(section), err_msg=f"{name_now}: {section}"
            )
            n_compared += 1
    assert n_compared > 2 * len(OUR_OWN)
