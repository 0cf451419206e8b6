"""What `Engine.sync` reports, and the door to `quarry.readers.sync`, which does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quarry.readers.sync.folder_sync import FolderSync

__all__ = ["SyncReport", "folder_sync"]


@dataclass(frozen=True, kw_only=True)
class SyncReport:
    """Report of the changes that `Engine.sync` made, or would make.

    Files are named by their paths in the folder, with slashes, ascending.

    Attributes:
        added: files that the index did not have.
        changed: files whose content is another one now.
        removed: files that are gone, or left out now, and whose documents were deleted.
        failed: files and folders that could not be read, and why; what the index has of them stays. Also files
            with a document that cannot be encoded, or whose id is that of another document.
        empty: files without text.
        left_out: files that are not read, and why: of other kinds, or tables that hold no documents, often because
            the column of the texts has to be named.
        moved: files of `added` and `changed` whose content the index had under another path, which is the value:
            they are not encoded again.
        by_words: files of `added` and `changed` above the size up to which vectors are computed: their documents
            are found by words alone.
        n_unchanged: files whose content is the same.
        generation: that the index has now; None for a dry run.
    """

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    failed: dict[str, str]
    empty: tuple[str, ...]
    left_out: dict[str, str]
    moved: dict[str, str]
    by_words: tuple[str, ...]
    n_unchanged: int
    generation: int | None


def folder_sync() -> type[FolderSync]:
    """Return the class that compares a folder with an index; `quarry.readers` is on top of the engine."""
    from quarry.readers.sync.folder_sync import FolderSync

    return FolderSync
