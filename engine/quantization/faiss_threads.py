"""Number of threads that FAISS uses in the calling thread."""

from __future__ import annotations

import os

__all__ = ["set_faiss_threads"]

_first_process: list[int] = []  # the first process to use FAISS: this one, or a parent


def set_faiss_threads(threads: int) -> None:
    """Set the number of threads that FAISS uses in calls from this thread.

    Its OpenMP runtime does not survive a fork: a child that used several threads after its parent did would wait
    for threads that do not exist. In such a child the number is always one.
    """
    import faiss

    process = os.getpid()
    if not _first_process:
        _first_process.append(process)
    faiss.omp_set_num_threads(threads if _first_process[0] == process else 1)
