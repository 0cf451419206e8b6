"""The records of TensorRT engines are read back as written, and every value is checked."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from quarry.formats.bundle.folder import FileDigest
from quarry.formats.bundle.plan import PlanProfile, PlanRecord, digest_plan, read_plans, write_plan
from quarry.formats.errors import ChecksumMismatch, CorruptFile, FormatTooNew, TruncatedFile

PLAN = b"not really an engine"
PROFILES = (PlanProfile((1, 1), (1, 16), (1, 64)), PlanProfile((1, 1), (32, 128), (64, 256)))
RECORD = PlanRecord(
    identity="0" * 32,
    model_sha256="1" * 64,
    library="tensorrt",
    version="11.4.0.106",
    target="sm90",
    precision="fp16",
    profiles=PROFILES,
    file=digest_plan(PLAN),
)
NAME = "tensorrt-11.4.0.106-sm90-fp16"


def test_a_plan_comes_back(tmp_path):
    write_plan(tmp_path, RECORD, PLAN)
    assert read_plans(tmp_path) == [RECORD]
    assert RECORD.load(tmp_path) == PLAN
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{NAME}.json", f"{NAME}.plan"]


def test_plans_for_other_gpus_and_versions_stand_side_by_side(tmp_path):
    others = [
        RECORD,
        replace(RECORD, target="sm120"),
        replace(RECORD, version="10.16.1.11", library="tensorrt-rtx"),
    ]
    for record in others:
        write_plan(tmp_path, record, PLAN)
    assert {record.stem for record in read_plans(tmp_path)} == {record.stem for record in others}


def test_a_plan_built_again_replaces_the_one_before(tmp_path):
    write_plan(tmp_path, RECORD, PLAN)
    later = replace(RECORD, file=digest_plan(PLAN + b"!"))
    write_plan(tmp_path, later, PLAN + b"!")
    assert [record.load(tmp_path) for record in read_plans(tmp_path)] == [PLAN + b"!"]


def test_other_files_are_no_plans(tmp_path):
    (tmp_path / "bundle.json").write_text("{}")
    (tmp_path / "tensorrt.json").write_text("{}")
    assert read_plans(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "error"), [(PLAN[:-1], TruncatedFile), (PLAN[:-1] + b"?", ChecksumMismatch), (None, CorruptFile)]
)
def test_a_plan_that_is_not_the_recorded_one_is_not_loaded(tmp_path, content, error):
    write_plan(tmp_path, RECORD, PLAN)
    path = tmp_path / f"{NAME}.plan"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(error, match="plan"):
        RECORD.load(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
def test_a_link_is_no_plan(tmp_path):
    write_plan(tmp_path, RECORD, PLAN)
    (tmp_path / "elsewhere").write_bytes(PLAN)
    (tmp_path / f"{NAME}.plan").unlink()
    (tmp_path / f"{NAME}.plan").symlink_to("elsewhere")
    with pytest.raises(CorruptFile, match="regular"):
        RECORD.load(tmp_path)


def test_a_later_record_is_too_new(tmp_path):
    edit(tmp_path, lambda members: members | {"format": 2})
    with pytest.raises(FormatTooNew):
        read_plans(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"library": "tensorflow"},
        {"version": "11.4/../.."},
        {"target": "90"},
        {"target": "sm89"},  # the file name has another target
        {"precision": "FP16"},
        {"identity": "0" * 31},
        {"model_sha256": 1},
        {"file": {"sha256": "0" * 64, "n_bytes": 0}},
        {"file": {"sha256": "0" * 64}},
        {"profiles": {}},
        {"profiles": {"1": {}}},
        {"more": 1},
    ],
)
def test_a_record_that_breaks_its_schema_is_refused(tmp_path, change):
    edit(tmp_path, lambda members: members | change)
    with pytest.raises(CorruptFile, match=r"tensorrt-11\.4"):
        read_plans(tmp_path)


@pytest.mark.parametrize(
    "change", [{"usual_length": 65}, {"largest_batch": 0}, {"smallest_length": True}, {"x": 1}]
)
def test_a_profile_out_of_bounds_is_refused(tmp_path, change):
    edit(tmp_path, lambda members: members["profiles"]["0"].update(change) or members)
    with pytest.raises(CorruptFile):
        read_plans(tmp_path)


def test_a_profile_holds_the_shapes_between_its_bounds():
    assert PROFILES[0].accepts((1, 64))
    assert not PROFILES[0].accepts((2, 64))
    assert not PROFILES[0].accepts((1, 65))


def edit(folder, change):
    write_plan(folder, RECORD, PLAN)
    path = folder / f"{NAME}.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def test_a_digest_is_of_the_whole_plan():
    assert digest_plan(memoryview(PLAN)) == digest_plan(PLAN) != digest_plan(PLAN[:-1])
    assert digest_plan(b"abc") == FileDigest("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", 3)
