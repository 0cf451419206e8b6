"""A snapshot is one complete generation."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from support.faults.watched_directory import WatchedDirectory
from support.indexes.format_samples import document, manifest, n_descriptors, quantizer, segment_record

from quarry.formats.errors import CorruptFile, FormatError, IndexNotFound
from quarry.formats.manifest import find_latest_generation
from quarry.formats.snapshot import Snapshot
from quarry.formats.tombstones import write_tombstones
from quarry.formats.vectors.quantizer import write_quantizer


@pytest.fixture
def first(directory):
    """Commit an index of two segments, the newer with codes, with deleted and replaced documents."""
    made = quantizer()
    record = write_quantizer(directory, made)
    segments = [
        segment_record(directory, ["a", "b", "c", "twice"], deleted=[1, 3]),
        segment_record(
            directory, ["d", "twice", "d", "e"], deleted=[0], made_with=made, quantizer_name=record.name
        ),
    ]
    committed = manifest(segments, [record])
    committed.commit(directory)
    return committed


def test_a_snapshot_opens_all_files(directory, first):
    before = n_descriptors()
    snapshot = Snapshot(directory)
    assert n_descriptors() == before + 2
    assert snapshot.manifest == first
    assert len(snapshot) == 5
    old, new = snapshot.segments
    assert (old.quantizer, new.quantizer.identity()) == (None, quantizer().identity())
    assert old.deleted.tolist() == [False, True, False, True]
    assert [segment.record for segment in snapshot.segments] == list(first.segments)
    snapshot.close()
    snapshot.close()
    assert snapshot.segments == ()


def test_languages_are_counted(directory):
    """Exactly, if all passages of a language may be deleted."""
    names = ["\x01english", "\x01english", "\x01english", "\x01greek", "\x01none"]
    ids = ["a", "b", "c", "d", "e"]
    segments = [segment_record(directory, ids, title=names.__getitem__, deleted=[2, 3])]
    manifest(segments, language="auto").commit(directory)
    snapshot = Snapshot(directory)
    assert snapshot.manifest.settings.analysis == "auto:english=2,none=1"
    snapshot.close()


@pytest.mark.parametrize("name", ["\x01", "\x01a=b", "\x01a,b", "\x01a:b"])
def test_a_term_that_names_no_language(directory, name):
    manifest([segment_record(directory, ["a"], title=lambda _: name)], language="auto").commit(directory)
    with pytest.raises(CorruptFile, match="names no language"):
        Snapshot(directory)


def test_documents_are_found_where_they_are_live(directory, first):
    snapshot = Snapshot(directory)
    old, new = snapshot.segments
    places = {doc_id: snapshot.find(doc_id) for doc_id in ("a", "b", "c", "twice", "d", "e", "nobody", "\ud800")}
    assert places == {
        "a": (old, 0), "b": None, "c": (old, 2), "twice": (new, 1), "d": (new, 2), "e": (new, 3),
        "nobody": None, "\ud800": None,
    }  # fmt: skip
    assert new.reader.documents[places["d"][1]] == document(2)


def test_the_newest_of_two_live_documents(directory):
    """Of several live documents with the same id, which no writer leaves, the last one is found."""
    segments = [segment_record(directory, ["a", "b", "a"]), segment_record(directory, ["a", "a", "c"])]
    manifest(segments).commit(directory)
    snapshot = Snapshot(directory)
    assert snapshot.find("a") == (snapshot.segments[1], 1)
    assert snapshot.segments[0].live_ordinal("a") == 2


def test_no_index(directory):
    with pytest.raises(IndexNotFound):
        Snapshot(directory)


def test_an_empty_index(directory):
    manifest().commit(directory)
    assert len(Snapshot(directory)) == 0
    assert Snapshot(directory).find("a") is None


def remove(directory, committed):
    for name in committed.file_names():
        directory.delete(name)


@pytest.mark.parametrize("step", range(1, 9))
def test_a_commit_in_between_is_followed(directory, first, step):
    """A snapshot is complete if a commit replaces the generation before any step of opening it."""
    steps, third = [], first.next((segment_record(directory, ["x", "y"]),), ())

    def commit(name):
        steps.append(name)
        if len(steps) == step:
            third.commit(directory)
            remove(directory, first)

    snapshot = Snapshot(WatchedDirectory(directory.path, commit))
    expected = first if step == 8 else third  # there are seven steps
    assert snapshot.manifest == expected
    ids = [segment.reader.ids[0] for segment in snapshot.segments]
    assert ids == (["a", "d"] if expected is first else ["x"])


@pytest.mark.parametrize("n_commits", [1, 30])
def test_open_files_are_reused_by_the_next_attempt(directory, first, n_commits):
    """Segments that are already open are reused, so that an index can be opened beside fast commits."""
    opened, made, before = [], first, n_descriptors()

    def overtaken(name):
        """Commit new tombstones just before these are read."""
        nonlocal made
        opened.append(name)
        if made.generation <= n_commits and name == made.segments[1].tombstones.name:
            flags = np.array([True, False, False, made.generation % 2 == 1])
            tombstones = write_tombstones(directory, made.segments[1].file.file_id, flags)
            renewed = replace(made.segments[1], tombstones=tombstones, n_deleted=int(flags.sum()))
            made = made.next((made.segments[0], renewed), made.quantizers)
            made.commit(directory)
            directory.delete(name)

    snapshot = Snapshot(WatchedDirectory(directory.path, overtaken))
    assert snapshot.manifest == made
    assert opened.count(first.segments[0].file.name) == 1
    assert n_descriptors() == before + 2
    snapshot.close()
    assert n_descriptors() == before


def test_what_the_last_attempt_did_not_take_is_closed(directory, first):
    """Segments that are not in the next generation, because a merge replaced them, are closed."""
    before, merged = n_descriptors(), first.next((segment_record(directory, ["x", "y"]),), ())

    def overtaken(name):
        if name == first.segments[1].tombstones.name:
            merged.commit(directory)
            directory.delete(name)

    snapshot = Snapshot(WatchedDirectory(directory.path, overtaken))
    assert snapshot.manifest == merged
    assert n_descriptors() == before + 1
    snapshot.close()
    assert n_descriptors() == before


def test_opening_an_index_that_changes_all_the_time_fails(directory):
    made = manifest([segment_record(directory, ["a"])])
    made.commit(directory)

    def always_newer(name):
        nonlocal made
        if not name:
            remove(directory, made)
            made = made.next((segment_record(directory, ["a"]),), ())
            made.commit(directory)

    with pytest.raises(CorruptFile, match="a file of the index is missing"):
        Snapshot(WatchedDirectory(directory.path, always_newer))


def test_listings_that_show_an_old_manifest_alone(directory, first, monkeypatch):
    """Windows keeps a manifest that is open, and a listing may miss those of commits that are made meanwhile."""
    third = first.next((segment_record(directory, ["x", "y"]),), ())
    third.commit(directory)
    remove(directory, replace(first, generation=0))
    names, listings = directory.names, iter([[first.name]] * 9)
    monkeypatch.setattr(directory, "names", lambda: next(listings, None) or names())
    assert Snapshot(directory).manifest == third
    monkeypatch.setattr(directory, "names", lambda: [first.name])
    with pytest.raises(CorruptFile, match="a file of the index is missing"):
        Snapshot(directory)


def test_listings_that_show_only_a_manifest_before_the_one_that_is_open(directory, first, monkeypatch):
    """Its files may all be there, if no commit since then has deleted one."""
    second = first.next(first.segments, first.quantizers)
    second.commit(directory)
    snapshot, third = Snapshot(directory), second.next(second.segments, second.quantizers)
    third.commit(directory)
    names, listings = directory.names, iter([[first.name]] * 9)
    monkeypatch.setattr(directory, "names", lambda: next(listings, None) or names())
    assert not second.is_newest(directory)
    listings = iter([[first.name]] * 9)
    assert snapshot.reopen().manifest == third
    for each in (second, third):
        directory.delete(each.name)
    assert not second.is_newest(directory)
    assert snapshot.reopen().manifest == first


def test_readers_beside_a_writer_that_commits_continuously(directory):
    made = manifest([segment_record(directory, ["a", "b"], deleted=[0])])
    made.commit(directory)
    rest = threading.Event()

    def write(made):
        while not rest.is_set():
            following = made.next((segment_record(directory, ["a", "b"], deleted=[0]),), ())
            following.commit(directory)
            remove(directory, made)
            made = following

    writer = threading.Thread(target=write, args=(made,))
    writer.start()
    try:
        seen = []
        for _ in range(150):
            snapshot = Snapshot(directory)
            seen.append(snapshot.manifest.generation)
            assert snapshot.find("b")[0].reader.documents[1] == document(1)
            snapshot.close()
    finally:
        rest.set()
        writer.join()
    assert seen == sorted(seen)
    assert find_latest_generation(directory) > 1


@pytest.mark.parametrize("suffix", ["seg", "del", "quant"])
def test_a_missing_file_is_named(directory, first, suffix):
    name = sorted(name for name in first.file_names() if name.endswith(suffix))[0]
    directory.delete(name)
    with pytest.raises(CorruptFile, match=f"{name}: a file of the index is missing"):
        Snapshot(directory)


def test_a_damaged_newest_generation_is_an_error_and_no_fallback(directory, first):
    (directory.path / "MANIFEST-00000000000000000002").write_bytes(b"damaged")
    with pytest.raises(FormatError, match="MANIFEST-00000000000000000002"):
        Snapshot(directory)


def test_what_the_manifest_says_must_be_so(directory, first):
    other = write_quantizer(directory, quantizer(seed=1, nlist=5))
    longer = write_quantizer(directory, quantizer(n_sub=8, dim=8))
    old, new = first.segments
    for generation, (segments, quantizers) in enumerate(
        (
            ((replace(old, n_docs=5), new), first.quantizers),
            ((old, replace(new, n_docs=3)), first.quantizers),
            ((replace(old, n_deleted=1), new), first.quantizers),
            ((replace(old, tombstones=None), new), first.quantizers),
            ((replace(old, tombstones=new.tombstones, n_deleted=1),), first.quantizers),
            ((replace(old, quantizer=new.quantizer), new), first.quantizers),
            ((old, replace(new, quantizer="")), first.quantizers),
            ((old, replace(new, quantizer=other.name)), (other,)),
            ((old, replace(new, quantizer=longer.name)), (longer,)),
            ((replace(old, file=replace(old.file, name=new.file.name)),), ()),
        ),
        2,
    ):
        first.next(segments, quantizers).commit(directory)
        with pytest.raises(FormatError, match=r"expected|another|without"):
            Snapshot(directory)
        first = replace(first, generation=generation)


@pytest.mark.parametrize("settings", [{"dim": 9}, {"dim": 16}])
def test_vectors_of_another_length(directory, first, settings):
    replace(first, generation=2, settings=replace(first.settings, **settings)).commit(directory)
    with pytest.raises(CorruptFile, match=r"with another number of dimensions|wrong number of dimensions"):
        Snapshot(directory)


def test_a_quantizer_for_vectors_of_another_length(directory, first):
    record = write_quantizer(directory, quantizer(input_dim=9))
    replace(first, generation=2, quantizers=(*first.quantizers, record)).commit(directory)
    with pytest.raises(CorruptFile, match=f"{record.name}: a quantizer with another number of dimensions"):
        Snapshot(directory)


def test_segments_outlive_the_snapshot_and_the_files(directory, first):
    snapshot = Snapshot(directory)
    new = snapshot.segments[1]
    rows = new.reader.centroids.stored_slice(0, 3)[0].copy()
    snapshot.close()
    remove(directory, first)
    np.testing.assert_array_equal(new.reader.centroids.stored_slice(0, 3)[0], rows)
    assert new.reader.documents[3] == document(3)
