"""One generation of an index, of one partition or several: from queries to hits."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from quarry.engine.analysis.auto_analyzer import cached_analyzer
from quarry.engine.analysis.synonyms import open_synonyms
from quarry.engine.arguments import shown
from quarry.engine.documents.document import Document
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.no_encoder import NoEncoder, has_encoder
from quarry.engine.filtering.evaluation import Kinds, find_unknown_paths, join_kinds
from quarry.engine.filtering.filter import Comparison, Condition, count_bytes
from quarry.engine.filtering.unknown_fields import find_nearest_names
from quarry.engine.index.collection import Collections
from quarry.engine.index.gathering import Gathering, ShardThreads
from quarry.engine.index.partition import OpenPartition, Partition
from quarry.engine.index.resources import ViewResources
from quarry.engine.index.statistics import joined_statistics
from quarry.engine.lexical.bm25 import Collection
from quarry.engine.listing.facets import FacetRequest, Facets
from quarry.engine.options import CALIBRATED_DENSE_WEIGHT, DEFAULT_DENSE_WEIGHT, MAX_K, SearchOptions
from quarry.engine.scoring.metric import Metric, metric_queries
from quarry.engine.scoring.query_vectors import Vectors
from quarry.engine.scoring.ranking import Exactness
from quarry.engine.search.arrangement import (
    Arranged,
    Reference,
    check_fields,
    fields_condition,
    merge_arranged,
    time_conditions,
)
from quarry.engine.search.candidates import MergedRanking, find_scale, merge_candidates, merge_pool
from quarry.engine.search.hits.hit_builder import Answer, set_metric_scores
from quarry.engine.search.hits.hits import Coverage, Hits
from quarry.engine.search.query import Query, browses, filter_of, give_vectors, unfinished_word
from quarry.engine.search.relevance import BackgroundSample, RelevanceEstimator, merge_samples
from quarry.engine.search.reranker import rerank
from quarry.engine.search.similar import SimilarQuery
from quarry.formats.errors import InvalidSetting
from quarry.formats.manifest import with_documents
from quarry.formats.metadata.values import Scalar, to_value
from quarry.formats.shard_set import shard_of

__all__ = ["View"]

P_co = TypeVar("P_co", bound=Partition, covariant=True)

_MAX_CHECKED, _CHECKED_BYTES = 256, 1024  # filters that are remembered, and the size of one
_MAX_ESTIMATORS = 4
_NO_FAILURES: Mapping[int, Exception] = {}


class View(Generic[P_co]):
    """Partitions with their searchers, searched as one index; safe to use from several threads.

    Every partition returns its best candidates with both scores, computed with the statistics of all. They are
    ranked here as one index ranks them; texts are then read from the partitions of the hits alone. An index
    without shards is one partition, which is asked on the calling thread.

    Args:
        path: folder of the index, for messages.
        partitions: at their generations, all with the same settings.
        resources: shared resources.
        threads: the threads of the shards; None: the index has no shards, and there is one partition.
        failures: by their numbers, the errors of shards whose newest generation cannot be opened. They are not
            asked; their generation before has the number of their documents.

    Attributes:
        settings: the settings of the index.
        metric: the metric of the index.
        has_encoder: whether texts have vectors: the index was built with an encoder.

    Raises:
        FormatError: the bundle of the encoder is damaged.
    """

    def __init__(
        self,
        path: Path,
        partitions: Sequence[P_co],
        resources: ViewResources,
        threads: ShardThreads | None = None,
        failures: Mapping[int, Exception] = _NO_FAILURES,
    ) -> None:
        first = with_documents(partition.manifest for partition in partitions)
        self.failures = failures
        self.partitions = tuple(partitions)
        languages = (partition.manifest.settings.languages for partition in partitions)
        self.settings = first.settings.with_languages(sum(map(Counter, languages), Counter[str]()))
        self.metric = Metric.of(first)
        self.has_encoder = has_encoder(first.encoder)
        self._encoder_record = first.encoder
        self._chosen_weight = first.dense_weight
        entries, language, rules = first.settings.synonyms, self.settings.analysis, first.settings.analysis_rules
        self._synonyms = open_synonyms(entries, language, rules)
        self._path = path
        self._resources = resources
        self._threads = threads
        self._names = [each.name for each in partitions]
        self._alone = Gathering(None, self._names)
        self._lock = threading.Lock()
        self._collections = Collections(partitions, self.settings.analysis)
        self._checked: set[Condition] = set()
        first_sample = BackgroundSample.empty if threads else lambda: partitions[0].background
        self._estimator = self._make_estimator(first_sample)  # of the only partition, or without a background
        self._estimators: dict[frozenset[int], RelevanceEstimator] = {}  # by the shards that are missing
        if resources.has_encoder_of(first.encoder):
            resources.encoder_for(first.encoder)  # a damaged bundle is an error here, not at the first query

    @property
    def n_shards(self) -> int | None:
        """Number of shards; None: the index has no shards."""
        return None if self._threads is None else len(self.partitions)

    @property
    def encoder(self) -> Encoder:
        """The encoder of queries."""
        return self._resources.encoder_for(self._encoder_record)

    @property
    def writing_encoder(self) -> Encoder:
        """The encoder of documents that are added; it refuses texts if it is not that of the index."""
        record = self._encoder_record
        if self._resources.has_encoder_of(record):
            return self.encoder
        return NoEncoder(self.settings.dim, record.normalize)

    def check_encoder(self) -> None:
        """Raise unless the encoder is the one that the index was built with.

        Raises:
            EncoderMismatch: it is another one.
        """
        self._resources.check_encoder(self._encoder_record, self._path)

    @property
    def n_documents(self) -> int:
        """Number of documents that are not deleted."""
        return sum(each.n_documents for each in self.partitions)

    @property
    def is_new(self) -> bool:
        """Whether no document was committed yet, or none of them is left in any file."""
        return not any(each.manifest.segments for each in self.partitions)

    def has(self, doc_id: str) -> bool:
        """Return whether there is a document with an id."""
        return self.partitions[self._owner(doc_id)].has(doc_id)

    def documents(self, ids: Iterable[str], *, with_vectors: bool = False) -> list[Document]:
        """Return the documents with these ids, in their order; ids that no document has are ignored."""
        wanted, owned = list(ids), dict[int, list[str]]()
        for doc_id in dict.fromkeys(wanted):
            owned.setdefault(self._owner(doc_id), []).append(doc_id)
        by_id = {
            document.id: document
            for number, own in owned.items()
            for document in self.partitions[number].documents(own, with_vectors)
        }
        return [by_id[doc_id] for doc_id in wanted if doc_id in by_id]

    def _owner(self, doc_id: str) -> int:
        return shard_of(doc_id, len(self.partitions))

    def count(self, condition: Condition) -> int:
        """Return the number of documents that satisfy a condition."""
        return sum(self.count_each(condition).values())

    def count_each(self, condition: Condition) -> dict[int, int]:
        """Return the number of documents of each partition that satisfy a condition, by its number."""
        gathering = self._gathering()
        self._check_condition(condition, gathering)
        return gathering.run(lambda number: self.partitions[number].count(condition))

    def facets(self, request: FacetRequest, options: SearchOptions) -> Facets:
        """Return counts of values in what a lexical search finds, see `quarry.engine.engine.Engine.facets`."""
        gathering, query, collection = self._gathering(), None, None
        condition = filter_of(options)
        if request.query is not None:
            (query,) = self._make_queries([request.query], None, options)
            condition = query.condition
            if query.browses:
                query = None
        self._check_condition(condition, gathering)
        if self._threads is not None and query is not None:
            collection = self._find_collection([query], gathering, corrects=True)
        counts = gathering.run(
            lambda number: self.partitions[number].count_facets(request.field, query, condition, collection)
        )
        return request.sum(each for part in counts.values() for each in part)

    def statistics(self) -> dict[str, object]:
        """Describe the partitions and what searches them; see `quarry.engine.index.statistics`."""
        descriptions = self._gathering().run(lambda number: self.partitions[number].describe())
        of_all: dict[str, object] = {"dense_weight": self._dense_weight, "language": self.settings.language}
        if self.settings.languages:
            of_all["languages"] = sorted(self.settings.languages)
        if self._threads is None:
            return descriptions[0] | of_all
        return joined_statistics({self._names[number]: each for number, each in descriptions.items()}) | of_all

    @cached_property
    def _dense_weight(self) -> float:
        """The weight of dense scores in searches that give none."""
        if self._chosen_weight is not None:
            return self._chosen_weight
        return CALIBRATED_DENSE_WEIGHT if self._estimator.least_range else DEFAULT_DENSE_WEIGHT

    def search(
        self, texts: list[str] | None, options: SearchOptions, vectors: Vectors | None = None
    ) -> list[Hits]:
        """Return the hits of each query, see `quarry.engine.engine.Engine.search`.

        Args:
            texts: the texts of the queries; None: `options.mode` is "dense", and there is no reranking.
            options: the options of the search.
            vectors: (n, dim) of the queries, checked; None: texts are encoded if the mode needs vectors.

        Raises:
            InvalidFilter: the filter is malformed.
        """
        if texts is not None and vectors is None and options.mode != "lexical":
            are_empty = [browses(text, options) for text in texts]  # which needs no vectors
            browsing = replace(options, mode="lexical")
            if all(are_empty):
                options = browsing
            elif any(are_empty):
                pairs = list(zip(texts, are_empty, strict=True))
                browsed = iter(self.search([text for text, is_empty in pairs if is_empty], browsing))
                others = iter(self.search([text for text, is_empty in pairs if not is_empty], options))
                return [next(browsed if is_empty else others) for is_empty in are_empty]
        options = options.for_index(self._dense_weight)
        queries = self._make_queries(texts, vectors, options)
        reranker = self._resources.find_reranker(self._path) if options.rerank else None
        needs_encoder = vectors is None and options.mode != "lexical"
        if needs_encoder:
            self.check_encoder()
        gathering, collection = self._prepare(queries, options)
        if vectors is not None:
            give_vectors(queries, metric_queries(self.metric, vectors))
        elif needs_encoder:
            texts = [query.text for query in queries if query.text is not None]
            if options.mode == "hybrid":
                bm25 = self._answering(gathering).bm25(collection)
                texts = [query.correct(bm25) for query in queries]
            give_vectors(queries, self._resources.encode(texts, self._encoder_record, self.metric))
        all_hits = self._answer(queries, options, gathering, collection)
        if reranker is None:
            return all_hits
        return [
            rerank(query.text, hits, reranker, options.k, options.offset)
            for query, hits in zip(queries, all_hits, strict=True)
            if query.text is not None
        ]

    def search_like(self, options: SearchOptions) -> Hits:
        """Return the hits like the document `options.like`, see `quarry.engine.options.SearchOptions`.

        Raises:
            InvalidFilter: the filter is malformed.
        """
        # every word of the query is in the index
        options = replace(options.for_index(self._dense_weight), typos=False, operators=False)
        condition = filter_of(options)
        similar = self._find_similar(str(options.like), options.timeout)
        gathering, collection, words = self._gathering(options.partial, options.timeout), None, None
        if options.mode != "dense":
            analyzer = cached_analyzer(self.settings.analysis, self.settings.analysis_rules)
            if self._threads is not None:
                # not parsed as the text of a query, in which a character of an unspaced script would be a prefix
                terms = analyzer.terms(similar.text)
                collection = self._collections.find(terms, (), gathering, corrects=False)
            words = similar.words(analyzer.terms, collection or self._answering(gathering).bm25(None))
        queries = [Query(words, self.settings, condition, typos=False)]
        if options.mode != "lexical":
            give_vectors(queries, similar.vector(self.metric))
        return self._answer(queries, options, *self._prepare(queries, options))[0]

    def sort(self, options: SearchOptions, n: int) -> MergedRanking:
        """Return the first n documents that pass a filter in the order of fields, each by one of its passages.

        Raises:
            InvalidSetting: no document has a field, its values have other types, or there are too many documents.
        """
        n = max(1, min(n, self.n_documents))
        if n > MAX_K:
            raise InvalidSetting("too many documents to sort", expected=f"a limit of at most {MAX_K}", actual=n)
        options = replace(options, mode="lexical", k=n)
        queries = self._make_queries([""], None, options)
        parts = self._arrange(queries, options, *self._prepare(queries, options))
        return merge_arranged({number: each[0] for number, each in parts.items()}, options)

    def _find_similar(self, doc_id: str, timeout: float | None) -> SimilarQuery:
        """Return a document as a query; without its shard there is none, also if answers may be partial."""
        owner = self._owner(doc_id)
        gathering = Gathering(self._threads, self._names, timeout=timeout)
        return gathering.run(lambda number: self.partitions[number].find_similar(doc_id, self._path), [owner])[
            owner
        ]

    def _make_queries(
        self, texts: Sequence[str] | None, vectors: Vectors | None, options: SearchOptions
    ) -> list[Query]:
        given: Sequence[str | None] = (
            texts if texts is not None else [None] * (0 if vectors is None else len(vectors))
        )
        prefixes: Sequence[str | None] = [None] * len(given)
        if options.prefix and texts is not None:
            given, prefixes = self._complete(texts, options)
        condition = filter_of(options)
        operators = False if options.mode == "dense" else options.operators
        is_lexical = options.mode == "lexical"
        return [
            Query(
                text,
                self.settings,
                condition,
                operators=operators,
                has_prefixes=is_lexical,
                prefix=prefix,
                typos=options.typos,
                browses=is_lexical and text is not None and browses(text, options),
                in_passages=options.unit == "passage",
                synonyms=self._synonyms,
            )
            for text, prefix in zip(given, prefixes, strict=True)
        ]

    def _complete(
        self, texts: Sequence[str], options: SearchOptions
    ) -> tuple[Sequence[str], Sequence[str | None]]:
        """Replace the last word of texts by the likeliest word that begins with it; return them and the prefixes.

        A word that is there itself stays, and one with which no word begins is no prefix.
        """
        analyzer = cached_analyzer(self.settings.analysis, self.settings.analysis_rules)
        has_conditions = options.mode != "dense" and bool(options.operators)
        words = [unfinished_word(text, analyzer, operators=has_conditions) for text in texts]
        asked = list({word.word for word in words if word is not None})
        gathering = self._gathering(options.partial, options.timeout)
        parts: Mapping[int, list[Counter[str]]] = {}
        if asked:
            analysis = self.settings.analysis
            parts = gathering.run(lambda number: self.partitions[number].count_completions(asked, analysis))
        totals = {word: sum(own, Counter[str]()) for word, *own in zip(asked, *parts.values(), strict=True)}
        completed = list(texts)
        prefixes: list[str | None] = [None] * len(texts)
        for place, word in enumerate(words):
            if word is None or not (counts := totals[word.word]):
                continue
            prefixes[place] = prefix = analyzer.prefix(word.word)
            if prefix not in map(analyzer.prefix, counts):
                likeliest = min(counts, key=lambda each: (-counts[each], len(each), each))
                completed[place] = texts[place][: word.starts[0]] + likeliest
        return completed, prefixes

    def _prepare(self, queries: Sequence[Query], options: SearchOptions) -> tuple[Gathering, Collection | None]:
        """Check the conditions of queries; return what asks the partitions, and the statistics of all shards.

        Raises:
            InvalidSetting: relevance is limited, and cannot be estimated; or hits cannot be arranged by a field.
            InvalidFilter: an operand is of another type than all values at its path.
        """
        gathering = self._gathering(options.partial, options.timeout)
        if options.min_relevance is not None:
            self._estimator.require(options.mode)
        for condition in dict.fromkeys(query.condition for query in queries):
            self._check_condition(condition, gathering)
        if options.is_arranged:
            self._check_fields(options, gathering)
        if self._threads is None or options.mode == "dense":
            return gathering, None
        return gathering, self._find_collection(queries, gathering, corrects=options.typos)

    def _answer(
        self,
        queries: Sequence[Query],
        options: SearchOptions,
        gathering: Gathering,
        collection: Collection | None,
    ) -> list[Hits]:
        """Return the hits of queries that have what the mode needs: a text, a vector, or both."""
        if not queries:
            return []
        is_arranged = options.is_arranged or any(query.browses for query in queries)
        counts: Mapping[int, list[int]] = {}
        if options.total:
            counts = gathering.run(
                lambda number: self.partitions[number].count_matches(queries, options, collection)
            )
        if self._threads is None and not is_arranged:
            (partition,) = self.partitions
            assert isinstance(partition, OpenPartition)
            all_hits = partition.search(queries, options, self._estimator)
        else:
            all_hits = self._answer_together(queries, options, gathering, collection, is_arranged)
        if options.total:
            answered = [own for number, own in counts.items() if number not in gathering.missing]
            for hits, *each in zip(all_hits, *answered, strict=True):
                hits.total = sum(each)
        set_metric_scores(self.metric, queries, all_hits, is_dense=options.mode == "dense")
        if options.min_relevance is None:
            return all_hits
        return [hits.at_least(options.min_relevance) for hits in all_hits]

    def _answer_together(
        self,
        queries: Sequence[Query],
        options: SearchOptions,
        gathering: Gathering,
        collection: Collection | None,
        is_arranged: bool,
    ) -> list[Hits]:
        """Merge the candidates of shards and read the hits; again if a shard fails that has some of them."""
        least_range = self._estimator.least_range
        answers: Mapping[int, list[Any]]
        if is_arranged:
            answers = self._arrange(queries, options, gathering, collection)
            merge: Callable[..., MergedRanking] = merge_arranged
        else:
            answers = gathering.run(lambda number: self.partitions[number].find(queries, options, collection))
            merge = partial(merge_candidates, least_range=least_range)
        while True:
            estimator = self._find_estimator(options.mode, gathering)
            missing = set(gathering.missing)
            left = {number: each for number, each in answers.items() if number not in missing}
            rankings = [
                merge({number: each[place] for number, each in left.items()}, options)
                for place in range(len(queries))
            ]
            whole = [
                Answer(
                    each.documents,
                    query,
                    None if query.browses else estimator.prepare(options.mode, query.vector),
                )
                for query, each in zip(queries, rankings, strict=True)
            ]

            def read(number: int, given: Any = (whole, rankings)) -> list[Hits]:  # noqa: ANN401
                pairs = zip(*given, strict=True)
                own = [answer._replace(ranking=each.of_partition(number)) for answer, each in pairs]
                return self.partitions[number].read(own, options, collection)

            owners = sorted({int(number) for ranking in rankings for number in np.unique(ranking.partitions)})
            parts = gathering.run(read, owners)
            if missing == gathering.missing.keys():
                break
        coverage = None if self._threads is None else self._coverage(gathering)
        return [
            _join_hits(each, {number: own[place] for number, own in parts.items()}, coverage)
            for place, each in enumerate(rankings)
        ]

    def _arrange(
        self,
        queries: Sequence[Query],
        options: SearchOptions,
        gathering: Gathering,
        collection: Collection | None,
    ) -> dict[int, list[Arranged]]:
        """Return the first documents of each query in each partition, by its number."""
        references: list[Reference | None] = [None] * len(queries)
        groups: list[Set[Scalar | None] | None] = [None] * len(queries)
        if options.mode == "hybrid":
            found = gathering.run(lambda number: self.partitions[number].find(queries, options, collection))
            for place in range(len(queries)):
                pool, _ = merge_pool({number: each[place] for number, each in found.items()}, options)
                references[place] = Reference(find_scale(pool, options), self._estimator.least_range)

        def arrange(number: int) -> list[Arranged]:
            return self.partitions[number].arrange(queries, options, collection, references, groups)

        parts = gathering.run(arrange)
        if options.group_size == 1 or len(self.partitions) == 1:
            return parts
        whole = replace(options, k=options.n_retrieved, offset=0)
        for place in range(len(queries)):  # a shard may have hits of groups that are not among its first ones
            merged = merge_arranged({number: each[place] for number, each in parts.items()}, whole)
            groups[place] = frozenset(merged.groups or ())
        return gathering.run(arrange)

    def _check_fields(self, options: SearchOptions, gathering: Gathering) -> None:
        """Check the fields by which hits are arranged, see `quarry.engine.search.arrangement.check_fields`."""
        condition = fields_condition(options)
        kinds = join_kinds(gathering.run(lambda number: self.partitions[number].evaluate(condition)).values())
        if kinds is not None:
            check_fields(options, kinds, self._find_nearest, is_whole=not gathering.missing)
            for each in time_conditions(options, kinds):
                self._check_times(each, gathering)

    def _check_times(self, condition: Comparison, gathering: Gathering) -> None:
        """Check that some document satisfies a condition of `time_conditions`."""
        if condition in self._checked:
            return
        counts = gathering.run(lambda number: self.partitions[number].count(condition))
        if gathering.missing:
            return
        if not any(counts.values()):
            values = self.facets(FacetRequest(condition.path, None, 2), SearchOptions()).values  # and perhaps None
            message = f"boost: no value of the field {shown(condition.path)} is a time"
            found = next((each.value for each in values if each.value is not None), "a text")  # of no column
            expected = "dates or times as ISO 8601 texts, or seconds since 1970"
            raise InvalidSetting(message, expected=expected, actual=shown(found), setting="boost")
        self._remember(condition)

    def _gathering(self, allow_partial: bool = False, timeout: float | None = None) -> Gathering:
        if self._threads is None:
            return self._alone
        return Gathering(self._threads, self._names, allow_partial, timeout, self.failures)

    def _answering(self, gathering: Gathering) -> P_co:
        """Return a partition that is not missing."""
        return next(each for number, each in enumerate(self.partitions) if number not in gathering.missing)

    def check_condition(self, condition: Condition | None) -> None:
        """Evaluate a filter on all partitions; check types and fields against the values of all of them together.

        Raises:
            InvalidFilter: an operand is of another type than all values at its path.
        """
        self._check_condition(condition, self._gathering())

    def _check_condition(self, condition: Condition | None, gathering: Gathering) -> None:
        if condition is None or condition in self._checked:
            return
        kinds_of_partitions = gathering.run(lambda number: self.partitions[number].evaluate(condition))
        kinds = join_kinds(kinds_of_partitions.values())
        if kinds is None or gathering.missing:  # what all documents have is not known
            return
        self.check_kinds(condition, kinds)
        if count_bytes(condition) <= _CHECKED_BYTES:
            self._remember(condition)

    def _remember(self, condition: Condition) -> None:
        with self._lock:
            if len(self._checked) >= _MAX_CHECKED:
                self._checked = set()
            self._checked.add(condition)

    def check_kinds(self, condition: Condition, kinds: Kinds) -> None:
        """Warn about fields that no document has.

        Args:
            condition: an evaluated condition.
            kinds: the kinds of the values that all documents have, see
                `quarry.engine.filtering.evaluation.Evaluation`.

        Raises:
            InvalidFilter: an operand is of another type than all values at its path.
        """
        for field in find_unknown_paths(condition, kinds):
            self._resources.unknown_fields.warn(field, partial(self._find_nearest, field))

    def _find_nearest(self, field: str) -> list[str]:
        names = {name for each in self.partitions for name in each.find_nearest(field)}
        return find_nearest_names(field, names, lambda _: True)

    def _find_collection(self, queries: Iterable[Query], gathering: Gathering, *, corrects: bool) -> Collection:
        """Return the statistics of all shards that the terms of queries need."""
        parsed = [query.parsed for query in queries]
        terms = [term for each in parsed for term in each.terms]
        free = [term for each in parsed for term in each.free]
        return self._collections.find(terms, free, gathering, corrects=corrects)

    def _make_estimator(self, sample: Callable[[], BackgroundSample]) -> RelevanceEstimator:
        """Make what estimates relevance with a background sample, which is read when it is first needed."""
        record = self._encoder_record
        is_of_index = self._resources.has_encoder_of(record)
        # from minus half of a squared distance to a cosine
        offset = 1.0 if self.metric.name == "l2" else 0.0
        return RelevanceEstimator(partial(self._resources.encoder_for, record), is_of_index, sample, offset)

    def _find_estimator(self, mode: str, gathering: Gathering) -> RelevanceEstimator:
        """Return what estimates relevance with the background of the partitions that answer."""
        if mode == "lexical" or self._threads is None or self._estimator.model(mode) is None:
            return self._estimator
        while True:  # again without the shards that failed meanwhile
            missing = frozenset(gathering.missing)
            made = self._estimators.get(missing)
            if made is not None:
                return made
            samples = gathering.run(lambda number: self.partitions[number].background)
            if missing == gathering.missing.keys():
                made = self._make_estimator(partial(merge_samples, list(samples.values())))
                if len(self._estimators) < _MAX_ESTIMATORS:
                    self._estimators[missing] = made
                return made

    def _coverage(self, gathering: Gathering) -> Coverage:
        missing = gathering.missing
        n_missing = sum(self.partitions[number].n_documents for number in missing)
        return Coverage(
            n_shards=len(self.partitions),
            n_documents=self.n_documents,
            n_reached=self.n_documents - n_missing,
            missing={self._names[number]: missing[number] for number in sorted(missing)},
            generations=self.different_generations(),
        )

    def different_generations(self) -> dict[str, tuple[int, ...]]:
        """Return the generations of shards of which there are copies at several; see `Coverage.generations`."""
        return {}


def _join_hits(ranking: MergedRanking, parts: Mapping[int, Hits], coverage: Coverage | None) -> Hits:
    """Return the hits of all shards in the order of the ranking."""
    following = {number: iter(own) for number, own in parts.items()}
    joined = [next(following[number]) for number in ranking.partitions.tolist()]
    for hit, group in zip(joined, ranking.groups or (), strict=False):
        hit.group = None if group is None else to_value(group)
    is_complete = coverage is None or coverage.is_complete
    return Hits(joined, ranking.documents.exactness if is_complete else Exactness.PARTIAL, coverage)
