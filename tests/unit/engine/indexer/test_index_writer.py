from __future__ import annotations

import itertools
import os
import sys
import threading
from contextlib import closing

import numpy as np
import pytest
from support.indexes.inside import merges_of, status_of
from support.indexes.small_index import resign
from support.indexes.stored import section_of
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.engine.documents.document import Document
from quarry.engine.indexer.commits.failures import WriterStatus
from quarry.engine.indexer.index_writer import IndexWriter
from quarry.engine.indexer.segments.segment_builder import SegmentBuilder
from quarry.engine.thresholds import Thresholds
from quarry.formats.container.directory import Directory, WriterLimits
from quarry.formats.errors import (
    CommitFailed,
    DurabilityUnknown,
    IndexClosed,
    IndexLocked,
    IndexNotFound,
    InvalidDocument,
)
from quarry.formats.manifest import IndexSettings, Manifest, find_latest_generation
from quarry.formats.snapshot import Snapshot

ENCODER = WordEncoder(dim=16)
SETTINGS = IndexSettings(
    dim=16,
    representation="kmeans",
    representation_settings={"n_centroids": 3},
    beta=None,
    centroids="int8",
    code_bytes=4,
    language="english",
    analysis_rules=1,
    k1=1.2,
    b=0.75,
    seed=0,
)


def docs(*numbers):
    return [Document(f"d{number}", f"text{number} word") for number in numbers]


@pytest.fixture
def directory(tmp_path):
    return Directory(tmp_path)


@pytest.fixture
def filled(directory):
    """Return a directory with an index of d0 to d9 in one segment."""
    writer = IndexWriter(directory, ENCODER, 2, fresh=SETTINGS)
    assert writer.add(docs(*range(10))) == 10
    assert writer.commit() == (1, 0)
    writer.close()
    return directory


@pytest.fixture
def writer(filled):
    opened = IndexWriter(filled, ENCODER, 2)
    yield opened
    opened.close()


def spilling_writer(directory, **limits):
    """Return a writer that spills everything at once."""
    limited = Directory(directory.path, limits=WriterLimits(section_bytes=64, posting_bytes=64, **limits))
    return IndexWriter(limited, ENCODER, 2)


def live(directory):
    """Return ids and texts of all live documents, in the order of segments and ordinals."""
    snapshot = Snapshot(directory)
    found = [
        (segment.reader.ids[doc], segment.reader.documents[doc].text)
        for segment in snapshot.segments
        for doc in range(segment.reader.n_docs)
        if segment.deleted is None or not segment.deleted[doc]
    ]
    assert len(found) == len(snapshot)
    snapshot.close()
    return found


def ids(directory):
    return [doc_id for doc_id, _ in live(directory)]


def names(path):
    return {file.name for file in path.iterdir()}


def stray_files(directory):
    generation = find_latest_generation(directory)
    return names(directory.path) - Manifest.load(directory, generation).file_names() - {"write.lock"}


class TestCommit:
    def test_nothing_to_commit(self, writer, filled):
        assert writer.commit() == (1, 0)
        assert writer.add([]) == 0
        assert writer.delete(["nobody"]) == 0
        assert writer.commit() == (1, 0)
        assert find_latest_generation(filled) == 1

    def test_segments_and_their_order(self, writer, filled):
        writer.add(docs(10, 11))
        assert writer.commit() == (2, 0)
        writer.add(docs(12))
        assert writer.commit() == (3, 0)
        assert ids(filled) == [f"d{number}" for number in range(13)]
        manifest = Manifest.load(filled, 3)
        assert [segment.n_docs for segment in manifest.segments] == [10, 2, 1]
        assert not stray_files(filled)

    def test_the_chain_of_commits(self, writer, filled):
        first = Manifest.load(filled, 1)
        writer.delete(["d0"])
        writer.commit()
        second = Manifest.load(filled, 2)
        assert (first.parent_id, second.parent_id) == (bytes(16), first.commit_id)
        assert first.settings == second.settings == SETTINGS
        assert second.encoder.identity == ENCODER.identity

    def test_an_id_given_twice(self, writer, filled):
        assert writer.add([Document("x", "first"), Document("y", "other"), Document("x", "second")]) == 3
        assert writer.add([Document("x", "third")]) == 1
        assert writer.commit() == (2, 2)
        assert live(filled)[10:] == [("y", "other"), ("x", "third")]
        writer.add([Document("x", "fourth")])
        assert writer.commit() == (3, 0)
        assert live(filled)[10:] == [("y", "other"), ("x", "fourth")]

    def test_replacing_committed_documents(self, writer, filled):
        writer.add([Document("d3", "new three"), Document("d5", "new five")])
        writer.commit()
        assert dict(live(filled))["d3"] == "new three"
        assert ids(filled) == ["d0", "d1", "d2", "d4", "d6", "d7", "d8", "d9", "d3", "d5"]

    def test_deletions(self, writer, filled):
        assert writer.delete(["d1", "d1", "nobody", "d9"]) == 2
        assert writer.delete(["d1"]) == 0
        writer.commit()
        assert ids(filled) == ["d0", "d2", "d3", "d4", "d5", "d6", "d7", "d8"]
        assert writer.delete(["d1"]) == 0
        assert writer.delete(iter(["d2"])) == 1
        writer.commit()
        assert len(live(filled)) == 7
        assert not stray_files(filled)

    def test_add_then_delete(self, writer, filled):
        writer.add(docs(20, 21))
        assert writer.delete(["d20", "d3"]) == 2
        assert writer.delete(["d20"]) == 0
        writer.commit()
        assert ids(filled) == ["d0", "d1", "d2", "d4", "d5", "d6", "d7", "d8", "d9", "d21"]

    def test_add_then_delete_leaves_nothing(self, writer, filled):
        writer.add(docs(20))
        assert writer.delete(["d20"]) == 1
        writer.commit()
        assert len(live(filled)) == 10
        assert len(Manifest.load(filled, find_latest_generation(filled)).segments) == 1

    def test_delete_then_add_again(self, writer, filled):
        assert writer.delete(["d4"]) == 1
        writer.add([Document("d4", "back")])
        writer.commit()
        assert dict(live(filled))["d4"] == "back"
        assert len(live(filled)) == 10

    def test_add_delete_add(self, writer, filled):
        writer.add([Document("x", "one")])
        writer.delete(["x"])
        writer.add([Document("x", "two")])
        assert writer.commit() == (2, 0)
        assert live(filled)[10:] == [("x", "two")]

    def test_a_replacement_that_is_deleted_deletes_what_it_replaced(self, writer, filled):
        writer.add([Document("d4", "new")])
        assert writer.delete(["d4"]) == 1
        writer.commit()
        assert "d4" not in ids(filled)

    def test_a_segment_without_documents_goes(self, writer, filled):
        writer.add(docs(10))
        writer.commit()
        assert writer.delete([f"d{number}" for number in range(10)]) == 10
        writer.commit()
        assert ids(filled) == ["d10"]
        assert len(Manifest.load(filled, 3).segments) == 1
        writer.delete(["d10"])
        writer.commit()
        assert ids(filled) == []
        assert not stray_files(filled)
        writer.add(docs(1))
        writer.commit()
        assert ids(filled) == ["d1"]

    def test_rollback(self, writer, filled):
        writer.add(docs(20))
        writer.delete(["d1", "d20"])
        writer.rollback()
        assert writer.commit() == (1, 0)
        assert writer.delete(["d1"]) == 1
        writer.rollback()
        assert len(live(filled)) == 10
        assert not stray_files(filled)

    def test_counts(self, filled):
        writer = IndexWriter(filled, ENCODER, 1)
        writer.add([Document("a", "one two three four"), Document("b", "one one")])
        assert (writer.n_tokens, writer.n_rows) == (6, 4)
        writer.close()


class TestAdd:
    def test_documents_before_an_invalid_one_are_collected(self, writer, filled):
        """Documents before an invalid one are added, however many are being encoded."""

        def given():
            yield from docs(10, 11, 12)
            raise InvalidDocument("the fourth")

        with pytest.raises(InvalidDocument, match="the fourth"):
            writer.add(given())
        writer.commit()
        assert ids(filled)[10:] == ["d10", "d11", "d12"]

    def test_documents_before_one_that_cannot_be_encoded_are_collected(self, writer, filled):
        with pytest.raises(InvalidDocument, match="document 'bad': the document has no token"):
            writer.add([*docs(10, 11), Document("bad", "..."), *docs(12)])
        writer.commit()
        assert ids(filled)[10:] == ["d10", "d11"]

    def test_documents_that_cannot_be_encoded_may_be_left_out(self, writer, filled):
        left_out = []
        given = [Document("bad", "..."), *docs(10), Document("worse", "!"), *docs(11)]
        assert writer.add(given, left_out.append) == 2
        writer.commit()
        assert ids(filled)[10:] == ["d10", "d11"]
        assert [str(error).split(":")[0] for error in left_out] == ["document 'bad'", "document 'worse'"]

    @pytest.mark.parametrize("value", [np.nan, np.inf, 1e7])
    @pytest.mark.filterwarnings("ignore:invalid value")
    def test_vectors_that_cannot_be_stored(self, filled, value):
        class Broken(WordEncoder):
            def vector(self, word):
                return super().vector(word) * np.float32(value if word == "broken" else 1)

        writer = IndexWriter(filled, Broken(dim=16, normalize=False), 2)
        with pytest.raises(InvalidDocument, match="document 'x': the encoder gave no usable vectors"):
            writer.add([Document("x", "a broken word")])
        writer.add(docs(10))
        writer.commit()
        writer.close()
        assert ids(filled)[10:] == ["d10"]

    def test_vectors_of_another_length(self, filled):
        class Longer(WordEncoder):
            def vector(self, word):
                return np.resize(super().vector(word), 24)

        writer = IndexWriter(filled, Longer(dim=16), 1)
        with pytest.raises(InvalidDocument, match=r"values up to 65504, 16 per vector; found shape \(2, 24\)"):
            writer.add([Document("x", "two words")])
        writer.close()

    def test_order_is_kept_by_many_threads(self, directory):
        writer = IndexWriter(directory, ENCODER, 8, fresh=SETTINGS)
        given = [Document(str(number), "word " * (1 + number * 7919 % 300)) for number in range(300)]
        writer.add(given)
        writer.commit()
        writer.close()
        assert ids(directory) == [str(number) for number in range(300)]

    def test_few_documents_are_under_way(self, directory):
        """An iterable is not read far ahead of the documents that are written."""
        given = []

        def numbered():
            for number in range(500):
                given.append(number)
                yield Document(str(number), "word")

        taken = []
        writer = IndexWriter(directory, ENCODER, 2, fresh=SETTINGS)

        def take(batch, encoder):
            taken.extend(len(given) - len(taken) for _ in batch.ids)

        writer.add_batch = take
        writer.add(numbered())
        writer.close()
        assert len(taken) == 500
        assert max(taken) <= 2 * 8 + 1 + 64


class TestLifeCycle:
    def test_one_writer_at_a_time(self, writer, filled):
        with pytest.raises(IndexLocked, match=f"process {os.getpid()}"):
            IndexWriter(filled, ENCODER, 1)
        with pytest.raises(IndexLocked):
            IndexWriter(filled, ENCODER, 1, fresh=SETTINGS)
        writer.close()
        IndexWriter(filled, ENCODER, 1).close()

    def test_closed(self, writer):
        writer.close()
        writer.close()
        for action in (lambda: writer.add(docs(1)), lambda: writer.delete(["a"]), writer.commit, writer.rollback):
            with pytest.raises(IndexClosed, match="this writer is closed"):
                action()

    def test_closing_forgets(self, filled):
        writer = IndexWriter(filled, ENCODER, 1)
        writer.add(docs(10))
        writer.delete(["d0"])
        writer.close()
        assert len(live(filled)) == 10
        assert not stray_files(filled)

    def test_no_index(self, directory):
        with pytest.raises(IndexNotFound):
            IndexWriter(directory, ENCODER, 1)
        IndexWriter(directory, ENCODER, 1, fresh=SETTINGS).close()

    def test_settings_are_the_indexs(self, filled):
        writer = IndexWriter(filled, ENCODER, 1)
        writer.add([Document("x", "one two three four five")])
        assert writer.n_rows == 3
        writer.close()

    def test_a_fresh_index_replaces_all(self, filled):
        writer = IndexWriter(filled, ENCODER, 1, fresh=SETTINGS)
        writer.add(docs(3))
        assert len(live(filled)) == 10
        assert writer.commit() == (2, 0)
        assert ids(filled) == ["d3"]
        assert not stray_files(filled)
        assert Manifest.load(filled, 2).parent_id != bytes(16)
        writer.add(docs(4))
        assert writer.commit() == (3, 0)
        assert ids(filled) == ["d3", "d4"]
        writer.close()

    def test_a_fresh_index_may_be_empty(self, filled):
        writer = IndexWriter(filled, ENCODER, 1, fresh=SETTINGS)
        assert writer.commit() == (2, 0)
        assert writer.commit() == (2, 0)
        writer.close()
        assert ids(filled) == []
        reopened = IndexWriter(filled, ENCODER, 1)
        reopened.add(docs(1))
        assert reopened.commit() == (3, 0)
        reopened.close()
        assert ids(filled) == ["d1"]


class TestGarbage:
    LEFT_BEHIND = (
        "spool-0123456789abcdef.tmp",
        "manifest-00112233445566778899aabbccddeeff.tmp",
        "0" * 32 + ".seg",
        "1" * 32 + ".del",
        "2" * 32 + ".quant",
        "MANIFEST-" + "0" * 20,
    )
    NOT_OURS = ("notes.txt", "model.seg", "spool.tmp", "write.lock", "MANIFEST-1", "0" * 31 + ".seg", ".hidden")

    def test_leftover_files_are_deleted_and_unknown_files_stay(self, filled):
        for name in (*self.LEFT_BEHIND, *self.NOT_OURS):
            (filled.path / name).write_bytes(b"x")
        IndexWriter(filled, ENCODER, 1).close()
        assert stray_files(filled) == set(self.NOT_OURS) - {"write.lock"}
        assert len(live(filled)) == 10

    def test_no_file_is_deleted_if_the_manifest_cannot_be_read(self, filled):
        manifest = filled.path / f"MANIFEST-{1:020d}"
        manifest.write_bytes(manifest.read_bytes()[:-1])
        before = names(filled.path)
        IndexWriter(filled, ENCODER, 1, fresh=SETTINGS).close()
        assert names(filled.path) == before
        writer = IndexWriter(filled, ENCODER, 1, fresh=SETTINGS)
        writer.add(docs(1))
        assert writer.commit() == (2, 0)
        writer.close()
        assert ids(filled) == ["d1"]
        assert not stray_files(filled)


def failing(monkeypatch, owner, name, error, after=0):
    """Make calls of a method fail from the given one on; earlier ones run."""
    real, calls = getattr(owner, name), []

    def call(*args, **named):
        calls.append(args)
        if len(calls) > after:
            raise error
        return real(*args, **named)

    monkeypatch.setattr(owner, name, call)


NO_SPACE = OSError(28, "No space left on device")


def paragraphs(first, n, words):
    """Return documents of 50 random words each."""
    generator = np.random.default_rng(first)
    return [Document(f"p{first + i}", " ".join(generator.choice(words, 50))) for i in range(n)]


def dictionaries(directory):
    """Return the dictionary of the texts of each segment."""
    return [segment.reader.documents.dictionary(0) for segment in Snapshot(directory).segments]


WORDS = [f"{stem}{ending}" for stem in ("walk", "sing", "talk", "look", "play") for ending in ("er", "ing", "ed")]


class TestDictionaries:
    def test_a_commit_takes_that_of_one_like_it(self, writer, filled):
        sizes = (200, 200, 900, 200, 8)
        for number, n_docs in enumerate(sizes):
            writer.add(paragraphs(1000 * number, n_docs, WORDS))
            writer.commit()
        found = dictionaries(filled)[1:]
        assert found[0] == found[1] == found[3]
        assert len(found[2]) > 2 * len(found[0]) > 0  # its own dictionary, because the others would be too small
        assert found[4] == b""
        texts = dict(live(filled))
        for number, n_docs in enumerate(sizes):
            for document in paragraphs(1000 * number, n_docs, WORDS):
                assert texts[document.id] == document.text

    def test_texts_of_another_kind_have_their_own(self, writer, filled):
        writer.add(paragraphs(0, 200, WORDS))
        writer.commit()
        writer.add(paragraphs(1000, 200, [f"{number * 7919 % 9973}" for number in range(40)]))
        writer.commit()
        _, first, second = dictionaries(filled)
        assert first != second
        assert len(second) > 500

    def test_an_invalid_dictionary_of_another_segment_is_skipped(self, writer, filled):
        """A dictionary with correct checksums that is invalid is not reused."""
        writer.add(paragraphs(0, 200, WORDS))
        writer.commit()
        writer.close()
        with closing(Snapshot(filled)) as snapshot:
            name = snapshot.segments[1].reader.path.name

        def spoil(segment):
            section = segment.contents["sections"]["document_dictionaries"]
            start = section["offset"] - 64
            for place in range(start + 4, start + section["shape"][0]):
                segment.data[place] = 0xFF
            segment.sign()

        resign(filled, name, spoil)
        again = IndexWriter(filled, ENCODER, 1)
        again.add(paragraphs(1000, 200, WORDS))
        assert again.commit() == (3, 0)
        again.close()
        with closing(Snapshot(filled)) as snapshot:
            texts = [snapshot.segments[2].reader.documents[doc].text for doc in range(200)]
        assert texts == [document.text for document in paragraphs(1000, 200, WORDS)]
        _, spoiled, found = dictionaries(filled)
        assert found
        assert found != spoiled

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no open files")
    def test_a_damaged_one_is_passed_over(self, writer, filled):
        writer.add(paragraphs(0, 200, WORDS))
        writer.commit()
        writer.close()
        reader = Snapshot(filled).segments[1].reader
        place = section_of(reader.path, "document_dictionaries").start
        content = bytearray(reader.path.read_bytes())
        content[place + 100] ^= 1
        reader.path.write_bytes(content)
        again = IndexWriter(filled, ENCODER, 1)
        again.add(paragraphs(1000, 200, WORDS))
        assert again.commit() == (3, 0)
        again.close()
        assert len(Snapshot(filled)) == 410


class TestFailures:
    @pytest.mark.parametrize(
        ("owner", "name", "after"),
        [
            ("quarry.formats.container.directory.Directory", "create", 0),
            ("quarry.formats.container.directory.Directory", "create", 1),
            ("quarry.formats.container.directory.OutputFile", "write", 3),
            ("quarry.formats.container.directory.OutputFile", "sync", 0),
            ("quarry.formats.container.directory.OutputFile", "sync", 1),
            ("quarry.formats.container.directory.OutputFile", "sync", 2),
            ("quarry.formats.container.directory.Directory", "rename", 0),
        ],
    )
    def test_a_commit_that_fails(self, writer, filled, monkeypatch, owner, name, after):
        """A failed commit leaves the index as it was, no orphan files, and the uncommitted changes."""
        writer.add(docs(10, 11))
        writer.delete(["d0"])
        with monkeypatch.context() as patch:
            module, _, class_name = owner.rpartition(".")
            failing(patch, getattr(__import__(module, fromlist=["x"]), class_name), name, NO_SPACE, after)
            for _ in range(2):
                with pytest.raises(CommitFailed, match=r"nothing was committed.*No space left") as caught:
                    writer.commit()
        assert caught.value.path == filled.path
        assert len(live(filled)) == 10
        assert not stray_files(filled)
        writer.add(docs(12))  # added after the failures
        assert writer.commit() == (2, 0)
        assert ids(filled) == [f"d{number}" for number in range(1, 13)]
        assert not stray_files(filled)

    def test_a_failed_commit_can_be_rolled_back(self, writer, filled, monkeypatch):
        writer.add(docs(10))
        writer.delete(["d0"])
        with monkeypatch.context() as patch:
            failing(patch, filled, "rename", NO_SPACE)
            with pytest.raises(CommitFailed):
                writer.commit()
        writer.rollback()
        assert writer.commit() == (1, 0)
        writer.close()
        assert len(live(filled)) == 10
        assert not stray_files(filled)

    @pytest.mark.parametrize("error", [MemoryError(), RuntimeError("bad_alloc")])
    def test_a_commit_for_which_memory_is_short(self, writer, filled, monkeypatch, error):
        """After a MemoryError in any part of a segment, the commit can be repeated."""
        writer.add(paragraphs(100, 100, WORDS))
        parts = (
            "documents.ids.DocIdsWriter",
            "postings.postings.PostingsWriter",
            "documents.store.DocStoreWriter",
        )
        for where in [
            *(f"quarry.formats.{part}.write" for part in parts),
            "quarry.formats.manifest.Manifest.commit",
        ]:
            with monkeypatch.context() as patch:
                patch.setattr(where, lambda *_: (_ for _ in ()).throw(error))
                with pytest.raises(type(error)):
                    writer.commit()
            assert not stray_files(filled)
        assert writer.commit() == (2, 0)
        assert len(live(filled)) == 110

    def test_whether_a_commit_happened_cannot_be_seen(self, writer, filled, monkeypatch):
        """A writer closes if it cannot find out whether its commit happened."""
        writer.add(docs(10))
        with monkeypatch.context() as patch:
            failing(patch, filled, "rename", NO_SPACE)
            failing(patch, filled, "names", OSError(5, "Input/output error"))
            patch.setattr(filled, "may_hold", lambda *_: True)  # as if the lookup failed
            with pytest.raises(DurabilityUnknown, match="whether the commit is visible, and for good, is unknown"):
                writer.commit()
        with pytest.raises(IndexClosed):
            writer.commit()
        assert len(live(filled)) == 10

    def test_a_commit_that_may_not_last(self, writer, filled, monkeypatch):
        """Files of the previous generation are kept if a commit may be lost at a power loss."""
        before = Manifest.load(filled, 1).file_names()
        writer.add(docs(10))
        writer.delete(["d0"])
        with monkeypatch.context() as patch:
            failing(patch, filled, "sync", OSError(5, "Input/output error"), after=1)
            with pytest.raises(DurabilityUnknown, match="generation 2 is visible"):
                writer.commit()
        assert ids(filled) == [f"d{number}" for number in range(1, 11)]
        assert before <= names(filled.path)
        with pytest.raises(IndexClosed):
            writer.add(docs(11))

    def test_a_commit_whose_rename_is_done_and_reported_as_failed(self, writer, filled, monkeypatch):
        """A commit whose rename succeeded but reported an error is reported as made."""
        rename = os.rename

        def lose_the_answer(source, target):
            rename(source, target)
            raise OSError(5, "Input/output error")

        writer.add(docs(10))
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", lose_the_answer)
            assert writer.commit() == (2, 0)
        writer.add(docs(11))
        assert writer.commit() == (3, 0)
        assert len(live(filled)) == 12

    def test_a_closed_writer_says_why(self, writer, filled, monkeypatch):
        writer.add(docs(10))
        with monkeypatch.context() as patch:
            failing(patch, filled, "sync", OSError(5, "Input/output error"), after=1)
            with pytest.raises(DurabilityUnknown):
                writer.commit()
        with pytest.raises(IndexClosed, match=r"this writer is closed; found .*Input/output error"):
            writer.add(docs(11))

    def test_old_files_stay_until_a_sync_succeeds(self, filled, monkeypatch):
        leftover = filled.path / ("0" * 32 + ".seg")
        leftover.write_bytes(b"")
        with monkeypatch.context() as patch:
            failing(patch, filled, "sync", OSError(5, "Input/output error"))
            IndexWriter(filled, ENCODER, 1).close()
        assert leftover.exists()
        IndexWriter(filled, ENCODER, 1).close()
        assert not leftover.exists()

    def test_documents_that_cannot_be_moved_out_of_memory(self, filled, monkeypatch):
        """Documents that were added before a spill failed are kept complete."""
        writer = spilling_writer(filled, sample_bytes=64)
        writer.add(docs(10))
        real, n_calls = os.write, itertools.count()

        def half_a_write(descriptor, data):
            if next(n_calls) % 3 == 0:
                return real(descriptor, data)
            real(descriptor, data[: len(data) // 2])
            raise NO_SPACE

        failures = []
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", half_a_write)
            for number in (0, 1, *range(11, 40)):
                try:
                    writer.add(docs(number))
                except CommitFailed as error:
                    failures.append(error)
        assert len(failures) > 10
        assert all("are kept" in str(error) and "No space left" in str(error) for error in failures)
        assert writer.commit() == (2, 0)
        assert sorted(live(filled)) == sorted((f"d{number}", f"text{number} word") for number in range(40))
        writer.close()
        assert not stray_files(filled)

    def test_an_interrupt_while_a_commit_is_followed_up(self, writer, filled, monkeypatch):
        """An interrupt after a commit keeps it and closes the writer, whose state is unknown."""
        writer.add(docs(10))
        with monkeypatch.context() as patch:
            failing(patch, Snapshot, "_open", KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                writer.commit()
        assert len(live(filled)) == 11
        with pytest.raises(IndexClosed):
            writer.add(docs(11))
        again = IndexWriter(filled, ENCODER, 1)
        again.add(docs(12))
        again.commit()
        again.close()
        assert len(live(filled)) == 12

    def test_a_failure_that_is_undone_is_not_visible(self, writer, filled, monkeypatch):
        """Other threads do not see a state that is undone, for example of a failed background merge."""
        seen, names = [], filled.names

        def look():
            seen.append(status_of(writer))
            return names()

        writer.add(docs(10))
        with monkeypatch.context() as patch:
            failing(patch, filled, "rename", NO_SPACE)
            patch.setattr(filled, "names", look)  # to find out which generation is the newest
            with pytest.raises(CommitFailed):
                writer.commit()
        assert seen == [WriterStatus.CLEAN]
        assert writer.commit() == (2, 0)

    @pytest.mark.parametrize("what", ["commit", "merge"])
    def test_an_interrupt_just_after_a_generation_was_made(self, writer, filled, monkeypatch, what):
        """An interrupt just after a commit does not delete its files."""
        delete, deleted = filled.delete, []

        def interrupted(name):
            delete(name)
            deleted.append(name)
            if len(deleted) == 1:
                raise KeyboardInterrupt

        writer.delete(["d0"])
        writer.add(docs(10))
        writer.commit()
        writer.delete(["d1"])
        writer.add(docs(11))
        with monkeypatch.context() as patch:
            patch.setattr(filled, "delete", interrupted)  # files that the generation does not need
            with pytest.raises(KeyboardInterrupt):
                getattr(writer, what)()
        assert len(live(filled)) == 10
        with pytest.raises(IndexClosed):
            writer.commit()
        assert len(live(filled)) == 10
        assert not stray_files(filled) or sys.platform == "win32"  # which keeps files that are open

    @pytest.mark.parametrize(
        "where",
        ["quarry.formats.container.spool.Spool._spill", "quarry.formats.postings.inversion.PostingRuns._spill"],
    )
    def test_an_interrupt_while_documents_are_moved_out_of_memory(self, filled, monkeypatch, where):
        """An interrupt during a spill closes the writer, because the amount written is unknown."""
        writer = spilling_writer(filled)
        writer.add(docs(10))
        with monkeypatch.context() as patch:
            patch.setattr(where, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                writer.add(docs(11))
        with pytest.raises(IndexClosed):
            writer.commit()
        assert len(live(filled)) == 10
        assert not stray_files(filled)

    def test_an_interrupt_of_a_rollback(self, writer, filled, monkeypatch):
        """An interrupted rollback deletes no document whose replacement was discarded."""
        writer.add(docs(0, 1))
        with monkeypatch.context() as patch:
            failing(patch, SegmentBuilder, "close", KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                writer.rollback()
        with pytest.raises(IndexClosed):
            writer.commit()
        assert len(live(filled)) == 10

    def test_a_commit_behind_a_merge_that_may_not_last(self, writer, filled, monkeypatch):
        """A commit fails and deletes no files if a background merge became uncertain meanwhile."""
        create, is_merged = filled.create, threading.Event()

        def merged_meanwhile(name):
            if not is_merged.is_set():
                is_merged.set()
                with monkeypatch.context() as patch:
                    failing(patch, filled, "sync", OSError(5, "Input/output error"), after=1)
                    with pytest.raises(DurabilityUnknown):
                        merges_of(writer).merge_all(retrain=False)
            return create(name)

        writer.delete(["d0"])
        writer.commit()
        before = Manifest.load(filled, 2).file_names()
        writer.add(docs(10))
        monkeypatch.setattr(filled, "create", merged_meanwhile)
        with pytest.raises(IndexClosed, match="Input/output error"):
            writer.commit()
        assert find_latest_generation(filled) == 3
        assert before <= names(filled.path)
        assert len(live(filled)) == 9

    def test_errors_that_are_their_own_cause(self, writer, filled, monkeypatch):
        """References to an error that is its own cause are released."""
        writer.add(docs(10))
        failing(monkeypatch, Directory, "rename", NO_SPACE)
        error = ValueError()
        try:
            raise error from error
        except ValueError:
            with pytest.raises(CommitFailed):
                writer.commit()

    def test_an_interrupt_while_documents_are_read(self, writer, filled):
        def given():
            yield from docs(10, 11)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            writer.add(given())
        writer.rollback()
        writer.add(docs(12))
        writer.commit()
        assert ids(filled)[10:] == ["d12"]


class TestQuantizers:
    SMALL = Thresholds(calibration_queries=64, list_rows=300)
    HOW = {"encoder": ENCODER, "representation": "kmeans", "code_bytes": 4, "thresholds": SMALL}  # noqa: RUF012

    @pytest.fixture
    def path(self, tmp_path):
        texts = [{"id": str(number), "text": f"text{number} word{number % 7}"} for number in range(400)]
        engine.build(texts, tmp_path / "index", **self.HOW, threads=1)
        return tmp_path / "index"

    def test_later_segments_share_it(self, path):
        directory = Directory(path)
        first = Manifest.load(directory, 1)
        assert len(first.quantizers) == 1
        with Engine.open(path, writable=True, encoder=ENCODER, thresholds=self.SMALL) as index:
            index.add([{"id": f"new{number}", "text": f"other{number} words"} for number in range(301)])
            index.commit()
            index.add([{"id": "alone", "text": "alone"}])
            index.commit()
            assert len(index) == 702
            index.verify()
            assert index.search("other7 words", k=1)[0].id == "new7"
            assert index.search("alone", k=1)[0].id == "alone"
        manifest = Manifest.load(directory, 3)
        assert manifest.quantizers == first.quantizers
        name = first.quantizers[0].name
        assert [segment.quantizer for segment in manifest.segments] == [name, name, ""]

    def test_a_quantizer_is_dropped_with_its_last_segment(self, path):
        directory = Directory(path)
        with Engine.open(path, writable=True, encoder=ENCODER, thresholds=self.SMALL) as index:
            index.add([{"id": "alone", "text": "alone"}])
            index.delete([str(number) for number in range(400)])
            index.commit()
        assert Manifest.load(directory, 2).quantizers == ()
        assert not list(path.glob("*.quant"))
        assert not stray_files(directory)

    def test_the_same_documents_give_the_same_files(self, path, tmp_path):
        texts = [{"id": str(number), "text": f"text{number} word{number % 7}"} for number in range(400)]
        engine.build(texts, tmp_path / "again", **self.HOW, threads=3)
        assert next(path.glob("*.quant")).name == next((tmp_path / "again").glob("*.quant")).name
        engine.build(texts, tmp_path / "other", **self.HOW, seed=5)
        assert next(path.glob("*.quant")).name != next((tmp_path / "other").glob("*.quant")).name

    def test_a_build_over_its_own_quantizer(self, path):
        name = next(path.glob("*.quant")).name
        texts = [{"id": str(number), "text": f"text{number} word{number % 7}"} for number in range(400)]
        engine.build(texts, path, **self.HOW, threads=1, overwrite=True)
        assert [file.name for file in path.glob("*.quant")] == [name]
        with Engine.open(path) as index:
            index.verify()
