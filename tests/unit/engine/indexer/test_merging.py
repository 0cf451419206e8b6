"""Merges while an index is changed, in the background and on request."""

from __future__ import annotations

import gc
import os
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from support.indexes.format_samples import n_descriptors
from support.indexes.inside import merges_of, wait_for_merges
from support.indexes.stored import flip_first_bit
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine, KMeans
from quarry.engine.documents.document import Document
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.thresholds import MergeLimits, Thresholds
from quarry.formats.container.directory import Directory
from quarry.formats.errors import (
    ChecksumMismatch,
    CommitFailed,
    DurabilityUnknown,
    IndexClosed,
    InvalidSetting,
    MergeFailed,
    ReadOnlyIndex,
)
from quarry.formats.manifest import Manifest, find_latest_generation
from quarry.formats.snapshot import Snapshot

ENCODER = WordEncoder(dim=16)
EAGER = Thresholds(merging=MergeLimits(width=3, dead_bytes=0))


def docs(*numbers, word="word"):
    return [Document(f"d{number}", f"text{number} {word}") for number in numbers]


@pytest.fixture
def path(tmp_path):
    """Build an index of d0 to d9."""
    folder = tmp_path / "index"
    engine.build(
        ({"id": f"d{number}", "text": f"text{number} word"} for number in range(10)),
        folder,
        encoder=ENCODER,
        representation=KMeans(3),
    )
    return folder


@pytest.fixture
def directory(path):
    return Directory(path)


@pytest.fixture
def writer(directory):
    """Open a writer that merges three segments as soon as they exist."""
    opened = IndexWriter(directory, ENCODER, 2, thresholds=EAGER, merges=True)
    yield opened
    opened.close()


MERGING, MAIN = "quarry-merge", "MainThread"


@pytest.fixture
def on_segments(monkeypatch):
    """Return functions by the name of a thread, to call before it opens or creates the file of a segment.

    The argument is whether the file is created.
    """
    real, functions = os.open, {}

    def opened(path, flags, *arguments, **options):
        if str(path).endswith(".seg"):
            functions.get(threading.current_thread().name, lambda _: None)(bool(flags & os.O_CREAT))
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", opened)
    return functions


@pytest.fixture
def slow(on_segments):
    """Pause merges that have opened their sources: .began is set when one is, and it goes on after .go is set."""

    class Slow:
        began, go = threading.Event(), threading.Event()

    def pause(is_created):
        if is_created:
            Slow.began.set()
            assert Slow.go.wait(60)

    on_segments[MERGING] = pause
    yield Slow
    Slow.go.set()


def contents(path):
    """Return the texts of all live documents by id, and the number of segments."""
    snapshot = Snapshot(Directory(path))
    found = {}
    for segment in snapshot.segments:
        for doc in range(segment.reader.n_docs):
            if segment.deleted is None or not segment.deleted[doc]:
                doc_id = segment.reader.ids[doc]
                assert doc_id not in found
                found[doc_id] = segment.reader.documents[doc].text
    assert len(found) == len(snapshot)
    n_segments = len(snapshot.segments)
    snapshot.close()
    return found, n_segments


def expected(documents):
    return {each.id: each.text for each in documents}


def stray_files(path):
    current = Manifest.load(Directory(path), find_latest_generation(Directory(path)))
    return {file.name for file in path.iterdir()} - current.file_names() - {"write.lock"}


def damage(path, number):
    """Flip a bit in the texts of a segment."""
    snapshot = Snapshot(Directory(path))
    name = snapshot.segments[number].reader.path
    snapshot.close()
    flip_first_bit(name, "documents")


class TestInTheBackground:
    def test_many_commits_leave_few_segments(self, writer, path):
        for number in range(10, 40):
            writer.add(docs(number))
            writer.commit()
        wait_for_merges(writer)
        found, n_segments = contents(path)
        assert found == expected(docs(*range(40)))
        assert n_segments < 3
        assert not stray_files(path) or sys.platform == "win32"  # which keeps files that are open

    def test_replaced_and_deleted_documents_are_dropped(self, writer, path):
        writer.add(docs(*range(5), word="new"))
        writer.delete(["d9"])
        writer.commit()
        wait_for_merges(writer)
        assert contents(path) == (expected([*docs(*range(5), word="new"), *docs(*range(5, 9))]), 2)
        snapshot = Snapshot(Directory(path))
        assert [segment.deleted for segment in snapshot.segments] == [None, None]
        snapshot.close()

    def test_everything_deleted(self, writer, path):
        writer.delete([f"d{number}" for number in range(10)])
        writer.commit()
        wait_for_merges(writer)
        assert contents(path) == ({}, 0)
        assert not stray_files(path)

    def test_deletions_that_arrive_meanwhile(self, writer, path, slow):
        writer.add(docs(10, 11, 12))
        writer.delete(["d0"])
        writer.commit()
        writer.add(docs(13))
        writer.commit()
        assert slow.began.wait(60)
        writer.delete(["d1", "d11"])
        writer.add(docs(2, word="new"))
        writer.commit()  # committed before the merge
        writer.delete(["d3", "d12", "d13"])
        writer.add(docs(4, word="newer"))  # not committed
        slow.go.set()
        wait_for_merges(writer)
        committed = [*docs(3, 4, 5, 6, 7, 8, 9, 10, 12, 13), *docs(2, word="new")]
        assert contents(path)[0] == expected(committed)
        if sys.platform != "win32":  # which keeps files that are open
            assert not stray_files(path) - {name for name in stray_files(path) if name.startswith("spool")}
        writer.commit()
        left = [*docs(5, 6, 7, 8, 9, 10), *docs(2, word="new"), *docs(4, word="newer")]
        assert contents(path)[0] == expected(left)
        assert writer.delete(["d3", "d12", "d13", "d1"]) == 0

    def test_a_rollback_meanwhile(self, writer, path, slow):
        for number in (10, 11):
            writer.add(docs(number))
            writer.commit()
        assert slow.began.wait(60)
        writer.delete(["d1", "d10"])
        writer.add(docs(12))
        slow.go.set()
        wait_for_merges(writer)
        writer.rollback()
        assert writer.commit()[0] == find_latest_generation(Directory(path))
        assert contents(path) == (expected(docs(*range(12))), 1)

    def test_all_sources_are_deleted_meanwhile(self, writer, path, slow):
        for number in (10, 11):
            writer.add(docs(number))
            writer.commit()
        assert slow.began.wait(60)
        writer.delete([f"d{number}" for number in range(12)])
        writer.commit()
        slow.go.set()
        wait_for_merges(writer)
        assert contents(path) == ({}, 0)
        assert not stray_files(path) or sys.platform == "win32"  # which keeps files that are open

    def test_the_quantizer_of_new_documents_goes_meanwhile(self, tmp_path, on_segments, slow):
        """Documents that are encoded with a quantizer that a merge drops meanwhile are committed correctly."""
        small = replace(EAGER, list_rows=100)
        texts = {f"d{number}": f"text{number} one two three" for number in range(160)}
        given = [{"id": doc_id, "text": text} for doc_id, text in texts.items()]
        path = tmp_path / "ix"
        engine.build(given[:80], path, encoder=ENCODER, representation=KMeans(3), code_bytes=4, thresholds=small)
        generations = []

        def write_after_the_merge(is_created):
            if is_created and not generations:
                generations.append(0)
                slow.go.set()
                wait_for_merges(index)
                generations.append(find_latest_generation(Directory(path)))

        with Engine.open(path, writable=True, encoder=ENCODER, thresholds=small) as index:
            index.delete(f"d{number}" for number in range(70))
            index.commit()
            assert slow.began.wait(60)
            index.add(given[80:])
            on_segments[MAIN] = write_after_the_merge
            index.commit()
            assert generations == [0, 3]
            assert len(index) == 90
            assert len(index.search("text100 one", k=90, mode="dense", candidates=90, nprobe=1000)) == 90
            index.verify()
        assert contents(path)[0] == dict(list(texts.items())[70:])
        assert len(_quantizers(path)) == 1
        assert not stray_files(path)

    def test_close_waits(self, writer, path, slow):
        for number in (10, 11):
            writer.add(docs(number))
            writer.commit()
        assert slow.began.wait(60)
        threading.Timer(0.2, slow.go.set).start()
        writer.close()
        assert contents(path) == (expected(docs(*range(12))), 1)
        assert not stray_files(path)

    def test_abandoned(self, writer, path, slow):
        for number in (10, 11):
            writer.add(docs(number))
            writer.commit()
        assert slow.began.wait(60)
        threading.Timer(0.2, slow.go.set).start()
        writer.close(abandon=True)
        assert contents(path) == (expected(docs(*range(12))), 3)
        IndexWriter(Directory(path), ENCODER, 1).close()
        assert not stray_files(path)

    def test_an_error_leaves_the_with_block_and_its_merge(self, path, slow):
        def changes():
            with Engine.open(path, writable=True, encoder=ENCODER) as index:
                for number in range(10, 20):
                    index.add([{"id": f"d{number}", "text": f"text{number} word"}])
                    index.commit()
                assert slow.began.wait(60)
                threading.Timer(0.2, slow.go.set).start()
                raise KeyError

        with pytest.raises(KeyError):
            changes()
        assert contents(path) == (expected(docs(*range(20))), 11)

    def test_an_open_index_follows(self, path):
        with Engine.open(path, writable=True, encoder=ENCODER) as index:
            for number in range(10, 50):
                index.add([{"id": f"d{number}", "text": f"text{number} word"}])
                index.commit()
            wait_for_merges(index)
            assert index.stats()["n_segments"] < 10
            assert len(index) == 50
            assert {hit.id for hit in index.search("word", k=100)} == {f"d{number}" for number in range(50)}
            index.verify()


class TestFailures:
    def test_damage_stops_the_merge_and_is_reported(self, path):
        damage(path, 0)
        with Engine.open(path, writable=True, encoder=ENCODER) as index:
            for number in range(10, 17):
                index.add([{"id": f"d{number}", "text": f"text{number} word"}])
                index.commit()
            with pytest.raises(ChecksumMismatch, match="section documents") as caught:
                wait_for_merges(index)
            assert index.stats()["n_segments"] == 8
            assert not stray_files(path)
        assert caught.value.path.suffix == ".seg"

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no open files")
    def test_a_damaged_segment_is_left_alone_and_the_others_are_merged(self, writer, path):
        """Damage is reported once and again by a requested merge, and the number of segments stays bounded."""
        damage(path, 0)
        damaged = next(path.glob("*.seg"))
        reported = []
        for number in range(10, 40):
            writer.add(docs(number))
            writer.commit()
            try:
                wait_for_merges(writer)
            except ChecksumMismatch as error:
                reported.append(error.path)
        assert reported == [damaged]
        snapshot = Snapshot(Directory(path))
        assert damaged in {segment.reader.path for segment in snapshot.segments}
        assert len(snapshot.segments) <= 3
        assert len(snapshot) == 40
        snapshot.close()
        with pytest.raises(ChecksumMismatch):
            writer.merge()
        writer.add(docs(40))
        writer.commit()
        wait_for_merges(writer)
        assert not stray_files(path)

    def test_a_failure_is_raised_by_the_next_commit(self, path):
        damage(path, 0)
        with Engine.open(path, writable=True, encoder=ENCODER, thresholds=EAGER) as index:
            for number in (10, 11):
                index.add([{"id": f"d{number}", "text": f"text{number} word"}])
                index.commit()
            merges_of(index).join()
            index.delete("d10")
            with pytest.raises(ChecksumMismatch) as caught:
                index.commit()
            assert caught.value.__notes__ == ["Generation 4 was committed."]
            assert "d10" not in index
            index.delete("d11")
            assert index.commit() >= 5

    def test_a_failure_is_raised_by_close(self, path):
        damage(path, 0)
        index = Engine.open(path, writable=True, encoder=ENCODER, thresholds=EAGER)
        for number in (10, 11):
            index.add([{"id": f"d{number}", "text": f"text{number} word"}])
            index.commit()
        with pytest.raises(ChecksumMismatch):
            index.close()
        index.close()
        Engine.open(path, writable=True, encoder=ENCODER, thresholds=EAGER).close()

    def test_a_failure_is_raised_by_a_requested_merge(self, path):
        damage(path, 0)
        with Engine.open(path, writable=True, encoder=ENCODER) as index:
            index.delete("d1")
            index.commit()
            generation = index.stats()["generation"]
            with pytest.raises(ChecksumMismatch, match="section documents"):
                index.merge()
            assert index.stats()["generation"] == generation
            index.delete("d2")
            assert index.commit() == generation + 1
        assert not stray_files(path)

    def test_the_disk_is_full(self, directory, path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        writer = IndexWriter(directory, ENCODER, 2, thresholds=EAGER)
        for doc_id in ("d1", "d2"):
            writer.delete([doc_id])
            writer.commit()
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(
                MergeFailed, match=r"could not be merged; the last commit is still current; found .*No space"
            ):
                writer.merge()
        assert writer.merge() == find_latest_generation(directory)
        assert contents(path) == (expected(docs(0, *range(3, 10))), 1)
        assert not stray_files(path) or sys.platform == "win32"  # which keeps files that are open
        writer.close()

    @pytest.fixture
    def full_for_merges(self, on_segments):
        """Make the disk full for each merge in the background; return a list with an entry for each attempt."""
        tried = []

        def full(is_created):
            if is_created:
                tried.append(1)
                raise OSError(28, "No space left on device")

        on_segments[MERGING] = full
        return tried

    def commit_some(self, writer, numbers):
        """Commit documents one by one; return how many failures of merges were raised."""
        n_raised = 0
        for number in numbers:
            writer.add(docs(number))
            writer.commit()
            try:
                wait_for_merges(writer)
            except MergeFailed:
                n_raised += 1
        return n_raised

    def test_a_commit_that_was_made_is_not_reported_as_failed(self, path, full_for_merges, on_segments):
        """A failed background merge is reported with a note that the commit was made."""
        reported = []
        with Engine.open(path, writable=True, encoder=ENCODER, thresholds=EAGER) as index:
            for number in range(8):
                index.add([f"no id {number}"])
                try:
                    index.commit()
                except MergeFailed as error:
                    reported += error.__notes__
                assert len(index) == 11 + number
                merges_of(index).join()
            on_segments.clear()
            index.merge()
        assert len(reported) > 1
        assert all("was committed" in note for note in reported)

    def test_merging_is_tried_again_and_less_and_less_often(self, writer, path, full_for_merges, on_segments):
        assert self.commit_some(writer, range(10, 80)) == len(full_for_merges) == 6
        assert contents(path)[1] == 71
        assert not stray_files(path) or sys.platform == "win32"  # which keeps files that are open
        on_segments.clear()
        assert self.commit_some(writer, range(80, 150)) == 0
        found, n_segments = contents(path)
        assert found == expected(docs(*range(150)))
        assert n_segments < 4
        assert not stray_files(path) or sys.platform == "win32"  # which keeps files that are open

    def test_a_requested_merge_after_a_failed_one(self, writer, path, full_for_merges, on_segments):
        self.commit_some(writer, range(10, 20))
        writer.add(docs(20))
        writer.commit()
        on_segments[MAIN] = on_segments[MERGING]
        with pytest.raises(MergeFailed):
            writer.merge()
        on_segments.clear()
        writer.merge()
        assert contents(path) == (expected(docs(*range(21))), 1)
        assert self.commit_some(writer, range(21, 40)) == 0
        assert contents(path)[1] < 4

    def test_a_failure_that_was_not_raised_is_cleared_by_a_merge(self, writer, path, full_for_merges, on_segments):
        for number in (10, 11):
            writer.add(docs(number))
            writer.commit()
        merges_of(writer).join()
        assert full_for_merges
        on_segments.clear()
        writer.merge()
        writer.raise_merge_failure()
        assert contents(path)[1] == 1

    def test_a_failure_holds_no_files(self, path, full_for_merges, on_segments):
        """A failed merge keeps no segment mapped, because deleted files would still take space on the disk."""
        gc.collect()
        gc.disable()
        try:
            before = n_descriptors()
            opened = IndexWriter(Directory(path), ENCODER, 2, thresholds=EAGER, merges=True)
            assert self.commit_some(opened, range(10, 20)) > 1
            on_segments[MAIN] = on_segments[MERGING]
            with pytest.raises(MergeFailed):
                opened.merge()
            opened.close()
            del opened
            assert n_descriptors() == before
        finally:
            gc.enable()

    def test_graphs_of_segments_that_are_merged_away(self, path, monkeypatch):
        """Graphs of segments that a merge has deleted meanwhile are not written again."""
        small = replace(EAGER, graph_rows=8)
        with Engine.open(path, writable=True, encoder=ENCODER, thresholds=small) as index:
            real, graphs = os.open, []

            def merged_meanwhile(file, flags, *arguments, **options):
                if str(file).endswith(".tmp") and flags & os.O_CREAT and not graphs:
                    graphs.append(file)  # which is renamed when it is complete
                    for number in (10, 11):
                        index.add([{"id": f"d{number}", "text": f"text{number} word"}])
                        index.commit()
                    wait_for_merges(index)
                return real(file, flags, *arguments, **options)

            monkeypatch.setattr(os, "open", merged_meanwhile)
            assert index.optimize() == 1
            assert graphs
            assert index.stats()["n_segments"] == 1
            assert not stray_files(path) or sys.platform == "win32"  # which keeps files that are open

    def test_the_system_has_no_threads_left(self, path, monkeypatch):
        """Without threads a commit succeeds, and merging is postponed to a later commit."""

        def no_more(self):
            raise RuntimeError("can't start new thread")

        with Engine.open(path, writable=True, encoder=ENCODER, thresholds=EAGER) as index:
            with monkeypatch.context() as patch:
                for number in range(10, 16):
                    index.add([{"id": f"d{number}", "text": f"text{number} word"}])
                    patch.setattr(threading.Thread, "start", no_more)
                    assert index.commit() == number - 8
                    patch.undo()
            assert index.stats()["n_segments"] == 7
            index.delete("d0")
            index.commit()
            wait_for_merges(index)
            assert index.stats()["n_segments"] < 3

    def test_a_source_that_is_gone_is_no_failure(self, writer, path, on_segments):
        """A merge is skipped if a commit has deleted the last document of a source after it was selected."""
        before = []

        def delete_first(is_created):
            if not before:
                before.append(is_created)
                writer.delete(["d11"])
                writer.commit()

        on_segments[MERGING] = delete_first
        for number in (10, 11):
            writer.add(docs(number))
            writer.commit()
        wait_for_merges(writer)
        assert before == [False]
        writer.add(docs(12))
        writer.commit()
        wait_for_merges(writer)
        assert contents(path)[0] == expected(docs(*range(11), 12))
        assert not stray_files(path)

    @pytest.mark.parametrize("failing", ["rename", "sync"])
    def test_the_swap_fails(self, directory, writer, path, monkeypatch, slow, failing):
        def broken(*_):
            raise OSError(5, "Input/output error")

        for number in (10, 11):
            writer.add(docs(number))
            writer.commit()
        assert slow.began.wait(60)
        monkeypatch.setattr(directory, failing, broken)
        slow.go.set()
        writer.add(docs(12))
        writer.delete(["d0"])
        with pytest.raises(MergeFailed, match="Input/output"):
            wait_for_merges(writer)
        assert contents(path) == (expected(docs(*range(12))), 3)
        assert not stray_files(path)
        with pytest.raises(CommitFailed, match="Input/output"):
            writer.commit()
        monkeypatch.undo()
        writer.add(docs(13))
        writer.commit()
        writer.close()
        assert contents(path)[0] == expected(docs(*range(1, 14)))
        assert not stray_files(path)

    def test_the_swap_is_visible_but_possibly_not_durable(self, directory, writer, path, monkeypatch, slow):
        for number in (10, 11):
            writer.add(docs(number))
            writer.commit()
        assert slow.began.wait(60)
        real, n_calls = directory.sync, []

        def second_fails():
            n_calls.append(1)
            if len(n_calls) == 2:
                raise OSError(5, "Input/output error")
            real()

        monkeypatch.setattr(directory, "sync", second_fails)
        slow.go.set()
        with pytest.raises(DurabilityUnknown, match="generation 4"):
            wait_for_merges(writer)
        with pytest.raises(IndexClosed):
            writer.commit()
        assert contents(path) == (expected(docs(*range(12))), 1)


class TestAskedFor:
    def test_one_segment(self, path):
        with Engine.open(path, writable=True, encoder=ENCODER) as index:
            for number in range(10, 14):
                index.add([{"id": f"d{number}", "text": f"text{number} word"}])
                index.delete(f"d{number - 10}")
                index.commit()
            index.add([{"id": "later", "text": "word"}])
            index.delete("d9")
            generation = index.merge()
            assert generation == index.stats()["generation"] == 6
            assert (index.stats()["n_segments"], len(index), "d9" in index) == (1, 10, True)
            assert index.merge() == generation
            index.commit()
            assert ("later" in index, "d9" in index) == (True, False)

    def test_an_empty_index(self, tmp_path):
        engine.build([], tmp_path / "ix", encoder=ENCODER)
        with Engine.open(tmp_path / "ix", writable=True, encoder=ENCODER) as index:
            assert index.merge() == 1
            assert index.merge(retrain=True) == 1

    def test_read_only(self, path):
        with Engine.open(path) as index, pytest.raises(ReadOnlyIndex):
            index.merge()

    def test_codes_cannot_be_trained_on(self, tmp_path):
        small = Thresholds(calibration_queries=64, training_rows=100)
        texts = [f"text{number} one two three" for number in range(80)]
        engine.build(
            texts,
            tmp_path / "ix",
            encoder=ENCODER,
            representation=KMeans(3),
            centroids="none",
            code_bytes=4,
            thresholds=small,
        )
        with Engine.open(tmp_path / "ix", writable=True, encoder=ENCODER, thresholds=small) as index:
            before = Directory(tmp_path / "ix").names()
            with pytest.raises(InvalidSetting, match="build the index again"):
                index.merge(retrain=True)
            assert Directory(tmp_path / "ix").names() == before
            index.delete(index.search("text3", k=1)[0].id)
            index.commit()
            index.merge()
            assert (len(index), index.stats()["n_deleted"]) == (79, 0)

    def test_segments_of_two_quantizers(self, tmp_path):
        """Segments that were encoded with an older quantizer are encoded again when they are merged."""
        small = Thresholds(calibration_queries=64, list_rows=100)
        generator = np.random.default_rng(0)
        texts = [" ".join(f"w{n}" for n in generator.integers(0, 300, 9)) for _ in range(300)]
        engine.build(
            texts[:200], tmp_path / "ix", encoder=ENCODER, representation=KMeans(3), code_bytes=4, thresholds=small
        )
        with Engine.open(tmp_path / "ix", writable=True, encoder=ENCODER, thresholds=small) as index:
            index.add(texts[200:])
            index.commit()
            before = [_best(index, text) for text in texts[::50]]
            first = _quantizers(tmp_path / "ix")
            index.merge(retrain=True)
            second = _quantizers(tmp_path / "ix")
            assert len(first) == len(second) == 1
            assert first != second
            assert index.stats()["n_segments"] == 1
            index.verify()
            assert [_best(index, text) for text in texts[::50]] == before


def _best(index, text):
    return [(hit.text, hit.score) for hit in index.search(text, k=10, mode="dense", candidates=300)]


def _quantizers(path):
    return Manifest.load(Directory(path), find_latest_generation(Directory(path))).quantizers
