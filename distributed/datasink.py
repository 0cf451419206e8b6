"""Ray Data: a dataset of documents becomes an index, in one commit, by actors that write segments."""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Unpack

import xxhash

from quarry.distributed import importing_ray
from quarry.engine.arguments import checked_integer, shown
from quarry.engine.building.builder import BuildReport
from quarry.engine.building.staged_build import StagedBuild, StagedBuildKeywords
from quarry.engine.building.workers.batch_writer import BatchWriter
from quarry.engine.building.workers.job import BuildJob, DocumentBatch, WrittenBatch, divide
from quarry.engine.building.workers.worker_processes import MAX_ATTEMPTS
from quarry.engine.documents.reader import read_documents
from quarry.engine.documents.tables.columns import Columns
from quarry.formats.errors import InvalidSetting, QuarryError, WorkerFailed
from quarry.formats.system_errors import system_errors

__all__ = ["WorkRecords"]

_PREFIX = "begun-"
_OF_BATCH = f"{_PREFIX}batch-"


class WorkRecords:
    """Records in the folder of an attempt what is begun, until it ends; processes that are killed leave records.

    By default Ray repeats a task whose process ended without limit, so the records are also what limits that.

    Args:
        staging: folder of the attempt.
        task: what Ray repeats under the same name, one batch at a time: a task, or an actor.
        index: folder of the index, for messages.
    """

    def __init__(self, staging: Path, task: str, index: Path) -> None:
        self._staging = staging
        self._task = task
        self._index = index

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Record that the encoder is loaded, until the block ends.

        Raises:
            WorkerFailed: processes have ended while they did that for this task `MAX_ATTEMPTS` times.
        """
        with self._recorded(f"{_PREFIX}encoder-{self._task}-", "loaded the encoder"):
            yield

    @contextlib.contextmanager
    def encoding(self, batch: DocumentBatch) -> Iterator[None]:
        """Record that a batch is encoded, until the block ends.

        Raises:
            WorkerFailed: processes have ended with this batch `MAX_ATTEMPTS` times.
        """
        texts = xxhash.xxh3_128()
        for document in batch.documents:
            texts.update(document.full_text.encode("utf-8", "surrogatepass"))  # not ids, which may be random
        name = f"{_OF_BATCH}{self._task}-{batch.number}-{texts.hexdigest()}-"
        with self._recorded(name, f"encoded {batch}", str(batch)):
            yield

    @contextlib.contextmanager
    def _recorded(self, name: str, work: str, content: str = "") -> Iterator[None]:
        with system_errors("listed", self._staging):
            n_before = sum(each.name.startswith(name) for each in self._staging.iterdir())
        if n_before >= MAX_ATTEMPTS:
            raise WorkerFailed(
                f"{MAX_ATTEMPTS} processes ended while they {work}",
                path=self._index,
                expected="documents that can be encoded, and enough memory",
            )
        record = self._staging / f"{name}{secrets.token_hex(8)}"
        with system_errors("written", record):
            record.write_text(content, encoding="utf-8")
        try:
            yield
        finally:
            record.unlink(missing_ok=True)


def unfinished_batches(staging: Path) -> list[str]:
    """Return descriptions of the batches that were begun and never ended."""
    with contextlib.suppress(OSError):
        return sorted({each.read_text(encoding="utf-8") for each in staging.glob(f"{_OF_BATCH}*")})
    return []


with importing_ray():
    import ray

__all__ = ["WRITTEN", "SegmentActor", "write_rows"]

WRITTEN = "written"
"""The column of what `SegmentActor` returns: pickled, a list of `WrittenBatch` or a QuarryError."""


@lru_cache(1)
def _writer(job: bytes) -> BatchWriter:
    """The writer of a job; tasks that follow one another in a process load the encoder once."""
    return BatchWriter(pickle.loads(job))


def write_rows(
    job: BuildJob,
    columns: Columns,
    rows: Any,  # noqa: ANN401  # a table of pyarrow
    task: str,
    order: tuple[int, ...],
) -> list[WrittenBatch]:
    """Write the documents of a table.

    Args:
        job: the job of the build.
        columns: which columns of the table are the fields.
        rows: a table that exports Arrow data.
        task: what Ray repeats under this name, see `quarry.distributed.datasink.WorkRecords`.
        order: the place of the table among all of the build.
    """
    records = WorkRecords(job.staging, task, job.index)
    with records.loading():
        writer = _writer(pickle.dumps(job))
    stream = read_documents(rows, job.skip_invalid, columns)
    written = []
    for batch in divide(stream, 1):
        with records.encoding(batch):
            written.append(writer.write(batch.documents, (*order, batch.number)))
    if stream.n_skipped:
        written.append(
            WrittenBatch(
                order=(*order, len(written)),
                segments={},
                n_documents=0,
                n_tokens=0,
                n_skipped=stream.n_skipped,
                skipped=tuple(stream.first_errors),
            )
        )
    return written


class SegmentActor:
    """Writes batches of rows with one encoder, which stays loaded: for `ray.data.Dataset.map_batches`.

    Args:
        job: the job of the build.
        columns: which columns of the rows are the fields.
    """

    def __init__(self, job: BuildJob, columns: Columns) -> None:
        self._job = job
        self._columns = columns
        self._name = ray.get_runtime_context().get_actor_id()  # the same after it was started again

    def __call__(self, rows: Any) -> dict[str, list[bytes]]:  # noqa: ANN401  # a table of pyarrow
        """Write a table of pyarrow; return what was written as one row, or the error, which Ray would wrap."""
        try:
            written: list[WrittenBatch] | QuarryError = write_rows(self._job, self._columns, rows, self._name, ())
        except QuarryError as error:
            written = error
        return {WRITTEN: [pickle.dumps(written)]}


with importing_ray():
    import ray.data
    from ray.data.block import BlockAccessor
    from ray.exceptions import RayError, RayTaskError

__all__ = ["QuarryDatasink", "build_index"]

_TASK_ROWS = 1024  # of a task of Ray Data
_MOST = 1 << 20  # of each number that a caller may give
_DEPTH = 16  # causes of an error that are looked through


class QuarryDatasink(ray.data.Datasink):  # type: ignore[misc]  # Ray has no types here
    """Writes a dataset as an index: ``dataset.write_datasink(QuarryDatasink("index/", overwrite=True))``.

    Tasks encode rows and write segments into a folder beside the index, which has to be on a file system that all
    nodes share; the driver, which holds the lock of the index, joins them and commits once. Of rows with the same
    id one is kept, the last one if Ray preserves the order of the dataset.

    A task whose process ends is repeated by Ray. After three processes have ended with the same batch of
    rows the job fails with an error that names the documents.

    Args:
        path: folder of the index.
        id: column of the ids; None: "id" or "_id", if there is one.
        text: column of the texts, or several; None: "text".
        title: column of the titles; None: "title", if there is one. The other columns become metadata.
        **options: the other arguments of `quarry.build`, except `docs`, `progress` and `workers`. Each process
            opens the bundle `encoder` for the devices that it has; `threads` are those of the driver, for training
            a quantizer and joining segments.

    Attributes:
        report: numbers about the build, once it is complete.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        id: str | None = None,  # noqa: A002  # the field
        text: str | Sequence[str] | None = None,
        title: str | None = None,
        **options: Unpack[StagedBuildKeywords],
    ) -> None:
        self.report: BuildReport | None = None
        self._columns = Columns.of(id, text, title)
        self._job: BuildJob | None = None
        self._stack = contextlib.ExitStack()
        self._build: StagedBuild | None = StagedBuild(path, **options)

    def __getstate__(self) -> dict[str, object]:
        """Return the state that a task needs; the lock and the writer of the index stay with the driver."""
        return {"_columns": self._columns, "_job": self._job, "report": None, "_build": None, "_stack": None}

    def on_write_start(self, schema: object = None) -> None:
        """Lock the index, and make a folder for what tasks write."""
        assert self._build is not None
        self._job = self._stack.enter_context(self._build).job

    def write(self, blocks: Iterable[Any], ctx: Any) -> list[WrittenBatch]:  # noqa: ANN401  # types of Ray
        """Encode and write the rows of one task; in its process."""
        assert self._job is not None
        written = []
        for number, block in enumerate(blocks):
            rows, task = BlockAccessor.for_block(block).to_arrow(), f"{ctx.task_idx}.{number}"
            if rows.num_rows:
                written += write_rows(self._job, self._columns, rows, task, (ctx.task_idx, number))
        return written

    def on_write_complete(self, write_result: Any) -> None:  # noqa: ANN401  # of Ray
        """Commit what the results of the tasks name; what others have written is deleted."""
        if self._job is None:  # a dataset without rows
            self.on_write_start()
        assert self._build is not None
        batches = [batch for each in write_result.write_returns for batch in each or ()]
        self.report = self._build.commit(batches)
        self._stack.close()

    def on_write_failed(self, error: Exception) -> None:
        """Delete what was written; the index is as it was.

        Raises:
            QuarryError: the error of a task, which Ray would raise with its traceback as the message.
        """
        cause = _find_cause(error)
        self._job = None
        self._stack.__exit__(type(cause or error), cause or error, error.__traceback__)
        if cause is not None and cause is not error:
            raise cause from error

    @property
    def min_rows_per_write(self) -> int | None:
        """Rows of a task, so that not every small block loads an encoder and writes a segment."""
        return _TASK_ROWS


def build_index(  # noqa: PLR0913  # keywords, each with a default
    dataset: ray.data.Dataset,
    path: str | os.PathLike[str],
    *,
    workers: int,
    num_cpus: float = 1,
    num_gpus: float = 0,
    batch_size: int = _TASK_ROWS,
    id: str | None = None,  # noqa: A002  # the field
    text: str | Sequence[str] | None = None,
    title: str | None = None,
    **options: Unpack[StagedBuildKeywords],
) -> BuildReport:
    """Build an index of a dataset with a pool of actors, each of which keeps its encoder loaded.

    See `QuarryDatasink` for the files and the commit. An actor whose process ends is started again, and its batch
    repeated, by Ray; after three processes have ended with the same batch the build fails.

    Args:
        dataset: a dataset of rows.
        path: folder of the index.
        workers: number of actors.
        num_cpus: processors that Ray reserves for each; an encoder on the CPU uses one.
        num_gpus: devices that Ray reserves for each, for example 1, or 0.5; the encoder has to be a bundle that
            runs on them. Ray waits, and says so, until the cluster has what was reserved.
        batch_size: rows that an actor gets at once, and encodes again if it ends.
        id: see `QuarryDatasink`.
        text: see `QuarryDatasink`.
        title: see `QuarryDatasink`.
        **options: see `QuarryDatasink`.

    Raises:
        WorkerFailed: actors ended with the same batch; the message names the documents that were being encoded.
        InvalidSetting: the first argument is not a dataset, or a number is out of range.
        QuarryError: as `quarry.engine.build` raises it.
        RayTaskError: the dataset or the encoder raised another error.
    """
    if not isinstance(dataset, ray.data.Dataset):
        raise InvalidSetting(
            "dataset is not a dataset", expected="a ray.data.Dataset", actual=type(dataset).__name__
        )
    checked_integer(workers, "workers", 1, _MOST)
    checked_integer(batch_size, "batch_size", 1, _MOST)
    _check_amount(num_cpus, "num_cpus")
    _check_amount(num_gpus, "num_gpus")
    columns = Columns.of(id, text, title)
    with StagedBuild(path, **options) as build:
        rows = dataset.map_batches(
            SegmentActor,
            fn_constructor_args=(build.job, columns),
            compute=ray.data.ActorPoolStrategy(size=workers),
            batch_size=batch_size,
            batch_format="pyarrow",
            num_cpus=num_cpus,
            num_gpus=num_gpus,
        )
        written: list[WrittenBatch] = []
        try:
            for number, row in enumerate(rows.iter_rows()):
                result = pickle.loads(row[WRITTEN])
                if isinstance(result, QuarryError):
                    raise result
                written += [replace(batch, order=(number, *batch.order)) for batch in result]
        except RayError as error:
            if (cause := _find_cause(error)) is not None:
                raise cause from error
            if isinstance(error, RayTaskError):
                raise
            raise _worker_failed(error, build.job) from error
        return build.commit(written)


def _check_amount(value: object, name: str) -> None:
    """Raise InvalidSetting unless a value is an amount of a resource that Ray can reserve."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _MOST or (value > 1 and value % 1):  # type: ignore[operator]
        raise InvalidSetting(
            f"{name} is out of range",
            expected="a number from 0 to 1, or a larger integer",
            actual=shown(value),
            setting=name,
        )


def _find_cause(error: BaseException | None) -> QuarryError | None:
    """Return the error of Quarry that Ray has wrapped, perhaps several times; None: there is none."""
    for _ in range(_DEPTH):
        if isinstance(error, QuarryError) and not isinstance(error, RayError):
            return error
        if error is None:
            break
        error = getattr(error, "cause", None) or error.__cause__
    return None


def _worker_failed(error: RayError, job: BuildJob) -> WorkerFailed:
    """The error for processes that ended; it names what they were encoding."""
    begun = unfinished_batches(job.staging)
    return WorkerFailed(
        f"processes ended while they encoded {'; or '.join(begun) or 'documents'}",
        path=job.index,
        expected="documents that can be encoded, and enough memory",
        actual=str(error).partition("\n")[0],
    )
