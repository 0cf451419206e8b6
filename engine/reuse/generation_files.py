"""All files of the newest generation of an index, open at once, so that others can take them over."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from typing import Self

from quarry.formats.container.directory import Directory
from quarry.formats.container.file_copies import SourceFile
from quarry.formats.container.spool import TEMPORARY_SUFFIX
from quarry.formats.errors import CorruptFile, IndexNotFound
from quarry.formats.manifest import Manifest, use_newest
from quarry.formats.shard_set import ShardSet, has_shard_set, load_newest_shard_set, shard_directory
from quarry.formats.snapshot import Snapshot
from quarry.formats.vectors.hnsw_graph import graph_name

__all__ = ["GenerationFiles", "open_generations", "open_shards"]

_ATTEMPTS = 100  # a commit may delete files between the reading of their manifest and their opening


class GenerationFiles:
    """The open files of the newest generation, its graphs included; a context manager.

    Once they are open, commits and merges of other processes do not affect them.

    Args:
        directory: the folder of the index, without shards.

    Attributes:
        directory: the folder of the index.
        manifest: the manifest of the generation.
        n_files: how many files were put into another folder.
        n_linked: how many of them are hard links.
        n_bytes: size of these files.

    Raises:
        IndexNotFound: there is no index.
        FormatError: a file is damaged or missing.
        AccessFailed: a file cannot be opened.
    """

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.n_files = self.n_linked = self.n_bytes = 0
        self._files: dict[str, SourceFile] = {}
        self._snapshot: Snapshot | None = None
        use_newest(directory, self._open)

    @property
    def snapshot(self) -> Snapshot:
        """The generation, to be read."""
        assert self._snapshot is not None
        return self._snapshot

    def put(self, target: Directory) -> None:
        """Link or copy all files but the manifest into a folder, and check that they fit the manifest.

        Raises:
            FormatError: a file is damaged.
            AccessFailed: a file cannot be read or written.
        """
        for name in self._files:
            if name != self.manifest.name:
                self.put_file(name, target)
        Snapshot(target, manifest=self.manifest).close()
        target.sync()

    def publish(self, target: Directory) -> None:
        """Copy the manifest too, with which the folder becomes an index."""
        temporary = f"manifest-{self.manifest.commit_id.hex()}{TEMPORARY_SUFFIX}"
        file = self._files[self.manifest.name]
        file.copy(target, temporary)
        self.n_files += 1
        self.n_bytes += file.n_bytes
        target.rename(temporary, self.manifest.name)
        target.sync()

    def has_file(self, name: str) -> bool:
        """Return whether the generation has a file, or a graph, of that name."""
        return name in self._files

    def put_file(self, name: str, target: Directory) -> None:
        """Link or copy a file into a folder.

        Args:
            name: the name of the file.
            target: the folder.

        Raises:
            TruncatedFile: the file became shorter.
            AccessFailed: it cannot be read, or the copy cannot be written.
        """
        self.n_linked += self._files[name].put(target, name)
        self.n_files += 1
        self.n_bytes += self._files[name].n_bytes

    def close(self) -> None:
        """Close all files."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, manifest: Manifest) -> None:
        self.manifest = manifest
        try:
            for name in sorted(manifest.file_names()):
                self._files[name] = SourceFile(self.directory, name)
            for segment in manifest.segments:
                name = graph_name(segment.file.file_id)
                with contextlib.suppress(FileNotFoundError):
                    self._files[name] = SourceFile(self.directory, name)
            self._snapshot = Snapshot(self.directory, manifest=manifest)
        except BaseException:
            self.close()
            raise


def open_generations(directory: Directory, stack: ExitStack) -> list[GenerationFiles]:
    """Open the newest generation of an index, or of all its shards.

    Args:
        directory: the folder of the index, sharded or not.
        stack: closes the files.

    Raises:
        QuarryError: as `GenerationFiles` and `open_shards` raise it.
    """
    if has_shard_set(directory):
        return open_shards(directory, stack)[1]
    return [stack.enter_context(GenerationFiles(directory))]


def open_shards(directory: Directory, stack: ExitStack) -> tuple[ShardSet, list[GenerationFiles]]:
    """Open the files of all shards of an index at one moment, if commits follow one another slowly enough.

    Args:
        directory: the folder of the index.
        stack: closes the files.

    Raises:
        FormatTooNew: the index has a feature that a writer must know, and this version does not.
        FormatError: a file is damaged or missing.
        AccessFailed: a file cannot be opened.
    """
    for attempt in range(_ATTEMPTS):
        with ExitStack() as opening:
            shard_set = load_newest_shard_set(directory)
            shard_set.check_writable(directory)  # the new one would not have the features that are not known
            n_shards = len(shard_set.folders)
            try:
                shards = [
                    opening.enter_context(GenerationFiles(shard_directory(directory, name, n_shards)))
                    for name in shard_set.folders
                ]
                is_newest = all(shard.manifest.is_newest(shard.directory) for shard in shards)
            except IndexNotFound as error:
                shard_set.check_replaced(directory, error)
                continue
            if is_newest or attempt + 1 == _ATTEMPTS:
                stack.push(opening.pop_all())
                return shard_set, shards
    raise CorruptFile("the shards of the index cannot be opened", path=directory.path)
