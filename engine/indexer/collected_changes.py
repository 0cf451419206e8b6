"""What a writer has collected since the last commit: documents, deletions and new values of metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.analysis.auto_analyzer import cached_analyzer
from quarry.engine.documents.place import shown
from quarry.engine.filtering.evaluation import Kinds, evaluate
from quarry.engine.filtering.filter import Condition
from quarry.engine.filtering.one_document import DocumentValues, make_test
from quarry.engine.indexer.batches.batch import Batch
from quarry.engine.indexer.commits.committer import Committer
from quarry.engine.indexer.commits.metadata_updates import MetadataUpdates
from quarry.engine.indexer.segments.adopted_segments import AdoptedSegments, StagedSegment
from quarry.engine.indexer.segments.new_quantizer import ListPlan, TrainingRows
from quarry.engine.indexer.segments.segment_builder import BuiltSegment, SegmentBuilder
from quarry.engine.indexer.segments.segment_merger import SegmentMerger
from quarry.formats.container.background import StartWork
from quarry.formats.container.directory import Directory
from quarry.formats.documents.store import StoredDocument
from quarry.formats.errors import InvalidSetting
from quarry.formats.vectors.quantizer import Quantizer, StoredQuantizer, write_quantizer

__all__ = ["CollectedChanges"]


class CollectedChanges:
    """Documents that become a segment, changes of metadata, and the deletions that both lead to.

    The caller holds the writer's lock. Deletions of committed documents are kept by the committer, because merges
    move them to other segments.

    Args:
        directory: the folder of the index.
        committer: the committer of the index.
        plan: which segments have inverted lists.
        analyzer: the analyzer of the index.
        start: starts work that other threads may do; see `quarry.formats.segment.SegmentWriter`.

    Attributes:
        updates: new values of metadata.
    """

    def __init__(
        self,
        directory: Directory,
        committer: Committer,
        plan: ListPlan,
        analyzer: Analyzer,
        start: StartWork,
    ) -> None:
        self._directory = directory
        self._committer = committer
        self._plan = plan
        self._start = start
        self._documents: SegmentBuilder | AdoptedSegments | None = None
        self.updates = MetadataUpdates(analyzer, SegmentMerger(directory, plan))
        self._quantizer: Quantizer | None = None

    def __bool__(self) -> bool:
        return bool(self._documents) or bool(self.updates) or self._committer.has_changes()

    @property
    def training_rows(self) -> TrainingRows | None:
        """The centroids of the documents, to train a quantizer on; None if there are none."""
        return self._documents.training_rows if self._documents else None

    def use_quantizer(self, quantizer: Quantizer) -> None:
        """Use a quantizer when the index has none yet and has inverted lists, instead of training one."""
        self._quantizer = quantizer

    def _terms(self, text: str) -> list[str]:
        settings = self._committer.current.manifest.settings
        return cached_analyzer(settings.analysis, settings.analysis_rules).title_terms(text)

    def add(self, batch: Batch) -> None:
        """Add documents; each replaces one with the same id.

        Raises:
            InvalidDocument: a document cannot be stored; nothing was added.
            InvalidSetting: segments were adopted; nothing was added.
            FormatError: a file that is searched for the ids is damaged; nothing was added.
        """
        with self._committer.mutex:  # no merge may move the documents that are replaced
            replaced = self._committer.find_all(batch.ids)
            self._builder().add(batch)
            self._committer.mark(replaced)

    def spill(self) -> None:
        """Move documents to temporary files, to bound memory."""
        self._builder().spill()

    def open_staged(self, segments: Sequence[StagedSegment], max_open: int) -> AdoptedSegments:
        """Open segments that other processes wrote, for `adopt`.

        Raises:
            InvalidSetting: documents were added already.
            FormatError: a file is damaged.
        """
        if self._documents is not None:
            raise InvalidSetting("documents were collected already; commit or roll back first")
        merger = SegmentMerger(self._directory, self._plan)
        return AdoptedSegments(segments, merger, self._plan.settings, max_open)

    def adopt(self, staged: AdoptedSegments) -> None:
        """Add the documents of staged segments; each replaces one with the same id."""
        try:
            if self._committer.current.segments:
                for doc_id in staged.ids():
                    self._committer.delete(doc_id)
        except BaseException:
            staged.close()
            raise
        self._documents = staged

    def delete(self, doc_ids: Iterable[str]) -> int:
        """Delete the documents with these ids, and return how many there were."""
        n_deleted = 0
        for doc_id in doc_ids:
            was_added = self._documents is not None and self._documents.delete(doc_id)
            n_deleted += self._committer.delete(doc_id) or was_added
        return n_deleted

    def find_kinds(self, condition: Condition) -> Kinds | None:
        """Return the kinds of the values that a condition compares in live documents; None if there is none."""
        segments, is_empty = self._committer.live_segments(), True
        kinds = evaluate(condition, segments, self._terms).kinds
        for doc_id, stored in self._live_documents():
            DocumentValues(doc_id, stored.title, stored.metadata, stored.text).add_kinds(kinds)
            is_empty = False
        return None if is_empty and not segments else kinds

    def delete_matching(self, condition: Condition) -> int:
        """Delete the live documents that satisfy a condition, and return how many there were."""
        holds = make_test(condition)
        added = [
            doc_id
            for doc_id, stored in self._live_documents()
            if holds(DocumentValues(doc_id, stored.title, stored.metadata, stored.text))
        ]
        with self._committer.mutex:
            segments = self._committer.live_segments()
            n_deleted = self._committer.mark_all(segments, evaluate(condition, segments, self._terms).flags)
        if self._documents:
            for doc_id in added:  # with earlier documents of the same id, which it has replaced
                self._documents.delete(doc_id)
        return n_deleted + len(added)

    def check_updates(
        self, doc_ids: Iterable[str], changes: Mapping[str, object], *, is_skipping: bool
    ) -> dict[str, Mapping[str, object]]:
        """Return what `update` needs; see `quarry.engine.indexer.index_writer.IndexWriter.check_updates`."""
        together = {}
        for doc_id in doc_ids:
            if self._documents is not None and doc_id in self._documents:
                if not is_skipping:
                    raise InvalidSetting(
                        f"document {shown(doc_id)} was added and is not committed yet; commit it before its"
                        " metadata is updated, or add it with its metadata",
                        path=self._directory.path,
                    )
            elif place := self._committer.find_live(doc_id):
                stored = place[0].reader.documents[place[1]].metadata
                together[doc_id] = self.updates.checked(doc_id, stored, changes)
        return together

    def update(self, changes: Mapping[str, Mapping[str, object]]) -> None:
        """Change metadata; `changes` are those that `check_updates` returned."""
        self.updates.add(changes)

    def finish(self) -> BuiltSegment | None:
        """Write the segment of the documents; None if there are none. After an error it can be tried again."""
        if not self._documents:
            return None
        existing, given = self._committer.quantizer_for_commit(), self._quantizer
        if existing is None and given is not None and self._plan.has_lists(self._documents.n_rows, True):
            existing = StoredQuantizer(given, write_quantizer(self._directory, given))
        return self._documents.finish(existing)

    def discard(self) -> None:
        """Drop documents and changes of metadata."""
        self.updates.clear()
        documents, self._documents = self._documents, None
        if documents is not None:
            documents.close()

    def _builder(self) -> SegmentBuilder:
        if self._documents is None:
            known = self._committer.current.find_dictionary
            self._documents = SegmentBuilder(self._directory, self._plan, known, self._start)
        if isinstance(self._documents, AdoptedSegments):
            raise InvalidSetting("segments were adopted; commit or roll back before documents are added")
        return self._documents

    def _live_documents(self) -> Iterable[tuple[str, StoredDocument]]:
        return self._documents.live_documents() if self._documents else ()
