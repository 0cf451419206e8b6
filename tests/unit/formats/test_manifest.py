"""Manifests, the roots of indexes."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from support.indexes.format_samples import container, manifest, preamble, store, write_file
from support.indexes.small_index import Container

from quarry.formats.container.directory import Directory
from quarry.formats.container.layout import FileKind, FileRecord
from quarry.formats.container.reader import ContainerReader
from quarry.formats.container.writer import ContainerWriter
from quarry.formats.errors import CorruptFile, FormatError, FormatTooNew, IndexNotFound
from quarry.formats.manifest import EncoderRecord, Manifest, MetricRecord, SegmentRecord, find_latest_generation


def file(name):
    return FileRecord(name, 4096, name.encode().ljust(16)[:16], bytes(range(16)))


def segment(number, tombstones=True, quantizer=""):
    return SegmentRecord(
        file=file(f"{number}.seg"),
        tombstones=file(f"{number}.del") if tombstones else None,
        quantizer=quantizer,
        n_docs=number + 1,
        n_deleted=number if tombstones else 0,
    )


FULL = manifest([segment(3), segment(7, False, "a.quant"), segment(1)], [file("a.quant")], beta=0.1, seed=7)


@pytest.mark.parametrize(
    "made",
    [
        manifest(),
        FULL,
        manifest(generation=(1 << 64) - 1),
        manifest(representation="x" * 64, representation_settings={}),
        manifest(representation_settings={"a": 1, "b": 65536}),
        manifest(beta=5e-324),
        manifest(searchable=("a", "b.c"), synonyms=(("a", ("b",)), ("c d", ("e", "f")))),
        manifest(searchable=("a", "b.c"), field_weights={"b.c": 2, "title": 100}),
        manifest(field_weights={"title": 3}),
        manifest(dim=1, centroids="none", code_bytes=65536, seed=(1 << 63) - 1),
        replace(manifest(), encoder=EncoderRecord(name="é" * 1024, identity="i" * 128, normalize=False)),
    ],
)
def test_a_manifest_comes_back(directory, made):
    made.commit(directory)
    assert directory.names() == [made.name]
    assert Manifest.load(directory, made.generation) == made
    assert find_latest_generation(directory) == made.generation
    assert ContainerReader(directory, made.name, FileKind.MANIFEST).find_damage() == []


def test_the_next_manifest_descends_from_this_one():
    following = FULL.next((segment(3),), ())
    assert (following.generation, following.name) == (2, "MANIFEST-00000000000000000002")
    assert following.parent_id == FULL.commit_id
    assert following.commit_id not in (FULL.commit_id, FULL.next((), ()).commit_id)
    assert (following.settings, following.encoder) == (FULL.settings, FULL.encoder)
    assert (following.segments, following.quantizers) == ((segment(3),), ())


def test_file_names_are_all_files_of_the_generation():
    assert FULL.file_names() == {
        "MANIFEST-00000000000000000001", "3.seg", "3.del", "7.seg", "1.seg", "1.del", "a.quant"
    }  # fmt: skip


def test_the_highest_generation_is_the_index(directory):
    with pytest.raises(IndexNotFound, match="MANIFEST-<generation>"):
        find_latest_generation(directory)
    for generation in (9, 10, 2):
        manifest(generation=generation).commit(directory)
    for name in (
        "MANIFEST-11",
        "MANIFEST-0000000000000000001x",
        f"MANIFEST-{1 << 64}",
        "MANIFEST-00000000000000000099.tmp",
    ):
        (directory.path / name).touch()
    assert find_latest_generation(directory) == 10


def test_a_listing_that_a_commit_hides_both_manifests_from(directory, monkeypatch):
    """A listing of a large folder may miss both names during a commit, and is repeated."""
    manifest(generation=2).commit(directory)
    names, listings = directory.names(), iter([[], [], ["0.seg"]])
    monkeypatch.setattr(directory, "names", lambda: next(listings, names))
    assert find_latest_generation(directory) == 2
    monkeypatch.setattr(directory, "names", list)
    with pytest.raises(IndexNotFound):
        find_latest_generation(directory)


def test_a_generation_is_committed_once(directory):
    FULL.commit(directory)
    with pytest.raises(FileExistsError):
        manifest().commit(directory)
    assert Manifest.load(directory, 1) == FULL


@pytest.mark.parametrize(
    "unreadable",
    [
        manifest(dim=0),
        manifest(representation="x" * 65),
        manifest(representation_settings={"a": 0}),
        manifest(beta=1),
        manifest(beta=float("nan")),
        manifest(seed=-1),
        manifest(centroids="int4"),
        manifest([segment(1), segment(1)]),
        manifest([segment(1, quantizer="a.quant")]),
        manifest([replace(segment(3), n_deleted=5)]),
        manifest([replace(segment(3), file=file("../x.seg"))]),
        replace(FULL, encoder=replace(FULL.encoder, name="x" * 1025)),
    ],
)
def test_a_manifest_that_could_not_be_read_is_not_committed(directory, unreadable):
    with pytest.raises(CorruptFile):
        unreadable.commit(directory)
    with pytest.raises(IndexNotFound):
        find_latest_generation(directory)


def test_a_manifest_that_is_not_there(directory):
    with pytest.raises(FileNotFoundError):
        Manifest.load(directory, 1)


def test_a_manifest_under_the_name_of_another_generation(directory):
    FULL.commit(directory)
    (directory.path / FULL.name).rename(directory.path / "MANIFEST-00000000000000000002")
    with pytest.raises(
        CorruptFile, match="MANIFEST-00000000000000000002: wrong generation in a manifest; found 1"
    ):
        Manifest.load(directory, 2)


def test_a_stowaway_in_a_manifest(directory):
    import numpy as np

    FULL.commit(directory)
    fields = ContainerReader(directory, FULL.name, FileKind.MANIFEST).fields.remaining()
    write_file(directory, {"x": np.zeros(3, np.uint8)}, fields, FileKind.MANIFEST, "MANIFEST-00000000000000000002")
    with pytest.raises(CorruptFile, match="unknown sections"):
        Manifest.load(directory, 2)


def changed(value, path, new):
    """Return a copy of nested maps and lists with another value at a path."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if new is ... and len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(copy[path[0]], path[1:], new) if not isinstance(new, dict) or path[1:] else new
    return copy


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("generation", 1.0),
        ("generation", 0),
        ("generation", 2),
        ("generation", ...),
        ("parent_id", bytes(15)),
        ("settings", []),
        ("settings dim", True),
        ("settings dim", 65537),
        ("settings beta", "1"),
        ("settings beta", 0.0),
        ("settings beta", -1.0),
        ("settings centroids", "float64"),
        ("settings representation", b"pieces"),
        ("settings representation_settings", None),
        ("settings representation_settings", {"a": 1.0}),
        ("settings representation_settings", {"a": True}),
        ("settings representation_settings", {"a": 65537}),
        ("settings code_bytes", -1),
        ("settings seed", 1 << 63),
        ("settings seed", ...),
        ("encoder name", None),
        ("encoder normalise", 1),
        ("encoder identity", "x" * 129),
        ("segments", {}),
        ("segments 0", []),
        ("segments 0 n_docs", 0),
        ("segments 0 n_docs", 2),
        ("segments 0 n_deleted", -1),
        ("segments 0 n_deleted", ...),
        ("segments 0 tombstones", False),
        ("segments 0 file", None),
        ("segments 0 file name", "/etc/passwd"),
        ("segments 0 file name", "CON"),
        ("segments 0 file name", "1.seg"),
        ("segments 0 file name", "MANIFEST-00000000000000000001"),
        ("segments 0 file n_bytes", 0),
        ("segments 0 file file_id", "x" * 16),
        ("segments 0 quantizer", "b.quant"),
        ("segments 0 quantizer", None),
        ("quantizers 0", None),
        ("quantizers", []),
    ],
)
def test_fields_that_break_the_rules(directory, path, new):
    FULL.commit(directory)
    fields = ContainerReader(directory, FULL.name, FileKind.MANIFEST).fields.remaining()
    steps = [int(step) if step.isdigit() else step for step in path.split()]
    (directory.path / FULL.name).unlink()
    ContainerWriter(directory, FULL.name, FileKind.MANIFEST, FULL.commit_id).finish(changed(fields, steps, new))
    with pytest.raises(FormatError, match=FULL.name):
        Manifest.load(directory, 1)


def test_an_unknown_field_anywhere(directory):
    FULL.commit(directory)
    fields = ContainerReader(directory, FULL.name, FileKind.MANIFEST).fields.remaining()
    for generation, path in enumerate((["x"], ["settings", "x"], ["encoder", "x"], ["segments", 0, "x"]), 2):
        part = fields | {"generation": generation}
        for step in path[:-1]:
            part = part[step]
        name = f"MANIFEST-{generation:020d}"
        top = fields | {"generation": generation}
        part["x"] = 1
        top |= {"x": 1} if path == ["x"] else {}
        ContainerWriter(directory, name, FileKind.MANIFEST, bytes(16)).finish(top)
        with pytest.raises(CorruptFile, match=f"{name}: .* has unknown fields; found .*x"):
            Manifest.load(directory, generation)
        part.pop("x")


def with_features(directory, writer=0, optional=0, fields=()):
    """Commit a manifest with unknown features and additional fields."""
    made = manifest()
    made.commit(directory)
    path = directory.path / made.name
    part = Container(path)
    part.contents["fields"] |= dict(fields)
    part.head = preamble(FileKind.MANIFEST, writer=writer, optional=optional, file_id=made.commit_id)
    path.write_bytes(part.blob())
    return made


@pytest.mark.parametrize("features", [{"writer": 1 << 3}, {"writer": 1 << 31}])
def test_features_that_a_writer_must_know(directory, features):
    """An index with unknown features can be read but not written, and unknown fields are ignored."""
    made = with_features(directory, **features, fields={"later": [1, {"more": b"x"}]})
    found = Manifest.load(directory, made.generation)
    assert replace(found, unknown_features=0) == made
    with pytest.raises(FormatTooNew, match=f"{made.name}: the index can be read but not changed"):
        found.check_writable(directory)
    made.check_writable(directory)


@pytest.mark.parametrize("wrong", [[], ["b", "a"], ["a", "a"], [1], ["a"] * 65, "a"])
def test_wrong_searchable_fields_are_damage(directory, wrong):
    made = with_features(directory, writer=1, fields={"searchable": wrong})
    with pytest.raises(CorruptFile, match="searchable"):
        Manifest.load(directory, made.generation)


@pytest.mark.parametrize("wrong", [[], [["a"]], [["a", 1]], [["b", "a"], ["a", "b"]], [["a", "b"], ["a", "c"]], 1])
def test_wrong_synonyms_are_damage(directory, wrong):
    made = with_features(directory, writer=2, fields={"synonyms": wrong})
    with pytest.raises(CorruptFile, match="synonyms"):
        Manifest.load(directory, made.generation)


@pytest.mark.parametrize("wrong", [{}, {"a": 2}, {"text": 2}, {"title": 1}, {"title": 101}, {"title": 2.0}, [], 1])
def test_wrong_weights_of_fields_are_damage(directory, wrong):
    made = with_features(directory, writer=4, fields={"field_weights": wrong})
    with pytest.raises(CorruptFile, match="field_weights"):
        Manifest.load(directory, made.generation)


def test_features_that_anyone_may_ignore(directory):
    made = with_features(directory, optional=1 << 5, fields={"later": 1})
    found = Manifest.load(directory, made.generation)
    assert found == made
    found.check_writable(directory)


def test_unknown_fields_without_a_feature(directory):
    made = with_features(directory, fields={"later": 1})
    with pytest.raises(CorruptFile, match=r"unknown fields.*later"):
        Manifest.load(directory, made.generation)


METRICS = [
    MetricRecord(name="ip", dim=8),
    MetricRecord(name="cosine", dim=8),
    MetricRecord(name="l2", dim=5, norm=0.25),
]


@pytest.mark.parametrize("metric", METRICS, ids=lambda each: each.name)
def test_a_metric_needs_readers_that_know_it(directory, metric):
    made = manifest(metric=metric)
    made.commit(directory)
    assert Manifest.load(directory, 1) == made
    assert int.from_bytes((directory.path / made.name).read_bytes()[34:38], "little") == 1
    plain = manifest(generation=2)
    plain.commit(directory)
    assert not any((directory.path / plain.name).read_bytes()[34:46])


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "l1", "dim": 8, "norm": 1.0},
        {"name": "ip", "dim": 7, "norm": 1.0},
        {"name": "ip", "dim": 8, "norm": 2.0},
        {"name": "l2", "dim": 6, "norm": 1.0},
        {"name": "l2", "dim": 0, "norm": 1.0},
        {"name": "l2", "dim": 5, "norm": -1.0},
        {"name": "l2", "dim": 5, "norm": float("nan")},
        {"name": "l2", "dim": 5},
        {"name": "l2", "dim": 5, "norm": 1.0, "more": 1},
        None,
    ],
)
def test_a_metric_that_contradicts_the_specification(directory, fields):
    made = manifest(metric=METRICS[0])
    made.commit(directory)
    part = Container(directory.path / made.name)
    part.contents["fields"]["settings"]["metric"] = fields
    (directory.path / made.name).write_bytes(part.blob())
    with pytest.raises(CorruptFile, match=made.name):
        Manifest.load(directory, 1)


def test_a_metric_and_its_feature_come_together(directory):
    for metric, features in ((METRICS[0], 0), (None, 1)):
        made = manifest(metric=metric)
        made.commit(directory)
        path = directory.path / made.name
        part = Container(path)
        part.head = preamble(FileKind.MANIFEST, flags=features, file_id=made.commit_id)
        path.write_bytes(part.blob())
        with pytest.raises(CorruptFile, match="metric"):
            Manifest.load(directory, 1)
        path.unlink()


def test_the_feature_of_a_metric_is_for_manifests_alone(directory):
    store(directory, container({"fields": {}, "sections": {}}, head=preamble(FileKind.TOMBSTONES, flags=1)))
    with pytest.raises(FormatTooNew, match="a feature that this version does not support"):
        ContainerReader(directory, "sample.seg", FileKind.TOMBSTONES)


def test_a_folder_that_is_deleted_meanwhile(directory):
    manifest().commit(directory)
    shutil.rmtree(directory.path)
    with pytest.raises(IndexNotFound, match="the folder of the index was deleted") as caught:
        find_latest_generation(directory)
    assert caught.value.path == directory.path


def test_a_manifest_is_not_mapped(tmp_path):
    """A manifest is read without mapping it, because Windows cannot rename or delete mapped files."""

    class Unmapped(Directory):
        def map(self, name):
            raise AssertionError(name)

    made = manifest()
    made.commit(Unmapped(tmp_path))
    assert Manifest.load(Unmapped(tmp_path), 1) == made


def test_a_manifest_longer_than_any_can_be(directory):
    made = manifest()
    made.commit(directory)
    with (directory.path / made.name).open("r+b") as file:
        file.truncate((16 << 20) + 129)
    with pytest.raises(CorruptFile, match="file too large"):
        Manifest.load(directory, 1)
