"""Changes of metadata since the last commit, and the segments that they are written to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.arguments import shown as shown_value
from quarry.engine.documents.document import DOCUMENT_FIELDS, full_text, passage_text, searchable_texts
from quarry.engine.documents.metadata import freeze_metadata
from quarry.engine.documents.place import Place, shown
from quarry.engine.indexer.commits.deletions import Deletions
from quarry.engine.indexer.commits.generation import CurrentGeneration
from quarry.engine.indexer.segments.segment_merger import SegmentMerger
from quarry.formats.documents.store import StoredDocument
from quarry.formats.errors import InvalidSetting
from quarry.formats.manifest import IndexSettings, SegmentRecord
from quarry.formats.segment_merge import Extents
from quarry.formats.snapshot import OpenSegment

__all__ = ["MetadataUpdates", "checked_changes"]

Changes = Mapping[str, object]


class MetadataUpdates:
    """New values of metadata fields by document id; None stands for a field that is removed.

    Args:
        analyzer: the analyzer of the index.
        merger: the merger of the index.
    """

    def __init__(self, analyzer: Analyzer, merger: SegmentMerger) -> None:
        self._analyzer = analyzer
        self._merger = merger
        self._changes: dict[str, Changes] = {}

    def __bool__(self) -> bool:
        return bool(self._changes)

    def checked(self, doc_id: str, stored: Changes, changes: Changes) -> Changes:
        """Return earlier and new changes of a document together.

        Args:
            doc_id: id of the document.
            stored: its metadata at the last commit.
            changes: the new ones.

        Raises:
            InvalidSetting: a name is that of a part of a document such as the title, and is no metadata field of
                the document; or it is a path through a value that is not a mapping.
            InvalidDocument: the metadata would become too large.
        """
        for name in changes:
            if name in DOCUMENT_FIELDS and name not in stored:
                raise InvalidSetting(
                    f"document {shown(doc_id)} has no metadata field {shown(name)}, and only metadata is changed",
                    expected=f"the document added again by `add`, with another {name}",
                    setting=f"changes.{name}",
                )
        earlier = self._changes.get(doc_id)
        kept = {} if earlier is None else {name: value for name, value in earlier.items() if name not in changes}
        together = {**kept, **changes}  # in the order in which they are made, as paths may be in one another
        place = Place(f"document {shown(doc_id)}", None)
        try:
            freeze_metadata(_changed(stored, together), place)
        except _NotAMapping as error:
            name = str(error)
            message = (
                f"document {shown(doc_id)}: the path {shown(name)} leads through a value that is not a mapping"
            )
            expected = "a path of mappings, or the whole field"
            raise InvalidSetting(message, expected=expected, setting=f"changes.{name}") from None
        return together

    def add(self, changes: Mapping[str, Changes]) -> None:
        """Keep the changes of documents, in place of earlier ones; see `checked`."""
        self._changes.update(changes)

    def clear(self) -> None:
        """Discard all changes."""
        self._changes = {}

    def write(self, current: CurrentGeneration, deletions: Deletions) -> list[SegmentRecord]:
        """Copy the documents that have changes, and are live, to new segments, and delete them in the old ones.

        Args:
            current: the generation that is changed.
            deletions: documents deleted since the last commit, to which the old versions are added.

        Raises:
            FormatError: a segment is damaged.
        """
        written, rewrite = [], partial(self._rewrite, current.manifest.settings)
        for quantizer, segments in _groups(self._find(current, deletions), current).items():
            stored = current.find_quantizer(quantizer) if quantizer else None
            written.append(self._merger.merge(segments, stored, rewrite).record)
        return [record for record in written if record is not None]

    def _find(self, current: CurrentGeneration, deletions: Deletions) -> list[OpenSegment]:
        """Mark the live documents with changes as deleted; return their segments with all others deleted."""
        chosen: dict[bytes, list[int]] = defaultdict(list)
        for doc_id in self._changes:
            place = current.find(doc_id)
            if place is not None and deletions.mark(*place):
                chosen[place[0].reader.segment_id].append(place[1])
        segments = []
        for segment in current.segments:
            if segment.reader.segment_id in chosen:
                others = np.ones(segment.record.n_docs, bool)
                others[chosen[segment.reader.segment_id]] = False
                segments.append(replace(segment, deleted=others))
        return segments

    def _rewrite(
        self, settings: IndexSettings, doc_id: str, stored: StoredDocument, extents: Extents | None
    ) -> tuple[Changes, list[Sequence[str]]]:
        metadata = freeze_metadata(_changed(stored.metadata, self._changes[doc_id]), Place(shown(doc_id), None))
        text = full_text(stored.title, stored.text)
        texts = [text] if extents is None else [passage_text(stored.title, text, extent) for extent in extents]
        own = map(self._analyzer.document_terms, texts)
        added = map("\n".join, searchable_texts(doc_id, stored.title, metadata, settings, len(texts)))
        both = zip(own, added, strict=True)
        return metadata, [[*terms, *self._analyzer.added_terms(terms, more)] for terms, more in both]


def checked_changes(changes: object, doc_id: str | None = None) -> Changes:
    """Return a copy of changes of metadata, of one document, or of all that are changed.

    Raises:
        InvalidSetting: not a mapping, or empty.
        InvalidDocument: a name or a value cannot be stored; the message names it.
    """
    if not isinstance(changes, Mapping) or not changes:
        raise InvalidSetting(
            "not changes of metadata",
            expected="a mapping of fields to values, None removes a field",
            actual=shown_value(changes),
            setting="changes",
        )
    where = "changes" if doc_id is None else f"changes of document {shown(doc_id)}"
    return freeze_metadata(changes, Place(where, None)).unpacked()


def _changed(metadata: Changes, changes: Changes) -> dict[str, object]:
    """Return metadata with changes; fields that they set to None are left out.

    A name with a dot is a path unless there is a field of that name; mappings on it are made if they are missing.

    Raises:
        _NotAMapping: a path leads through another value.
    """
    changed = dict(metadata)
    for name, value in changes.items():
        inside, key = changed, name
        if "." in name and name not in metadata:
            *outer, key = name.split(".")
            for each in outer:
                if value is None and each not in inside:
                    inside = {}  # there is nothing to remove
                    break
                nested = inside.get(each, {})
                if not isinstance(nested, Mapping):
                    raise _NotAMapping(name)
                inside[each] = inside = dict(nested)
        if value is None:
            inside.pop(key, None)
        else:
            inside[key] = value
    return changed


class _NotAMapping(Exception):
    """A path of changes leads through a value that is not a mapping."""


def _groups(segments: Sequence[OpenSegment], current: CurrentGeneration) -> dict[str, list[OpenSegment]]:
    """Group segments that can be copied together by the quantizer of the copy, "" if none is needed.

    Rows of which only codes are stored keep their quantizer; the others get the newest if they are many.
    """
    newest = next((each.name for each in reversed(current.manifest.quantizers)), "")
    groups: dict[str, list[OpenSegment]] = defaultdict(list)
    for segment in segments:
        stores_codes_alone = segment.reader.centroids.kind == "none"
        has_codes_alone = current.manifest.settings.centroids == "none"
        groups[segment.record.quantizer if stores_codes_alone else "" if has_codes_alone else newest].append(
            segment
        )
    return groups
