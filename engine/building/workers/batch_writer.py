"""Writes batches of documents as segments that an index adopts later; for any process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing

from quarry.engine.analysis.auto_analyzer import open_analyzer
from quarry.engine.building.workers.job import N_MESSAGES, BuildJob, WrittenBatch
from quarry.engine.documents.document import Document
from quarry.engine.indexer.batches.encode import DocumentEncoder, EncodedBatches
from quarry.engine.indexer.segments.adopted_segments import StagedSegment
from quarry.engine.indexer.segments.new_quantizer import ListPlan
from quarry.engine.indexer.segments.segment_builder import SegmentBuilder
from quarry.engine.process.worker_pool import WorkerPool
from quarry.engine.scoring.metric import Metric
from quarry.formats.container.directory import Directory
from quarry.formats.errors import InvalidDocument
from quarry.formats.shard_set import shard_of

__all__ = ["BatchWriter"]


class BatchWriter:
    """Encodes batches of documents, and writes each as one segment, or one for each shard.

    Names of files are random, so that no two attempts to write a batch have one in common.
    """

    def __init__(self, job: BuildJob) -> None:
        self._job = job
        self._directory = Directory(job.staging, limits=job.thresholds.writing)
        self._encoder, representation = job.open_parts()
        settings = job.settings
        self._how = DocumentEncoder(
            self._encoder,
            representation,
            open_analyzer(settings.language, settings.analysis_rules),
            Metric.of_settings(settings, is_normalized=self._encoder.normalize),
            settings,
        )

    def write(self, documents: Sequence[Document], order: tuple[int, ...]) -> WrittenBatch:
        """Encode and write a batch; when this returns, its files are durable.

        Args:
            documents: the documents of the batch.
            order: the place of the batch among all of the build.

        Raises:
            InvalidDocument: a document cannot be encoded, and invalid ones are not skipped.
            AccessFailed: the operating system refuses a file.
        """
        skipped: list[str] = []

        def skip(error: InvalidDocument) -> None:
            skipped.append(str(error))

        n_shards, on_invalid = self._job.n_shards or 1, skip if self._job.skip_invalid else None
        with ExitStack() as stack:
            builders: dict[int, SegmentBuilder] = {}
            n_tokens = 0
            pool = stack.enter_context(WorkerPool(1, "quarry-encode"))
            for batch in stack.enter_context(EncodedBatches(documents, self._how, pool, on_invalid)):
                for shard, part in batch.divide([shard_of(doc_id, n_shards) for doc_id in batch.ids]).items():
                    if shard not in builders:
                        builders[shard] = stack.enter_context(closing(self._builder()))
                    builders[shard].add(part)
                    builders[shard].spill()
                n_tokens += sum(batch.n_tokens)
            return WrittenBatch(
                order=order,
                segments={
                    shard: StagedSegment(self._job.staging, builder.finish_without_lists())
                    for shard, builder in sorted(builders.items())
                },
                n_documents=sum(map(len, builders.values())),
                n_tokens=n_tokens,
                n_skipped=len(skipped),
                skipped=tuple(skipped[:N_MESSAGES]),
            )

    def _builder(self) -> SegmentBuilder:
        plan = ListPlan(self._job.settings, 1, self._job.thresholds, self._encoder)
        return SegmentBuilder(self._directory, plan)
