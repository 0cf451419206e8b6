"""Hits that are sorted by fields, boosted or grouped: all documents that match are looked at.

In hybrid mode scores are scaled by the candidates that a search without arrangement has. So the candidates have
the same scores as there, and others follow the same scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from quarry.engine.arguments import shown
from quarry.engine.boosts import Boost, Pin, Recency, seconds_of
from quarry.engine.filtering.cache import DocumentFilter
from quarry.engine.filtering.evaluation import AllowedDocs, Kinds
from quarry.engine.filtering.field_values import (
    DocumentIds,
    FieldValues,
    ListedValues,
    order_key,
    read_values,
    typed_key,
)
from quarry.engine.filtering.filter import AnyOf, Comparison, Condition, get_type_name
from quarry.engine.lexical.bm25 import Bm25, Bm25Query
from quarry.engine.options import SearchOptions
from quarry.engine.scoring.ranking import Exactness, IdOrder, Key, Ranking, find_nth_largest, join_rankings
from quarry.engine.search.candidates import MergedRanking, best_of_each
from quarry.engine.search.fusion import fuse
from quarry.engine.search.query import Query
from quarry.engine.search.searcher import Searcher
from quarry.formats.arrays import AnyArray, BoolArray, Float32Array, Float64Array, Int64Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.errors import InvalidSetting
from quarry.formats.metadata.values import Scalar, to_scalar
from quarry.formats.snapshot import OpenSegment

__all__ = [
    "Arranged",
    "Arranger",
    "Reference",
    "check_fields",
    "fields_condition",
    "merge_arranged",
    "time_conditions",
]

_AT_ONCE = 1 << 16  # passages whose vectors are compared at a time
_MAX_SCORE = 3e38  # float32


class Reference(NamedTuple):
    """What scales the hybrid scores of a query: the scores of its candidates in all partitions.

    Attributes:
        scores: (n,) float32, the dense and the lexical ones.
        least_range: the least range of dense scores, see `quarry.engine.search.fusion.fuse`.
    """

    scores: tuple[Float32Array, Float32Array]
    least_range: float


class Arranged(NamedTuple):
    """The first documents or passages of a partition in their order, as values alone.

    Attributes:
        ranking: with the scores, to which boosts were added.
        keys: what orders those that are equal.
        values: of each its values of the fields that come before scores; None: it has none.
        groups: of each the value of its group; None for one without. None: there are no groups.
    """

    ranking: Ranking
    keys: list[Key]
    values: list[tuple[Scalar | None, ...]]
    groups: list[Scalar | None] | None = None


def fields_condition(options: SearchOptions) -> Condition:
    """Return a condition whose evaluation finds the types of values by which hits are arranged; it never holds."""
    paths = dict.fromkeys(path for _, path, _, _ in _used_fields(options))
    return AnyOf(tuple(Comparison(path, "eq", ()) for path in paths))


def check_fields(
    options: SearchOptions, kinds: Kinds, find_nearest: Callable[[str], Sequence[str]], *, is_whole: bool
) -> None:
    """Check the fields by which hits are arranged by the kinds of the values that documents have.

    Args:
        options: the options of the search.
        kinds: the kinds by path, as evaluating `fields_condition` finds them.
        find_nearest: returns the names most like one that no document has.
        is_whole: whether all documents of the index were asked.

    Raises:
        InvalidSetting: no document has a field, or its values have other types than are needed.
    """
    for setting, path, types, is_uniform in _used_fields(options):
        found = {str(name) for name in map(get_type_name, kinds[path])} - {"None"}
        if not kinds[path] and is_whole:
            nearest = ", ".join(map(repr, find_nearest(path)))
            expected = (
                f"a field of the metadata; the nearest are {nearest}" if nearest else "one that documents have"
            )
            message = f"{setting}: no document has the field {shown(path)}"
            raise InvalidSetting(message, expected=expected, actual=shown(path), setting=setting)
        if found and (found.isdisjoint(types) or (is_uniform and (found - types or len(found) > 1))):
            message = f"{setting}: the values of the field {shown(path)} have other types"
            expected = " or ".join(sorted(types)) + (", all of one type" if is_uniform else "")
            raise InvalidSetting(message, expected=expected, actual=" and ".join(sorted(found)), setting=setting)


def time_conditions(options: SearchOptions, kinds: Kinds) -> list[Comparison]:
    """Return conditions of which some document must satisfy each, as boosts of texts need times."""
    recent = [path for path, boost in (options.boost or {}).items() if isinstance(boost, Recency)]
    return [
        Comparison(path, "time", (to_scalar(""),)) for path in recent if "text" in map(get_type_name, kinds[path])
    ]


def _used_fields(options: SearchOptions) -> Iterator[tuple[str, str, Set[str], bool]]:
    """Yield an option, a field that it names, the types of which it has values, and if all are to be of one."""
    every = frozenset({"number", "text", "bool"})
    for path, _ in _sort_fields(options):
        yield "sort", path, every, True
    for path, boost in (options.boost or {}).items():
        assert isinstance(boost, Boost | Pin)
        yield "boost", path, boost.types, isinstance(boost, Boost)
    if options.group_by is not None:
        yield "group_by", options.group_by, every, False


class _Part(NamedTuple):
    """Passages of one segment, ascending.

    Attributes:
        ranking: with the scores, to which boosts were added.
        fields: the values of those that come before scores.
        group: the values by which they are grouped; None: there are no groups.
    """

    ranking: Ranking
    fields: list[FieldValues]
    group: FieldValues | None


class _Asked(NamedTuple):
    """A request, see `Arranger.arrange`, with the terms of its query, and the documents that are pinned."""

    query: Query
    terms: Bm25Query | None
    options: SearchOptions
    reference: Reference | None
    groups: Set[Scalar | None] | None
    pinned: list[Int64Array] | None


class Arranger:
    """Finds and orders all documents of one snapshot that match; safe to use from several threads.

    Args:
        segments: the segments of the snapshot.
        searcher: computes exact scores by vectors.
        only: evaluates conditions.
        boost_unit: what a boost of 1 adds to dense scores as they are stored.
    """

    def __init__(
        self, segments: Sequence[OpenSegment], searcher: Searcher, only: DocumentFilter, boost_unit: float
    ) -> None:
        self._segments = segments
        self._searcher = searcher
        self._filter = only
        self._boost_unit = boost_unit
        self._order = IdOrder(segments)

    def arrange(
        self,
        query: Query,
        bm25: Bm25 | None,
        options: SearchOptions,
        allowed: AllowedDocs | None,
        reference: Reference | None,
        groups: Set[Scalar | None] | None,
    ) -> Arranged:
        """Return the first documents or passages for a query.

        Args:
            query: with what the mode of the search needs.
            bm25: lexical scores of the passages; None in mode "dense".
            options: the options of the search.
            allowed: for each segment the passages that may be found; None: all.
            reference: of the query; None unless in hybrid mode.
            groups: the groups that may be found; None: all.
        """
        if not self._segments:
            none, scores = np.empty(0, np.int64), np.empty(0, np.float32)
            return Arranged(Ranking(none, none, scores, exactness=Exactness.EXACT), [], [])
        terms = None if bm25 is None else query.look_up(bm25)
        asked = _Asked(query, terms, options, reference, groups, self._find_pinned(options))
        parts = []
        for number, (passages, lexical) in enumerate(self.match(query, terms, options, allowed)):
            stop_if_cancelled()
            parts.append(self._arrange_segment(number, passages, lexical, asked))
        return self._select(parts, options)

    def _arrange_segment(
        self, number: int, passages: Int64Array, lexical: Float32Array | None, asked: _Asked
    ) -> _Part:
        """Return the passages of a segment that may be among the first ones, given those that match."""
        segment, options = self._segments[number], asked.options
        docs = segment.reader.passages.documents_of(passages)
        own, owners = np.unique(docs, return_inverse=True)
        fields = [read_values(segment, path, own, descending=each) for path, each in _sort_fields(options)]
        if asked.pinned is not None:
            places = asked.pinned[number][own]
            fields.append(ListedValues(places, [to_scalar(each) for each in range(1, places.max(initial=0) + 1)]))
        group = None
        if options.group_by is not None:
            by_id = options.group_by == "id"
            group = DocumentIds(segment, own) if by_id else read_values(segment, options.group_by, own)
        kept = np.zeros(len(own), bool)
        if group is None:
            kept[_first_places([each.places for each in fields], len(own), options.n_retrieved)] = True
        else:
            kept[:] = True if asked.groups is None else _are_in(group, asked.groups)
        places = np.flatnonzero(kept[owners])
        ranking = self._score(number, passages[places], None if lexical is None else lexical[places], asked)
        if options.unit == "document":
            best = best_of_each(ranking.scores, docs[places])
            places, ranking = places[best], ranking.take(best)
        owners = owners[places]
        return _Part(
            ranking._replace(scores=self._boost(segment, docs[places], ranking.scores, options)),
            [each.take(owners) for each in fields],
            None if group is None else group.take(owners),
        )

    def match(
        self, query: Query, terms: Bm25Query | None, options: SearchOptions, allowed: AllowedDocs | None
    ) -> Iterator[tuple[Int64Array, Float32Array | None]]:
        """Yield the passages of each segment that match, ascending, and their BM25 scores if they are known."""
        only = [None] * len(self._segments) if allowed is None else allowed
        if options.mode != "lexical" or query.browses:
            for segment, docs in zip(self._segments, only, strict=True):
                passages = np.flatnonzero(segment.live_passages) if docs is None else docs.docs
                yield passages, np.zeros(len(passages), np.float32) if query.browses else None
            return
        assert terms is not None
        for (passages, lexical), docs in zip(terms.scores(), only, strict=True):
            kept = slice(None) if docs is None else docs.flags[passages]
            yield passages[kept], lexical[kept]

    def _find_pinned(self, options: SearchOptions) -> list[Int64Array] | None:
        """Return for each segment (n_docs,) int64, larger numbers for documents that are pinned before others."""
        pins = [(path, each) for path, each in (options.boost or {}).items() if isinstance(each, Pin)]
        if not pins:
            return None
        conditions = [Comparison(path, "eq", (to_scalar(value),)) for path, pin in pins for value in pin.values]
        found = [np.zeros(segment.reader.n_docs, np.int64) for segment in self._segments]
        for place, condition in enumerate(reversed(conditions), 1):  # the first one overwrites the others
            for places, docs in zip(found, self._filter.allowed(condition), strict=True):
                places[slice(None) if docs is None else docs.docs] = place
        return found

    def _score(self, number: int, passages: Int64Array, known: Float32Array | None, asked: _Asked) -> Ranking:
        """Return passages of a segment with their scores.

        Args:
            number: the number of the segment.
            passages: (n,) int64.
            known: (n,) float32, their BM25 scores; None unless in lexical mode.
            asked: the request.
        """
        segments = np.full(len(passages), number)
        if known is not None:
            return Ranking(segments, passages, known, None, known, Exactness.EXACT)
        rescorer, vector = self._searcher.rescorer(number), asked.query.vector
        assert vector is not None
        dense = np.empty(len(passages), np.float32)
        for low in range(0, len(passages), _AT_ONCE):
            stop_if_cancelled()
            dense[low : low + _AT_ONCE] = rescorer.scores(vector, passages[low : low + _AT_ONCE])
        if asked.terms is None or asked.reference is None:
            return Ranking(segments, passages, dense, dense, None, Exactness.EXACT)
        lexical, options = asked.terms.score_documents(number, passages), asked.options
        scores, least_range = asked.reference
        fused = fuse(dense, lexical, options.fusion, options.fusion_weight, least_range, scores)
        return Ranking(segments, passages, fused, dense, lexical, Exactness.EXACT)

    def _boost(
        self, segment: OpenSegment, docs: Int64Array, scores: Float32Array, options: SearchOptions
    ) -> Float32Array:
        """Return the scores of documents, with what boosts add to them."""
        added = np.zeros(len(docs))
        for path, boost in (options.boost or {}).items():
            if isinstance(boost, Boost):
                values = read_values(segment, path, docs, descending=True)
                known = np.flatnonzero(values.places)
                value = boost.value(_numbers(values, values.places[known]))
                added[known] += boost.weight * np.nan_to_num(value)
        if not added.any():
            return scores
        unit = self._boost_unit if options.mode == "dense" else 1.0
        boosted: Float32Array = np.clip(scores + unit * added, -_MAX_SCORE, _MAX_SCORE).astype(np.float32)
        return boosted

    def _select(self, parts: Sequence[_Part], options: SearchOptions) -> Arranged:
        """Return the first of the passages of all segments, or of each of the first groups."""
        whole = join_rankings([part.ranking for part in parts])
        orders = _orders(options)
        fields = [[part.fields[number] for part in parts] for number in range(len(orders))]
        columns: list[AnyArray] = [_number(each, is_down) for each, is_down in zip(fields, orders, strict=True)]
        columns.append(whole.scores)
        if options.group_by is None:
            near = _first_places(columns, len(whole.docs), options.n_retrieved)
            ranks = _dense_ranks([each[near] for each in columns])
            ranking = whole.take(near)._replace(scores=-ranks.astype(np.float32))
            chosen = near[self._order.best_places(ranking, options.n_retrieved)]
            keys = self._order.read_keys(whole.segments[chosen], whole.docs[chosen])
            groups = None
        else:
            ranks = _dense_ranks(columns)
            by_group = [part.group for part in parts if part.group is not None]
            near = _near_groups(ranks, _number(by_group, is_descending=False), options)
            found = self._order.read_keys(whole.segments[near], whole.docs[near])
            entries = sorted(zip(ranks[near].tolist(), found, near.tolist(), strict=True))
            chosen = np.array([place for _, _, place in entries], np.int64)
            keys = [key for _, key, _ in entries]
            groups = _scalars(by_group, chosen)
        values = [_scalars(each, chosen) for each in fields]
        return Arranged(whole.take(chosen), keys, list(zip(*values, strict=True)) or [()] * len(keys), groups)


def merge_arranged(parts: Mapping[int, Arranged], options: SearchOptions) -> MergedRanking:
    """Return the first documents or passages of all partitions in their order.

    Args:
        parts: the first ones by the number of their partition.
        options: the options of the search.
    """
    ranking = join_rankings([part.ranking for part in parts.values()])
    partitions = np.repeat(list(parts), [len(part.keys) for part in parts.values()]).astype(np.int64)
    keys = [key for part in parts.values() for key in part.keys]
    values = [each for part in parts.values() for each in part.values]
    places = sorted(range(len(keys)), key=keys.__getitem__)
    scores = ranking.scores.tolist()
    places.sort(key=lambda place: -scores[place])
    for number, is_down in reversed([*enumerate(_orders(options))]):  # sorting is stable: the first field decides
        places.sort(key=lambda place: _merge_key(values[place][number], is_down), reverse=is_down)
    groups: tuple[Scalar | None, ...] | None = None
    n_skipped = options.n_skipped
    if options.group_by is None:
        places = places[n_skipped : options.n_retrieved]
    else:
        of_each = [each for part in parts.values() for each in part.groups or ()]
        by_group: dict[Scalar | None, list[int]] = {}
        for place in places:
            by_group.setdefault(of_each[place], []).append(place)
        chosen = list(by_group.values())[n_skipped : options.n_retrieved]
        places = [place for each in chosen for place in each[: options.group_size]]
        groups = tuple(of_each[place] for place in places)
    order = np.array(places, np.int64)
    return MergedRanking(partitions[order], ranking.take(order), groups)


def _merge_key(value: Scalar | None, is_descending: bool) -> tuple[bool, int | float | str]:
    """Return a key by which values are sorted, those that are missing last in both directions."""
    return ((value is None) != is_descending, 0 if value is None else order_key(value))


def _sort_fields(options: SearchOptions) -> list[tuple[str, bool]]:
    """Return the paths that hits are sorted by, and whether the largest value is first."""
    return [(each.removeprefix("-"), each.startswith("-")) for each in options.sort or ()]


def _orders(options: SearchOptions) -> list[bool]:
    """Return of each of the fields that come before scores whether the largest value is first."""
    has_pins = any(isinstance(each, Pin) for each in (options.boost or {}).values())
    return [each for _, each in _sort_fields(options)] + [True] * has_pins


def _numbers(values: FieldValues, places: Int64Array) -> Float64Array:
    """Return the numbers at (n,) places; of texts those of the seconds of their times, not a number for others."""
    if not len(places) or get_type_name(values.scalar(int(places[0])).kind) == "number":
        return values.numbers(places)
    used, owners = np.unique(places, return_inverse=True)
    seconds = (seconds_of(str(values.scalar(place).payload)) for place in used.tolist())
    return np.array([np.nan if each is None else each for each in seconds])[owners]


def _are_in(values: FieldValues, groups: Set[Scalar | None]) -> BoolArray:
    """Return which values are one of some groups."""
    used, owners = np.unique(values.places, return_inverse=True)
    are_in = np.array([_scalar(values, place) in groups for place in used.tolist()], bool)
    return are_in[owners]


def _scalars(columns: Sequence[FieldValues], chosen: Int64Array) -> list[Scalar | None]:
    """Return the values of a field of all segments at some places."""
    bounds = np.cumsum([0, *(len(each.places) for each in columns)])
    numbers = np.searchsorted(bounds, chosen, "right") - 1
    pairs = zip(numbers.tolist(), (chosen - bounds[numbers]).tolist(), strict=True)
    return [_scalar(columns[number], int(columns[number].places[place])) for number, place in pairs]


def _scalar(values: FieldValues, place: int) -> Scalar | None:
    return values.scalar(place) if place else None


def _number(columns: Sequence[FieldValues], is_descending: bool) -> Int64Array:
    """Return the places of values among those of all segments, the largest number for the first; 0 for none.

    Ids have no order, and are not read: no two documents have the same.
    """
    if len(columns) == 1:
        return columns[0].places
    ids = [each for each in columns if isinstance(each, DocumentIds)]
    if ids:
        firsts = accumulate((each.n_documents for each in ids), initial=0)
        return np.concatenate([each.places + first for each, first in zip(ids, firsts, strict=False)])
    used = [np.unique(each.places) for each in columns]
    scalars = [
        [_scalar(values, place) for place in own.tolist()] for values, own in zip(columns, used, strict=True)
    ]
    every = {each for own in scalars for each in own if each is not None}
    order = sorted(every, key=typed_key, reverse=not is_descending)
    numbers: dict[Scalar | None, int] = {scalar: number for number, scalar in enumerate(order, 1)}
    parts = [
        np.array([numbers.get(each, 0) for each in own], np.int64)[np.searchsorted(places, values.places)]
        for own, places, values in zip(scalars, used, columns, strict=True)
    ]
    return np.concatenate(parts)


def _first_places(columns: Sequence[AnyArray], n_docs: int, n: int) -> Int64Array:
    """Return the places of the n first documents by some columns, and of those that are equal to the last one.

    Args:
        columns: (n_docs,) numbers each, of which larger ones come first; the first column decides.
        n_docs: number of documents.
        n: how many, at least 1.
    """
    first, undecided = [], np.arange(n_docs)
    for column in columns:
        if len(undecided) <= n:
            break
        own = column[undecided]
        least = find_nth_largest(own, n)
        first.append(undecided[own > least])
        n -= len(first[-1])
        undecided = undecided[own == least]
    places: Int64Array = np.concatenate([*first, undecided])
    return places


def _dense_ranks(columns: Sequence[AnyArray]) -> Int64Array:
    """Return the rank of each row from 0, the same for equal rows: (n,) int64.

    Args:
        columns: (n,) numbers each, of which larger ones come first; the first column decides.
    """
    order = np.lexsort([-each for each in reversed(columns)])
    is_new = np.zeros(len(order), np.int64)
    for column in columns:
        is_new[1:] |= column[order[1:]] != column[order[:-1]]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(is_new)
    return ranks


def _near_groups(ranks: Int64Array, groups: Int64Array, options: SearchOptions) -> Int64Array:
    """Return the places of the first rows of the first groups, and of those that are equal to the last ones.

    Args:
        ranks: (n,) int64, from 0, the same for equal rows.
        groups: (n,) int64, the group of each row.
        options: how many groups, and rows of each.
    """
    if not len(ranks):
        return ranks
    order = np.lexsort((ranks, groups))
    groups, ranks = groups[order], ranks[order]
    starts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    sizes = np.diff([*starts, len(groups)])
    last = ranks[starts + np.minimum(sizes, options.group_size) - 1]
    best, n = ranks[starts], options.n_retrieved
    most = np.partition(best, n - 1)[n - 1] if len(best) > n else best.max()
    near: Int64Array = order[(ranks <= np.repeat(last, sizes)) & np.repeat(best <= most, sizes)]
    return near
