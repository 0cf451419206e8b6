"""How many threads FAISS uses in the calling thread."""

from __future__ import annotations

import os

__all__ = ["set_faiss_threads"]

_first_process: list[int] = []  # the process that was the first to use FAISS, or a parent of this one that was


def set_faiss_threads(threads: int) -> None:
    """Let FAISS use that many threads in calls from this thread.

    Its OpenMP runtime does not survive a fork: a child that asked for several threads after its parent had would
    wait for threads that do not exist. Such a child gets one.
    """
    import faiss

    process = os.getpid()
    if not _first_process:
        _first_process.append(process)
    faiss.omp_set_num_threads(threads if _first_process[0] == process else 1)
