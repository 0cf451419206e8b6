"""Writers of segments in the processes of Ray, which get blocks of rows."""

from __future__ import annotations

import pickle
from functools import lru_cache
from typing import Any

from quarry.distributed import importing_ray
from quarry.distributed.started import WorkRecords
from quarry.engine.building.workers.batch_writer import BatchWriter
from quarry.engine.building.workers.batches import divide
from quarry.engine.building.workers.job import BuildJob, WrittenBatch
from quarry.engine.documents.reader import read_documents
from quarry.engine.documents.tables.columns import Columns
from quarry.formats.errors import QuarryError

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
        job: of the build.
        columns: which columns of the table are the fields.
        rows: a table that exports Arrow data.
        task: what Ray repeats under this name, see `quarry.distributed.started.WorkRecords`.
        order: of the table among all of the build.
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
        job: of the build.
        columns: which columns of the rows are the fields.
    """

    def __init__(self, job: BuildJob, columns: Columns) -> None:
        self._job = job
        self._columns = columns
        self._name = ray.get_runtime_context().get_actor_id()  # the same after it was started again

    def __call__(self, rows: Any) -> dict[str, list[bytes]]:  # noqa: ANN401  # a table of pyarrow
        """Write a table of pyarrow; return what was written as one row, or the error, which Ray would wrap."""
        try:
            found: list[WrittenBatch] | QuarryError = write_rows(self._job, self._columns, rows, self._name, ())
        except QuarryError as error:
            found = error
        return {WRITTEN: [pickle.dumps(found)]}
