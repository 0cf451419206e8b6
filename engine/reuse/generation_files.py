"""All files of the newest generation of an index, open at once, so that they can be taken over."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Self

from quarry.formats.container.directory import Directory
from quarry.formats.container.file_copies import SourceFile
from quarry.formats.container.spool import TEMPORARY_SUFFIX
from quarry.formats.errors import CorruptFile
from quarry.formats.manifest import Manifest, find_latest_generation
from quarry.formats.snapshot import Snapshot
from quarry.formats.vectors.hnsw_graph import graph_name

__all__ = ["GenerationFiles"]

_ATTEMPTS = 100  # a commit may delete files between the reading of their manifest and their opening


class GenerationFiles:
    """The open files of the newest generation, its graphs included; a context manager.

    Once they are open, commits and merges of other processes do not concern them.

    Args:
        directory: of the index, without shards.

    Attributes:
        directory: of the index.
        manifest: of the generation.
        n_files: how many files were put into another folder.
        n_linked: how many of them are hard links.
        n_bytes: size of these files.

    Raises:
        IndexNotFound: there is no index.
        FormatError: the manifest is damaged, or a file is missing.
        AccessFailed: a file cannot be opened.
    """

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.n_files = self.n_linked = self.n_bytes = 0
        self._files: dict[str, SourceFile] = {}
        try:
            self._open_newest()
        except BaseException:
            self.close()
            raise

    @property
    def n_documents(self) -> int:
        """Number of documents that are not deleted."""
        return sum(segment.n_docs - segment.n_deleted for segment in self.manifest.segments)

    def put(self, target: Directory) -> None:
        """Link or copy all files but the manifest into a folder, and check that they fit the manifest.

        Raises:
            FormatError: a file is damaged.
            AccessFailed: a file cannot be read or written.
        """
        for name in self._files:
            if name != self.manifest.name:
                self._put(name, target, name)
        Snapshot(target, manifest=self.manifest).close()
        target.sync()

    def publish(self, target: Directory) -> None:
        """Link or copy the manifest too, with which the folder becomes an index."""
        temporary = f"manifest-{self.manifest.commit_id.hex()}{TEMPORARY_SUFFIX}"
        self._put(self.manifest.name, target, temporary)
        target.rename(temporary, self.manifest.name)
        target.sync()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _put(self, name: str, target: Directory, new_name: str) -> None:
        self.n_linked += self._files[name].put(target, new_name)
        self.n_files += 1
        self.n_bytes += self._files[name].n_bytes

    def _open_newest(self) -> None:
        for attempt in range(_ATTEMPTS):
            generation = find_latest_generation(self.directory)
            try:
                self._open(generation)
            except FileNotFoundError as error:
                self.close()
                if attempt + 1 == _ATTEMPTS or find_latest_generation(self.directory) == generation:
                    raise CorruptFile("a file of the index is missing", path=error.filename) from error
            else:
                return

    def _open(self, generation: int) -> None:
        self.manifest = Manifest.load(self.directory, generation)
        for name in sorted(self.manifest.file_names()):
            self._files[name] = SourceFile(self.directory, name)
        for segment in self.manifest.segments:
            name = graph_name(segment.file.file_id)
            with contextlib.suppress(FileNotFoundError):
                self._files[name] = SourceFile(self.directory, name)
