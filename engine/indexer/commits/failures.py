"""State of a writer after failures: `WriterState`."""

from __future__ import annotations

import enum
import threading
import traceback
from pathlib import Path

from quarry.formats.errors import DurabilityUnknown, IndexClosed

__all__ = ["WriterState", "WriterStatus", "clear_frames"]


class WriterStatus(enum.IntEnum):
    """Whether a writer can continue; its status only moves down this list.

    =========  ================================================  ============  ================================
    status     meaning                                           can commit    orphan files at `close`
    =========  ================================================  ============  ================================
    CLEAN      nothing failed                                    yes           none
    LITTERED   a step failed that has changed nothing            yes           deleted
    FAILED     a step failed, perhaps halfway; the files of the  no            deleted
               current generation are complete
    UNCERTAIN  a commit is visible, or may be, that a power      no            kept: the generation before it
               loss may undo                                                   may be the current one afterwards
    CLOSED     files are closed and the lock is released         no
    =========  ================================================  ============  ================================
    """

    CLEAN = 0
    LITTERED = 1
    FAILED = 2
    UNCERTAIN = 3
    CLOSED = 4


class WriterState:
    """The status of a writer, shared by its parts and threads.

    Args:
        path: the path of the index, for messages.

    Attributes:
        status: see `WriterStatus`.
        reason: message of the error that the writer failed with; None: it has not failed.
    """

    def __init__(self, path: Path) -> None:
        self.status = WriterStatus.CLEAN
        self.reason: str | None = None
        self._path = path
        self._mutex = threading.Lock()

    @property
    def is_closed(self) -> bool:
        """Whether the lock is released."""
        return self.status == WriterStatus.CLOSED

    @property
    def can_commit(self) -> bool:
        """Whether changes can still be made."""
        return self.status < WriterStatus.FAILED

    @property
    def has_orphan_files(self) -> bool:
        """Whether files may be left that no generation names, and it is safe to delete them."""
        return self.status in (WriterStatus.LITTERED, WriterStatus.FAILED)

    def check(self) -> None:
        """Check that changes can still be made.

        Raises:
            IndexClosed: the writer is closed or has failed; the error names the reason.
        """
        if not self.can_commit:
            raise self.closed_error()

    def closed_error(self) -> IndexClosed:
        """Return the error of a closed writer."""
        return IndexClosed("this writer is closed", path=self._path, actual=self.reason)

    def note_orphan_files(self) -> None:
        """Record that a step failed that has changed nothing: CLEAN becomes LITTERED."""
        self._advance(WriterStatus.LITTERED)

    def fail(self, error: BaseException) -> None:
        """Record a failure after which nothing can be committed: FAILED, or UNCERTAIN after DurabilityUnknown.

        Only the message is kept, because an error refers to everything that its functions had open. The first
        message stays.
        """
        self.reason = self.reason or str(error) or type(error).__name__
        is_visible = isinstance(error, DurabilityUnknown)
        self._advance(WriterStatus.UNCERTAIN if is_visible else WriterStatus.FAILED)

    def close(self) -> None:
        """Record that the writer is closed."""
        self._advance(WriterStatus.CLOSED)

    def _advance(self, status: WriterStatus) -> None:
        # Never back: a lesser failure that another thread notes later must not allow what an earlier one forbade.
        with self._mutex:
            self.status = max(self.status, status)


def clear_frames(error: BaseException) -> None:
    """Clear the frames of functions that have ended from an error that is kept: they refer to files and arrays."""
    each: BaseException | None = error
    seen: set[int] = set()  # `raise error from error` is its own cause
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        traceback.clear_frames(each.__traceback__)
        each = each.__cause__ or each.__context__
