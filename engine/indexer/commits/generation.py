"""The current generation of an index, open for its writer."""

from __future__ import annotations

import contextlib
from typing import Self

from quarry.engine.encoding.encoder import Encoder
from quarry.formats.container.directory import Directory
from quarry.formats.errors import FormatError, IndexClosed, IndexNotFound
from quarry.formats.manifest import EncoderRecord, IndexSettings, Manifest, find_latest_generation
from quarry.formats.snapshot import OpenSegment, Snapshot
from quarry.formats.vectors.quantizer import StoredQuantizer

__all__ = ["CommittedGeneration", "CurrentGeneration", "make_root"]


class CommittedGeneration(int):
    """The number of the generation that a commit made.

    Attributes:
        n_replaced: documents of the commit that later ones of it with the same id replaced.
    """

    n_replaced: int

    def __new__(cls, number: int, n_replaced: int = 0) -> Self:
        """Make the number; pickle calls this without `n_replaced`."""
        made = super().__new__(cls, number)
        made.n_replaced = n_replaced
        return made


class CurrentGeneration:
    """The generation that the next commit follows; its files stay open until `advance` or `close`.

    Args:
        directory: the folder of the index.
        root: the predecessor of the first generation of a new index; None: the newest generation is opened.

    Attributes:
        manifest: the manifest of the generation, or the root.

    Raises:
        FormatTooNew: the index has a feature that a writer must know, and this version does not.
    """

    def __init__(self, directory: Directory, root: Manifest | None) -> None:
        self._directory = directory
        self._opened = None if root else Snapshot(directory)
        self.manifest = root or self._opened.manifest  # type: ignore[union-attr]
        try:
            self.manifest.check_writable(directory)
        except BaseException:
            self.close()
            raise

    @property
    def is_root(self) -> bool:
        """Whether nothing was committed yet."""
        return self._opened is None

    @property
    def segments(self) -> tuple[OpenSegment, ...]:
        """The segments of the generation; none before the first."""
        opened = self._opened
        return opened.segments if opened is not None else ()

    def snapshot(self) -> Snapshot:
        """Return a snapshot that shares the open files."""
        return Snapshot(self._directory, self.segments, self.manifest)

    def find(self, doc_id: str) -> tuple[OpenSegment, int] | None:
        """Return segment and ordinal of the live document with that id.

        Raises:
            FormatError: a file is damaged.
        """
        for segment in self.segments:
            ordinal = segment.live_ordinal(doc_id)
            if ordinal is not None:
                return segment, ordinal
        return None

    def find_quantizer(self, name: str = "") -> StoredQuantizer | None:
        """Return the quantizer of that name, for "" the newest; None if there is none."""
        records = {record.name: record for record in self.manifest.quantizers}
        wanted = name or next(reversed(records), "")
        for segment in self.segments:
            if segment.quantizer is not None and segment.record.quantizer == wanted:
                return StoredQuantizer(segment.quantizer, records[wanted])
        return None

    def find_dictionary(self, size: int) -> bytes:
        """Return the newest compression dictionary of half of `size` bytes to twice as many, or b"".

        Each segment has its own copy, so a much larger one would take more space than it saves.
        """
        for segment in reversed(self.segments):
            documents = segment.reader.documents
            with contextlib.suppress(FormatError):  # damaged; reading its documents raises the error
                for run in reversed(range(documents.n_runs)):
                    if size <= 2 * len(dictionary := documents.dictionary(run)) <= 4 * size:
                        documents.check_dictionary(run)
                        return dictionary
        return b""

    def advance(self, manifest: Manifest) -> None:
        """Open the next generation, which is committed, and close the files that it does not share.

        Raises:
            IndexClosed: it cannot be opened.
        """
        try:
            opened = Snapshot(self._directory, self.segments, manifest)
        except (OSError, FormatError) as error:
            raise IndexClosed(
                f"generation {manifest.generation} is committed, but cannot be opened; this writer is closed",
                path=self._directory.path,
                actual=str(error),
            ) from error
        before, self._opened = self._opened, opened
        if before is not None:
            before.close()
        self.manifest = opened.manifest

    def close(self) -> None:
        """Close the files."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


def make_root(directory: Directory, settings: IndexSettings, encoder: Encoder) -> Manifest:
    """Return a manifest, never written, that the first one of a new index follows.

    It has the number and commit id of the index that is replaced; zeros if there is none.
    """
    generation, commit_id = 0, bytes(16)
    with contextlib.suppress(IndexNotFound):
        generation = find_latest_generation(directory)
        with contextlib.suppress(FormatError):  # a damaged index may be replaced too
            commit_id = Manifest.load(directory, generation).commit_id
    return Manifest(
        generation=generation,
        commit_id=commit_id,
        parent_id=bytes(16),
        settings=settings,
        encoder=EncoderRecord(name=encoder.name, identity=encoder.identity, normalize=encoder.normalize),
        segments=(),
        quantizers=(),
    )
