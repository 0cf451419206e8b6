"""Processes of this machine that write batches of documents: a fixed number, replaced when one ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Self

from quarry.engine.building.workers.batch_writer import BatchWriter
from quarry.engine.building.workers.job import BuildJob, DocumentBatch, WrittenBatch
from quarry.engine.process.spawned import ignore_interrupts, start_uninterrupted
from quarry.formats.errors import WorkerFailed

__all__ = ["MAX_ATTEMPTS", "WorkerProcesses"]

MAX_ATTEMPTS = 3
"""Number of times that a batch is given to a process before the build fails, if the processes end every time."""

_READY = "ready"
_Answer = WrittenBatch | Exception


class WorkerProcesses:
    """Writes batches with several processes, each of which encodes on one thread; a context manager.

    The processes are started by "spawn", so each imports the main module of this one: a program has to begin its
    work under ``if __name__ == "__main__":``. They end with this process, however it ends, and ignore Ctrl-C: this
    process receives it too.
    """

    def __init__(self, job: BuildJob, n_workers: int) -> None:
        self._job = job
        self._n_workers = n_workers
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes, whatever they are doing."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.join()
        self._workers.clear()

    def write(self, batches: Iterable[DocumentBatch]) -> Iterator[WrittenBatch]:
        """Yield each written batch when it is finished; one batch more is read than processes are working on.

        If a process ends, for example for lack of memory, its batch is given to a new one, `MAX_ATTEMPTS` times at
        most.

        Raises:
            WorkerFailed: processes end with the same batch, or one exits before its first one.
            Exception: of a process, such as InvalidDocument; or of `batches`.
        """
        following = iter(batches)
        ready = next(following, None)
        again: deque[DocumentBatch] = deque()
        n_failures: dict[int, int] = {}
        while True:
            while (batch := again[0] if again else ready) is not None and (worker := self._idle()) is not None:
                worker.give(batch)
                if again:
                    again.popleft()
                else:
                    ready = next(following, None)
            busy = [worker for worker in self._workers if worker.batch is not None]
            if not busy:
                return
            for worker in _with_answers(busy):
                given = worker.batch
                assert given is not None
                answer = worker.answer()
                if isinstance(answer, Exception):
                    raise answer
                if answer is not None:
                    yield answer
                    continue
                self._workers.remove(worker)
                self._count_failure(worker, given, n_failures)
                again.append(given)

    def _idle(self) -> _Worker | None:
        """A process that has nothing to do; a new one if there are not as many as there may be."""
        for worker in self._workers:
            if worker.batch is None:
                return worker
        if len(self._workers) == self._n_workers:
            return None
        self._workers.append(_Worker(self._job))
        return self._workers[-1]

    def _count_failure(self, worker: _Worker, batch: DocumentBatch, n_failures: dict[int, int]) -> None:
        """Raise WorkerFailed if a batch has ended its last process."""
        worker.join()
        how = _describe_exit(worker.exit_code)
        has_exited = worker.exit_code is None or worker.exit_code >= 0  # by itself, not by a signal
        if not worker.has_started and has_exited:
            raise WorkerFailed(
                "a process that encodes documents could not be started; its standard error says why",
                path=self._job.index,
                expected='a main module whose work begins under `if __name__ == "__main__":`, and enough memory',
                actual=f"a process that {how}",
            )
        n_failures[batch.number] = n_failures.get(batch.number, 0) + 1
        if n_failures[batch.number] >= MAX_ATTEMPTS:
            raise WorkerFailed(
                f"{batch}: {MAX_ATTEMPTS} processes ended while they encoded them",
                path=self._job.index,
                expected="documents that can be encoded, and enough memory; fewer workers need less",
                actual=f"a process that {how}",
            )


class _Worker:
    """A process, and the batch that it works on.

    Attributes:
        batch: None: it has nothing to do.
        has_started: whether it was ready to work.
    """

    def __init__(self, job: BuildJob) -> None:
        self.batch: DocumentBatch | None = None
        self.has_started = False
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), name="quarry-worker", daemon=True)
        try:
            with theirs:
                start_uninterrupted(self._process)
            # not as an argument: a start waits for ever if the process ends before it has read a long one
            self._send(job)
        except BaseException:  # such as an interrupt, after which it may run nevertheless
            if self._process.pid is not None:
                self._process.kill()
            self.connection.close()
            raise

    @property
    def exit_code(self) -> int | None:
        """See `multiprocessing.Process.exitcode`."""
        return self._process.exitcode

    def give(self, batch: DocumentBatch) -> None:
        """Let the process write a batch; if it has ended, `answer` says so."""
        self.batch = batch
        self._send(batch)

    def _send(self, message: object) -> None:
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def answer(self) -> _Answer | None:
        """Wait for what the process has to say about its batch; None: it has ended."""
        try:
            message = self.connection.recv()
            while message == _READY:
                self.has_started = True
                message = self.connection.recv()
        except (EOFError, OSError):
            return None
        self.batch = None
        return message  # type: ignore[no-any-return]

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def join(self) -> None:
        """Wait for the end of the process."""
        self._process.join()
        self.connection.close()


def _with_answers(workers: list[_Worker]) -> list[_Worker]:
    """Wait until a process has something to say, or has ended; return those."""
    ready = wait([worker.connection for worker in workers])
    return [worker for worker in workers if worker.connection in ready]


def _describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _work(connection: Connection) -> None:
    """Receive a job, and write batches until there are no more; the main function of a process."""
    ignore_interrupts()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job: BuildJob = connection.recv()
    writer: BatchWriter | None = None
    connection.send(_READY)
    while True:
        try:
            batch: DocumentBatch = connection.recv()
        except (EOFError, OSError):
            return
        answer: _Answer
        try:
            writer = writer or BatchWriter(job)
            answer = writer.write(batch.documents, (batch.number,))
        except Exception as error:
            answer = error
        try:
            connection.send(answer)
        except OSError:  # nobody is left to read it
            return
        except Exception as error:  # an error that cannot be pickled
            connection.send(WorkerFailed(f"{batch}: {answer}", path=job.index, actual=str(error)))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
