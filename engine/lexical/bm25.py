"""BM25 over the segments of an index, with the statistics of all live documents.

The score of a document d, as in Lucene (`BM25Similarity`), is the sum over the query's terms t of ::

    idf(t) tf / (tf + k1 (1 - b + b |d| / average))     idf(t) = ln(1 + (N - df + 1/2) / (df + 1/2))

tf: frequency of t in d; |d|: number of terms of d, exact, both with the weights of fields (BM25F, see
`quarry.engine.options.BuildOptions.field_weights`); N, df, average: number of documents, number of documents with
t, and mean length of a document; a term that occurs n times in the query counts n times, and a term that stands
for a mistyped one (`quarry.engine.lexical.close_terms`) a fraction of that. (S. Robertson, H. Zaragoza, The
probabilistic relevance framework: BM25 and beyond, 2009, Eq. 3.15, without the constant factor k1 + 1.)

An identifier, which is a term of six characters or more with letters and digits such as the code of an error, and
a phrase in quotation marks are scored with |d| = 0: what they name does not depend on how much else a document
says. With the length of documents, questions with the code of an error in a long log found short texts with rare
words of the question instead (bench/README.md, the panel).

N, df and average count live documents only; in Lucene, deleted documents count until they are merged away. So
scores do not depend on how documents are distributed over segments or on what was deleted. They are equal bit for
bit: the terms of every document are summed in the same order, rarest first.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple, Protocol, Self

import numpy as np

from quarry.engine.analysis.auto_analyzer import ALTERNATIVE_SIGN, cached_analyzer
from quarry.engine.analysis.edits import one_edit
from quarry.engine.analysis.phrases import PHRASE_SIGN
from quarry.engine.analysis.synonyms import Synonyms, open_synonyms
from quarry.engine.filtering.evaluation import AllowedDocs
from quarry.engine.lexical.close_terms import (
    CloseTerm,
    Expansion,
    allowed_edits,
    find_close_terms,
    is_expandable,
    select_expansions,
)
from quarry.engine.lexical.derived_terms import derived_terms
from quarry.engine.lexical.live_postings import LivePostings
from quarry.engine.lexical.segment_scorer import Scored, SegmentScorer
from quarry.engine.lexical.term_scores import Costs, EncodedScores, EncodedTerm, PartScores, TermScores, look_up
from quarry.engine.options import DEFAULT_B, DEFAULT_K1
from quarry.engine.scoring.ranking import Exactness, Ranking, merge_rankings
from quarry.formats.arrays import BoolArray, Float32Array, Int64Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.errors import InvalidSetting
from quarry.formats.postings.elias_fano import Postings
from quarry.formats.postings.postings import PostingsReader
from quarry.formats.snapshot import Snapshot

__all__ = ["Bm25", "Bm25Query", "Collection", "inverse_document_frequency"]

_CACHE_BYTES = 128 << 20
_IDENTIFIER = re.compile(r"(?=.*\d)(?=.*[^\W\d_]).{6}")
_MAX_EXPANSIONS = 4096  # mistyped terms whose expansions are remembered
_Key = str | tuple[str, int]
_NONE: Mapping[str, Sequence[Expansion]] = {}
_TERM_BYTES, _PART_BYTES = 256, 320  # approximate size of the Python objects


class Collection(Protocol):
    """The statistics that BM25 takes from a collection of live documents; they never change."""

    @property
    def analysis(self) -> str:
        """What names the analysis of its queries, see `quarry.formats.manifest.IndexSettings`; "" if unknown."""
        ...

    @property
    def n_docs(self) -> int:
        """Number of documents."""
        ...

    @property
    def average_length(self) -> float:
        """Mean number of terms of a document."""
        ...

    def document_frequency(self, term: str) -> int:
        """Return the number of documents with a term."""
        ...

    def expand(self, term: str) -> Sequence[Expansion]:
        """Return the close terms that replace a term that no document has; they may be none."""
        ...


def inverse_document_frequency(n_docs: int, n_with_term: int) -> float:
    """Return ln(1 + (N - df + 1/2) / (df + 1/2)), above 0.

    Args:
        n_docs: N, documents of the collection.
        n_with_term: df, those that have the term, at most N.
    """
    return math.log1p((n_docs - n_with_term + 0.5) / (n_with_term + 0.5))


class Bm25:
    """Scores the documents of some immutable segments; thread-safe.

    Args:
        readers: the segments' postings.
        deleted: for each segment (n_docs,) bool, or None if nothing is deleted.
        k1: term frequency saturation, 0 or larger; 0 ignores frequencies.
        b: length normalization, from 0 (none) to 1.
        cache_bytes: memory for the decoded postings of recently used terms.
        collection: the collection that the documents of the segments are a part of; None: they are all of it.
        edited_stems: returns the stems of the texts within one edit of a term, to find what a mistyped one stands
            for.
        prefixes: for each segment what returns the live documents with a prefix or a phrase, given its name; None:
            there are none among the terms.
        costs: where methods change.
        synonyms: of the index; a word that has some may be what a mistyped one stands for. None: there are none.
        analysis: see `Collection`.

    Attributes:
        analysis: see above.
        segments: the postings of the live documents of each.

    Raises:
        InvalidSetting: k1 or b is out of bounds.
    """

    def __init__(  # noqa: PLR0913
        self,
        readers: Sequence[PostingsReader],
        deleted: Sequence[BoolArray | None],
        k1: float = DEFAULT_K1,
        b: float = DEFAULT_B,
        cache_bytes: int = _CACHE_BYTES,
        collection: Collection | None = None,
        edited_stems: Callable[[str], Iterable[str]] = lambda _: (),
        prefixes: Sequence[Callable[[str], Postings]] | None = None,
        *,
        costs: Costs | None = None,
        synonyms: Synonyms | None = None,
        analysis: str = "",
    ) -> None:
        if not (0 <= k1 < math.inf and 0 <= b <= 1):
            raise InvalidSetting("settings of BM25 out of bounds", expected="k1 >= 0, 0 <= b <= 1", actual=(k1, b))
        each: Sequence[Callable[[str], Postings] | None] = prefixes or [None] * len(readers)
        self.segments = [LivePostings(*parts) for parts in zip(readers, deleted, each, strict=True)]
        self.analysis = analysis
        self._costs = costs or Costs()
        self._scorers = [SegmentScorer(segment.n_ordinals, self._costs) for segment in self.segments]
        self._k1 = k1
        self._b = b
        self._cache = _TermCache(cache_bytes)
        self._larger = collection  # not `collection or self`: a cycle would keep files open until it is collected
        self._is_whole = collection is None
        self._edited_stems = edited_stems
        self._synonyms = synonyms
        self._expansions: dict[str, Sequence[Expansion]] = {}

    @property
    def _collection(self) -> Collection:
        return self if self._larger is None else self._larger

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        cache_bytes: int,
        collection: Collection | None = None,
        analysis: str | None = None,
    ) -> Self:
        """Return the scores of a snapshot by its own settings; prefixes are found.

        Args:
            snapshot: the generation that is searched; it is used even after it is closed.
            cache_bytes: memory for the decoded postings of recently used terms.
            collection: that the snapshot is a part of; None: it is all of it.
            analysis: that of queries, if the snapshot is a part of a collection; None: its own.
        """
        segments, settings = snapshot.segments, snapshot.manifest.settings
        settings = settings if analysis is None else replace(settings, analysis=analysis)
        analyzer = cached_analyzer(settings.analysis, settings.analysis_rules)
        return cls(
            [segment.reader.postings for segment in segments],
            [segment.deleted_passages for segment in segments],
            settings.k1,
            settings.b,
            cache_bytes,
            collection,
            analyzer.edited_stems,
            [derived_terms(segment, settings).find for segment in segments],
            synonyms=open_synonyms(settings.synonyms, settings.analysis, settings.analysis_rules),
            analysis=settings.analysis,
        )

    def find_expansions(
        self, terms: Iterable[str], unchanged: Iterable[str] = ()
    ) -> dict[str, Sequence[Expansion]]:
        """Map each term of a query that no document has to the close terms that stand for it.

        Args:
            terms: terms of a query; of more than `Costs.max_terms` none counts as mistyped.
            unchanged: terms that are not to be replaced.
        """
        names = list(dict.fromkeys(terms))
        if len(names) > self._costs.max_terms:
            return {}
        known = zip(names, self._cache.get(names), strict=True)
        absent = {name for name, term in known if not (self._read_term(name) if term is None else term).n_docs}
        expansions = {name: self._collection.expand(name) for name in sorted(absent.difference(unchanged))}
        return {name: each for name, each in expansions.items() if each}

    def query(self, terms: Iterable[str], expansions: Mapping[str, Sequence[Expansion]] = _NONE) -> Bm25Query:
        """Look up the terms and return the query.

        Args:
            terms: the terms.
            expansions: what stands for those that no document has; see `find_expansions`.
        """
        stop_if_cancelled()
        counts: dict[str, float] = dict(Counter(terms))
        present, absent = self._look_up_terms(counts)
        words = [name for name in absent - expansions.keys() if not name.startswith(PHRASE_SIGN)]
        information = len(words) * inverse_document_frequency(self._collection.n_docs, 0)
        information += sum(term.idf for term in present if not term.name.startswith(PHRASE_SIGN))
        if expansions:
            for name, several in expansions.items():
                for each in several:
                    counts[each.name] = counts.get(each.name, 0.0) + each.weight * counts[name]
            present, _ = self._look_up_terms({name: n for name, n in counts.items() if name not in absent})
            idf = {term.name: term.idf for term in present}
            information += sum(max(idf[each.name] for each in several) for several in expansions.values())
        return Bm25Query(present, self._scorers, information, expansions)

    def close_terms(self, term: str, n_edits: int) -> set[CloseTerm]:
        """Return all terms of the segments' dictionaries within a distance of a term.

        For a word with synonyms its group is returned, also if it is in no dictionary and within one edit.
        """
        close = find_close_terms([segment.reader for segment in self.segments], term, n_edits, self._edited_stems)
        if self._synonyms is None:
            return close
        group = self._synonyms.group
        edited = {
            each for name in term.split(ALTERNATIVE_SIGN) for each in (*one_edit(name), *self._edited_stems(name))
        }
        keys = {CloseTerm(group(each), 1) for each in filter(is_expandable, edited) if group(each) != each}
        return keys | {CloseTerm(group(each.name), each.distance) for each in close}

    def expand(self, term: str) -> Sequence[Expansion]:
        """Return the close terms that replace a term that no document has; they may be none."""
        known = self._expansions.get(term)
        if known is None:
            known = self._find_expansions(term)
            if len(self._expansions) >= _MAX_EXPANSIONS:
                self._expansions = {}
            self._expansions[term] = known
        return known

    def _find_expansions(self, term: str) -> Sequence[Expansion]:
        for n_edits in allowed_edits(term):
            stop_if_cancelled()
            close = self.close_terms(term, n_edits)
            selected = select_expansions(close, self._document_frequencies(each.name for each in close))
            if selected:
                return selected
        return ()

    @property
    def cached_bytes(self) -> int:
        """Memory of the cached postings, in bytes."""
        return self._cache.n_bytes

    @cached_property
    def n_docs(self) -> int:
        """The number of live documents of all segments."""
        return sum(segment.n_docs for segment in self.segments)

    @cached_property
    def total_length(self) -> int:
        """The number of terms of all live documents, repetitions counted."""
        return sum(segment.total_length for segment in self.segments)

    @cached_property
    def average_length(self) -> float:
        """The mean number of terms of a live document."""
        return self.total_length / max(1, self.n_docs)

    def document_frequency(self, term: str) -> int:
        """Return the number of live documents of all segments with a term."""
        stop_if_cancelled()
        return sum(each.document_frequency(term) for each in self.segments)

    def _document_frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """Return the document frequency of each of some terms; those of cached terms are not read again."""
        names = list(terms)
        known = self._cache.get(names) if self._is_whole else [None] * len(names)
        return {
            name: self.document_frequency(name) if term is None else term.n_docs
            for name, term in zip(names, known, strict=True)
        }

    @cached_property
    def _norms(self) -> list[Float32Array]:
        """For each segment k1 (1 - b + b |d| / average) of each document, (n_docs,) float32."""
        slope = self._k1 * self._b / max(self._collection.average_length, 1e-9)
        least = self._k1 * (1 - self._b)
        return [(segment.lengths * slope + least).astype(np.float32) for segment in self.segments]

    @cached_property
    def _least_norms(self) -> list[float]:
        return [float(norms.min(initial=np.inf)) for norms in self._norms]

    def _norms_of(self, term: str, segment: int) -> tuple[Float32Array, float]:
        """Return the norms of the documents of a segment for a term, and the least of them."""
        norms = self._norms[segment]
        if ALTERNATIVE_SIGN in term or (not _IDENTIFIER.match(term) and not term.startswith(PHRASE_SIGN)):
            return norms, self._least_norms[segment]
        least = self._k1 * (1 - self._b)
        return np.broadcast_to(np.float32(least), norms.shape), least

    def _look_up_terms(self, counts: Mapping[str, float]) -> tuple[list[QueryTerm], set[str]]:
        """Return the terms that live documents contain, at most `Costs.max_terms`, rarest first, then by name.

        And the other terms, which no document contains; none if there are too many terms.
        """
        names = list(counts) if len(counts) <= self._costs.max_terms else self._select_rarest(counts)
        terms = []
        for name, known in zip(names, self._cache.get(names), strict=True):
            term = self._read_term(name) if known is None else known
            if term.n_docs:
                idf = inverse_document_frequency(self._collection.n_docs, term.n_docs)
                parts = tuple(self._scores_of(name, number, part) for number, part in enumerate(term.parts))
                terms.append(QueryTerm(term.n_docs, name, counts[name], idf, parts))
        terms.sort()
        return terms, set(names) - {term.name for term in terms}

    def _select_rarest(self, names: Iterable[str]) -> list[str]:
        frequencies = [(self._collection.document_frequency(name), name) for name in names]
        return [name for frequency, name in sorted(frequencies) if frequency][: self._costs.max_terms]

    def _scores_of(self, name: str, segment: int, part: TermScores | EncodedTerm) -> PartScores:
        """Return the scores of a term in a segment, as queries use them."""
        if isinstance(part, TermScores):
            return part
        decode, find = partial(self._decode, name, segment, part.idf), partial(self._find_decoded, name, segment)
        return EncodedScores(part, decode, find, per_lookup=self._costs.postings_per_lookup)

    def _decode(self, name: str, segment: int, idf: float) -> TermScores:
        """Return the decoded scores of a frequent term in a segment; they are cached beside its look-up tables."""
        scores = self._find_decoded(name, segment)
        if scores is None:
            scores = self._score(name, self.segments[segment].postings(name), segment, idf)
            self._cache.put((name, segment), _Term(scores.n_docs, (scores,)))
        return scores

    def _score(self, name: str, postings: Postings, segment: int, idf: float) -> TermScores:
        return TermScores.of(postings, self._norms_of(name, segment)[0], idf, self._costs.dense_factor)

    def _find_decoded(self, name: str, segment: int) -> TermScores | None:
        (known,) = self._cache.get([(name, segment)])
        part = known.parts[0] if known else None
        return part if isinstance(part, TermScores) else None

    def _read_term(self, name: str) -> _Term:
        stop_if_cancelled()
        lookups = [
            segment.lookup(name, self._costs.frequent) or segment.postings(name) for segment in self.segments
        ]
        n_docs = sum(len(each.docs) if isinstance(each, Postings) else each[0] for each in lookups)
        if not self._is_whole:
            n_docs = self._collection.document_frequency(name)
        idf = inverse_document_frequency(self._collection.n_docs, n_docs)
        parts = [
            self._score(name, each, number, idf)
            if isinstance(each, Postings)
            else EncodedTerm.of(*each, *self._norms_of(name, number), idf)
            for number, each in enumerate(lookups)
        ]
        term = _Term(n_docs, tuple(parts))
        self._cache.put(name, term)
        return term


class QueryTerm(NamedTuple):
    """A term of a query; names are distinct, so terms can be sorted.

    Attributes:
        n_docs: live documents that contain it, in all segments.
        name: the term.
        frequency: how often it occurs in the query; less if it stands for a mistyped term.
        idf: its inverse document frequency in the collection, above 0.
        parts: its scores in each segment.
    """

    n_docs: int
    name: str
    frequency: float
    idf: float
    parts: tuple[PartScores, ...]


class Bm25Query:
    """A query over some segments.

    Args:
        terms: the terms of the query that occur in the segments, rarest first.
        scorers: one for each segment.
        information: sum of the inverse document frequencies of all terms of the query, also of those that do not
            occur, without phrases.
        expansions: the terms that stand for mistyped ones, the likeliest first, by the latter.
    """

    def __init__(
        self,
        terms: Sequence[QueryTerm],
        scorers: Sequence[SegmentScorer],
        information: float,
        expansions: Mapping[str, Sequence[Expansion]],
    ) -> None:
        self._terms = terms
        self._information = information
        self.mistyped: dict[str, str] = {}
        for mistyped, several in expansions.items():
            for each in several:
                self.mistyped.setdefault(each.name, mistyped)
        self._scorers = scorers
        self._parts = [
            [term.parts[segment].multiply(term.frequency) for term in terms] for segment in range(len(scorers))
        ]

    @property
    def idf(self) -> dict[str, float]:
        """The inverse document frequency of each term."""
        return {term.name: term.idf for term in self._terms}

    def scores(self) -> list[Scored]:
        """Return for each segment the live documents with a term of the query, ascending, and their scores."""
        return [scorer.scores(parts) for scorer, parts in zip(self._scorers, self._parts, strict=True)]

    def top(self, n: int, allowed: AllowedDocs | None = None, keep_ties: bool = False) -> Ranking:
        """Return the n >= 1 best live documents, or fewer if fewer contain a term of the query.

        Args:
            n: number of documents.
            allowed: for each segment the documents that may be found; None: all.
            keep_ties: whether all documents that tie with the last one are kept too.
        """
        each = [None] * len(self._scorers) if allowed is None else allowed
        rankings = [
            scorer.find_best(parts, n, docs)
            for scorer, parts, docs in zip(self._scorers, self._parts, each, strict=True)
        ]
        ranking = merge_rankings(rankings, n, keep_ties)
        return ranking._replace(lexical=ranking.scores, exactness=Exactness.EXACT)

    def score_documents(self, segment: int, docs: Int64Array) -> Float32Array:
        """Return the scores of the documents (n,) `docs` of a segment, (n,) float32; 0 without a query term."""
        return look_up(self._parts[segment], docs)

    def shares(self, segment: int, docs: Int64Array) -> Float32Array:
        """Return the share of the query's information that (n,) documents have: (n,) float32, from 0 to 1."""
        information = np.zeros(len(docs), np.float64)
        for term in self._terms:
            if term.name.startswith(PHRASE_SIGN):  # whose words are terms, too
                continue
            information += term.idf * min(1.0, term.frequency) * term.parts[segment].contains(docs)
        return np.minimum(information / max(self._information, 1e-9), 1.0).astype(np.float32)

    def term_scores(self, segment: int, doc: int) -> dict[str, float]:
        """Return the contribution of each term to the score of a document, by term; missing terms are left out."""
        docs = np.array([doc])
        scores = (float(part.look_up(docs)[0]) for part in self._parts[segment])
        return {term.name: score for term, score in zip(self._terms, scores, strict=True) if score > 0}


class _Term(NamedTuple):
    """A term: the number of live documents that contain it, and its scores in each segment."""

    n_docs: int
    parts: tuple[TermScores | EncodedTerm, ...]

    @property
    def n_bytes(self) -> int:
        return _TERM_BYTES + sum(_PART_BYTES + part.n_bytes for part in self.parts)


class _TermCache:
    """A cache, bounded in bytes, of recently used terms, and of decoded frequent ones by name and segment."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.n_bytes = 0
        self._terms: OrderedDict[_Key, _Term] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, names: Sequence[_Key]) -> list[_Term | None]:
        """Return the cached terms, None for those that are not cached."""
        with self._lock:
            for name in self._terms.keys() & names:
                self._terms.move_to_end(name)
            return [self._terms.get(name) for name in names]

    def put(self, name: _Key, term: _Term) -> None:
        """Add a term, and evict the least recently used ones."""
        with self._lock:
            if name not in self._terms:
                self._terms[name] = term
                self.n_bytes += term.n_bytes
            while self.n_bytes > self._max_bytes:
                self.n_bytes -= self._terms.popitem(last=False)[1].n_bytes
