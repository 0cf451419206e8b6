"""Options of builds (stored with the index), of searches, and of open indexes (resources)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self, TypedDict

from quarry.engine.analysis.analyzer import RULES, Analyzer
from quarry.engine.analysis.synonyms import checked_synonyms
from quarry.engine.arguments import (
    check_names,
    checked_flag,
    checked_integer,
    checked_number,
    is_one_of,
    iterator_of,
    lone_surrogate,
    shown,
)
from quarry.engine.boosts import parse_boosts
from quarry.engine.choices import FUSIONS, MODES, UNITS, CentroidType, Fusion, Mode, Unit
from quarry.engine.process.cpus import n_cpus
from quarry.engine.thresholds import Thresholds
from quarry.formats.errors import InvalidSetting
from quarry.formats.manifest import (
    AUTO_LANGUAGE,
    MAX_FIELD_WEIGHT,
    MAX_PASSAGE_WORDS,
    MAX_SEARCHABLE,
    METRICS,
    PassageRecord,
)
from quarry.formats.metadata.columns import MAX_PATH_BYTES
from quarry.formats.vectors.centroids import CENTROID_TYPES
from quarry.formats.vectors.quantizer import MAX_DIM

__all__ = [
    "CALIBRATED_DENSE_WEIGHT",
    "DEFAULT_B",
    "DEFAULT_DENSE_WEIGHT",
    "DEFAULT_K1",
    "DEFAULT_LANGUAGE",
    "FUSIONS",
    "MAX_K",
    "MODES",
    "BuildKeywords",
    "BuildOptions",
    "OpenOptions",
    "SearchKeywords",
    "SearchOptions",
    "uncalibrated_candidates",
]

MAX_K = 1 << 20  # hits and candidates; bounds the memory of a search
_MAX_TIMEOUT_S = 86_400  # a day
_MAX_SORT_FIELDS = 8  # each reads a column
_MAX_CONTEXT = 100  # passages, which bounds what is read for a hit
DEFAULT_LANGUAGE = "english"
DEFAULT_K1 = 1.2  # of BM25, as in Lucene
DEFAULT_B = 0.75  # of BM25, as in Lucene
DEFAULT_DENSE_WEIGHT = 0.5  # bench/README.md, the panel
CALIBRATED_DENSE_WEIGHT = 0.65  # likewise, with a least range of dense scores
_CANDIDATES_PER_HIT = 3  # without a measurement of the segment
_MIN_CANDIDATES = 100


class BuildKeywords(TypedDict, total=False):
    """The fields of `BuildOptions` as keyword arguments of a build."""

    centroids: CentroidType
    code_bytes: int | None
    language: str | None
    k1: float
    b: float
    seed: int
    metric: str | None
    passage_words: int | None
    passage_overlap: int
    searchable: Sequence[str]
    synonyms: Mapping[str, Sequence[str]]
    field_weights: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Options of a build, stored with the index.

    Attributes:
        centroids: storage type of centroids: "int8" (dim + 4 bytes each), "float16" (2 dim bytes), or "none"
            (codes only: the smallest index; segments too small to train codes on keep int8, unless the encoder was
            trained with a quantizer).
        code_bytes: bytes of a centroid's PQ code in indexes large enough for inverted lists; dim must be
            divisible by twice that. None: that of the quantizer that the encoder was trained with, otherwise
            the largest possible value up to 48. 0: no lists, search is exact.
        language: language of the text analysis for lexical search: "english", another language of the Snowball
            stemmers, "none" (no stemming and no stop words), or "auto": the language of each passage is found,
            and a query is analyzed by those of all passages. None: "auto" with a multilingual encoder, otherwise
            "english".
        k1: BM25's term frequency saturation, 0 or larger.
        b: BM25's length normalization, from 0 to 1.
        seed: seed of every random choice.
        metric: how vectors are compared: "ip" (inner product), "cosine" (vectors and queries are scaled to norm
            1), or "l2" (Euclidean distance). None: "cosine" if the encoder's vectors have norm 1, otherwise "ip".
        passage_words: most words of a passage: longer documents are cut at headings, paragraphs and sentence ends
            into passages, which are ranked by themselves. 260 English words are about 350 tokens; in scripts
            without spaces three characters count as a word. Documents that come with vectors are divided by their
            spans instead. None: a document is never divided.
        passage_overlap: words at the end of a passage that the next one begins with, less than half of
            `passage_words`; searches by words count them twice.
        searchable: paths of metadata fields whose texts and numbers are found by words, besides titles and texts:
            "sku", "author.name"; "id" is the id of the document. Encoders do not read them.
        synonyms: words, or several together, with lists of texts that stand for them in queries; see
            `Engine.set_synonyms`.
        field_weights: whole numbers from 1 to 100 by "title" or searchable path: how often the words of the field
            count in lexical search, as in BM25F (S. Robertson, H. Zaragoza, M. Taylor, Simple BM25 extension to
            multiple weighted fields, 2004): frequencies and lengths of all fields are summed with these weights
            before BM25 is computed. The text, other fields, and titles of over 512 characters count once.
    """

    centroids: CentroidType = "int8"
    code_bytes: int | None = None
    language: str | None = None
    k1: float = DEFAULT_K1
    b: float = DEFAULT_B
    seed: int = 0
    metric: str | None = None
    passage_words: int | None = 260  # ARCHITECTURE.md, measured once
    passage_overlap: int = 0
    searchable: Sequence[str] = ()
    synonyms: Mapping[str, Sequence[str]] = field(default_factory=dict)
    field_weights: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, keywords: BuildKeywords) -> Self:
        """Return the options given by keyword arguments.

        Raises:
            InvalidSetting: a value is out of range, or a keyword is unknown.
        """
        check_names(keywords, [each.name for each in fields(cls)])
        return cls(**keywords)

    def __post_init__(self) -> None:
        if not is_one_of(self.centroids, CENTROID_TYPES):
            raise InvalidSetting(
                "unknown type of centroids", expected=" or ".join(CENTROID_TYPES), actual=shown(self.centroids)
            )
        if self.metric is not None:
            _check_choice("metric", self.metric, METRICS)
        _check_number(self, "k1", 0, 1000)
        _check_number(self, "b", 0, 1)
        _check_integer(self, "seed", 0, (1 << 63) - 1)
        if self.passage_words is not None:
            _check_integer(self, "passage_words", 1, MAX_PASSAGE_WORDS)
        longest = 0 if self.passage_words is None else (self.passage_words - 1) // 2
        _check_integer(self, "passage_overlap", 0, longest)
        if self.code_bytes is not None:
            _check_integer(self, "code_bytes", 0, MAX_DIM)
        object.__setattr__(self, "searchable", _checked_paths(self.searchable))
        language = DEFAULT_LANGUAGE if self.language is None else self.language
        Analyzer("none" if is_one_of(language, (AUTO_LANGUAGE,)) else language)
        are_none = isinstance(self.synonyms, Mapping) and not self.synonyms
        entries = () if are_none else checked_synonyms(self.synonyms, language, RULES)
        object.__setattr__(self, "synonyms", entries)
        weights = _checked_weights(self.field_weights, ("title", *self.searchable))
        object.__setattr__(self, "field_weights", weights)
        if self.code_bytes == 0 and self.centroids == "none":
            raise InvalidSetting(
                "an index must store centroids or codes", expected="code_bytes above 0", actual=self.code_bytes
            )

    @property
    def passages(self) -> PassageRecord | None:
        """How documents are cut; None: they are not."""
        words = self.passage_words
        return None if words is None else PassageRecord(max_words=words, overlap=self.passage_overlap)

    def code_bytes_for(self, dim: int) -> int:
        """Return the bytes of a code for vectors of length `dim`; a byte holds two 4-bit sub-quantizers, or one.

        Raises:
            InvalidSetting: `dim` cannot be divided into as many equal parts.
        """
        if self.code_bytes is None:
            return self._largest_code_bytes(dim)
        _check_integer(self, "code_bytes", 0, dim // 2)
        if self.code_bytes and dim % (2 * self.code_bytes):
            raise InvalidSetting(
                "code_bytes does not divide the dimension",
                expected=f"half a divisor of {dim}",
                actual=self.code_bytes,
            )
        return self.code_bytes

    def _largest_code_bytes(self, dim: int) -> int:
        largest = max((n for n in range(1, 49) if dim % (2 * n) == 0), default=0)
        if largest == 0 and self.centroids == "none":
            raise InvalidSetting("vectors of odd dimension have no codes", expected="an even dim", actual=dim)
        return largest


class SearchKeywords(TypedDict, total=False):
    """The fields of `SearchOptions` except `k`, as keyword arguments of a search."""

    like: str | None
    offset: int
    candidates: int | None
    nprobe: int | None
    explain: bool
    mode: Mode
    fusion: Fusion
    dense_weight: float | None
    rerank: int | None
    min_relevance: float | None
    typos: bool
    operators: bool | None
    prefix: bool
    filter: Mapping[str, object] | None
    partial: bool
    timeout: float | None
    unit: Unit
    context: int
    sort: str | Sequence[str] | None
    boost: Mapping[str, object] | None
    group_by: str | None
    group_size: int
    total: bool


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search.

    Attributes:
        k: number of hits; there are fewer only if the index has fewer documents, fewer pass the filter or
            satisfy the conditions of the query, or in lexical mode fewer contain a term of it.
        like: id of a document that is the query instead of a text: the mean of its stored vectors, and in hybrid
            and lexical mode its 25 most informative words. No encoder is needed, and it is no hit itself. None:
            texts are searched for.
        offset: number of hits to leave out at the beginning: the hits are those that a search for `offset` + k has
            from there on. Pages of an answer that is not exact agree with each other if all are searched with the
            same `candidates` and `nprobe`; without these, in hybrid mode, up to the 100th hit of an index without
            inverted lists. Time and memory grow with `offset` + k.
        candidates: number of documents that stage 2 scores exactly, at least `offset` + k, or `rerank`; None: a
            measured default.
        nprobe: number of inverted lists that stage 1 reads; None: a measured default.
        explain: whether hits hold the passages and the terms that matched.
        mode: "hybrid" (fused dense and lexical scores), "dense" (vectors), or "lexical" (BM25).
        fusion: fusion of hybrid scores: "linear" (weighted mean of min-max normalized scores) or "rrf" (reciprocal
            rank fusion).
        dense_weight: weight of the dense scores in "linear", from 0 to 1; None: the weight that was chosen for the
            index by `quarry tune`, otherwise 0.65, or 0.5 if the calibration of the encoder has no typical spread,
            without which small differences of dense scores would weigh too much.
        rerank: number of hits that the index's reranker scores again, at least `offset` + k; None: no reranking.
        min_relevance: the least `Hit.relevance` of a hit, from 0 to 1; the others are left out. None: no limit.
        typos: whether words of the query that no document has are replaced by close ones, at a lower weight
            (docs/scores.md).
        operators: whether signs in the text of a query are operators in hybrid and lexical mode (docs/scores.md):
            "exact phrase", prefix*, -word, +word and field:value. None: a phrase raises documents that have it,
            and prefixes are found in lexical mode; all other signs are punctuation. False: all are.
        prefix: whether the last word of a text that ends with it is the beginning of a word: search as you type.
            It is replaced by the likeliest word that begins so, and in hybrid and lexical mode all such words are
            one more term (docs/scores.md).
        filter: filter of metadata, id, title and text (docs/documents.md); None: all documents.
        partial: whether shards of the index that fail or are late are left out, as `Hits.coverage` and
            `Hits.exactness` then state; otherwise the search raises an error. It concerns sharded indexes only.
        timeout: seconds that the shards of an index have to answer each request of the search, of which there are
            up to twelve: for the document `like`, the last word, the filter, fields, statistics, terms,
            candidates, their order and groups, background, texts and the total; and four more for mistyped words.
            None: no limit.
        unit: "document" or "passage": what hits are. Documents are ranked by the best of their passages.
        context: with unit "passage", how many passages before and after a hit are read with it, see `Hit.before`.
        sort: a field of the metadata, or several, the first one decides: hits are in the order of their values,
            and equal ones in the order of their scores. ``"-date"`` has the largest value first. Documents without
            a value are last. All documents that match are sorted: in lexical mode those with a term of the query,
            otherwise all that pass the filter. None: by their scores.
        boost: maps fields of the metadata to what their values add to scores (docs/ranking.md):
            ``{"published": Recency(half_life="30d")}``, or ``{"published": {"recency": {"half_life": "30d"}}}``.
            All documents that match are scored. None: nothing is added.
        group_by: a field of the metadata, or "id": hits are `k` groups of documents or passages with one value
            there, the group with the best hit first, one after another. Documents without a value are a group.
            None: no groups.
        group_size: the most hits of a group.
        total: whether `Hits.total` is counted: the documents, or passages, that match.
    """

    k: int = 10
    like: str | None = None
    offset: int = 0
    candidates: int | None = None
    nprobe: int | None = None
    explain: bool = False
    mode: Mode = "hybrid"
    fusion: Fusion = "linear"
    dense_weight: float | None = None
    rerank: int | None = None
    min_relevance: float | None = None
    typos: bool = True
    operators: bool | None = None
    prefix: bool = False
    filter: Mapping[str, object] | None = None
    partial: bool = False
    timeout: float | None = None
    unit: Unit = "document"
    context: int = 0
    sort: str | Sequence[str] | None = None
    boost: Mapping[str, object] | None = None
    group_by: str | None = None
    group_size: int = 1
    total: bool = False

    @classmethod
    def of(cls, k: int, others: SearchKeywords) -> Self:
        """Return the options given by keyword arguments.

        Raises:
            InvalidSetting: a value is out of range, or a keyword is unknown.
        """
        check_names(others, [each.name for each in fields(cls)])
        return cls(k=k, **others)

    def __post_init__(self) -> None:
        _check_choice("mode", self.mode, MODES)
        _check_choice("fusion", self.fusion, FUSIONS)
        for name, most in (("dense_weight", 1), ("min_relevance", 1), ("timeout", _MAX_TIMEOUT_S)):
            if getattr(self, name) is not None:
                _check_number(self, name, 0, most)
        _check_choice("unit", self.unit, UNITS)
        _check_integer(self, "k", 1, MAX_K)
        _check_integer(self, "context", 0, _MAX_CONTEXT)
        if self.context and self.unit != "passage":
            message = "only passages have a context"
            raise InvalidSetting(message, expected="unit 'passage'", actual=shown(self.unit), setting="context")
        _check_integer(self, "offset", 0, MAX_K - self.k)
        if self.like is not None and (not isinstance(self.like, str) or self.rerank):
            raise InvalidSetting(
                "like is not the id of a document, or its hits are to be reranked",
                expected="a str, no rerank",
                actual=shown(self.like),
                setting="like",
            )
        if self.rerank is not None:
            _check_integer(self, "rerank", self.offset + self.k, MAX_K)
        if self.candidates is not None:
            _check_integer(self, "candidates", self.n_retrieved, MAX_K)
        if self.nprobe is not None:
            _check_integer(self, "nprobe", 1, MAX_K)
        object.__setattr__(self, "explain", checked_flag(self.explain, "explain"))
        object.__setattr__(self, "typos", checked_flag(self.typos, "typos"))
        if self.operators is not None:
            object.__setattr__(self, "operators", checked_flag(self.operators, "operators"))
        object.__setattr__(self, "prefix", checked_flag(self.prefix, "prefix"))
        object.__setattr__(self, "partial", checked_flag(self.partial, "partial"))
        has_size = type(self.group_size) is not int or self.group_size != 1
        if self.is_arranged or has_size or self.total is not False:  # all three are rare
            self._check_arrangement()

    def _check_arrangement(self) -> None:
        """Check how hits are arranged and counted, and bring it into one form."""
        object.__setattr__(self, "total", checked_flag(self.total, "total"))
        _check_integer(self, "group_size", 1, MAX_K // (self.offset + self.k))
        if self.group_size > 1 and self.group_by is None:
            raise InvalidSetting(
                "only groups have a size", expected="group_by", actual=self.group_size, setting="group_size"
            )
        if self.sort is not None:
            object.__setattr__(self, "sort", _sort_fields(self.sort))
        if self.boost is not None:
            object.__setattr__(self, "boost", parse_boosts(self.boost))
        if self.group_by is not None and (not isinstance(self.group_by, str) or not self.group_by):
            actual = shown(self.group_by)
            raise InvalidSetting("group_by is not a field", expected="a path", actual=actual, setting="group_by")
        if self.is_arranged and (self.rerank or (self.sort is not None and self.boost is not None)):
            message = "hits are arranged in two ways"
            raise InvalidSetting(message, expected="sort, boost or rerank; group_by with one of the first two")

    @property
    def is_arranged(self) -> bool:
        """Whether hits are not just the best ones by their scores: all documents that match are looked at."""
        return self.sort is not None or self.boost is not None or self.group_by is not None

    @property
    def fusion_weight(self) -> float:
        """The weight of the dense scores, the default if none is given."""
        return DEFAULT_DENSE_WEIGHT if self.dense_weight is None else self.dense_weight

    def for_index(self, dense_weight: float) -> SearchOptions:
        """Return the options of a search in an index with this weight; only hybrid searches have one."""
        if self.mode != "hybrid" or self.dense_weight is not None:
            return self
        return replace(self, dense_weight=dense_weight)

    def for_hits(self, n: int) -> SearchOptions:
        """Return the options of a search for n hits."""
        if n == self.n_retrieved:
            return self
        candidates = None if self.candidates is None else max(n, self.candidates)
        return replace(self, k=n, offset=0, rerank=None, candidates=candidates)

    @property
    def n_retrieved(self) -> int:
        """Number of hits before reranking and before any are left out."""
        return self.rerank or self.offset + self.k

    @property
    def n_skipped(self) -> int:
        """Number of hits to leave out before documents are read; a reranker needs all of them."""
        return 0 if self.rerank else self.offset


def uncalibrated_candidates(k: int) -> int:
    """Return the default of `SearchOptions.candidates` for k hits if no measurement of the segment decides it."""
    return max(_MIN_CANDIDATES, _CANDIDATES_PER_HIT * k)


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """Resources of an open index; they do not change exact answers.

    Attributes:
        backend: "auto", the name of a backend, or its class; see `quarry.engine.backends.registry.find_backend`.
        threads: number of threads for batches of queries and for encoding documents; None: one for each CPU that
            this process may use.
        device: device of backend "gpu": "cuda", "cuda:1", or "cpu" (slow, for tests); None: the first CUDA device.
        device_bytes: maximum device memory in bytes; None: 90 % of the free memory.
        memory_bytes: maximum main memory held for searching in bytes (see `quarry.engine.index.memory`); None: no
            limit.
        thresholds: advanced settings; see `quarry.engine.thresholds`.
    """

    backend: Any = "auto"
    threads: int | None = None
    device: str | None = None
    device_bytes: int | None = None
    memory_bytes: int | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        if self.threads is not None:
            _check_integer(self, "threads", 1, 1024)
        if self.device_bytes is not None:
            _check_integer(self, "device_bytes", 1, 1 << 62)
        if self.device is not None and not isinstance(self.device, str):
            raise InvalidSetting("unknown device", expected="cuda, cuda:N or cpu", actual=shown(self.device))

    @cached_property
    def n_threads(self) -> int:
        """The number of threads to use, as it is when first asked: finding it reads files of the system."""
        return n_cpus() if self.threads is None else self.threads


def _check_integer(options: object, name: str, low: int, high: int) -> None:
    """Check a field; a NumPy scalar is replaced by a Python number."""
    checked = checked_integer(getattr(options, name), name, low, high)
    object.__setattr__(options, name, checked)  # the options are frozen, and the value stays the same


def _check_number(options: object, name: str, low: float, high: float) -> None:
    object.__setattr__(options, name, checked_number(getattr(options, name), name, low, high))


def _checked_paths(given: object) -> tuple[str, ...]:
    """Return the paths of searchable fields, each once, ascending."""
    found = None if isinstance(given, str | bytes | Mapping) else iterator_of(given)
    paths = None if found is None else list(found)
    wrong = [given] if paths is None else [path for path in paths if not _is_searchable(path)]
    if wrong or paths is None or len(set(paths)) > MAX_SEARCHABLE:
        raise InvalidSetting(
            "searchable does not name fields of metadata",
            expected=f"a list of up to {MAX_SEARCHABLE} paths, or 'id'; titles and texts are always searched",
            actual=shown(wrong[0] if wrong else given),
            setting="searchable",
        )
    return tuple(sorted(map(str, set(paths))))


def _is_searchable(path: object) -> bool:
    if not isinstance(path, str) or path in ("", "title", "text") or lone_surrogate(path) is not None:
        return False
    return len(path.encode()) <= MAX_PATH_BYTES


def _checked_weights(given: object, fields: Sequence[str]) -> dict[str, int]:
    """Return the weights of fields that do not count once, by their names, ascending."""
    if not isinstance(given, Mapping):
        expected = "a mapping of 'title' or searchable fields to whole numbers"
        raise InvalidSetting(
            "field_weights is no mapping", expected=expected, actual=shown(given), setting="field_weights"
        )
    for name in given:
        if not is_one_of(name, fields):
            raise InvalidSetting(
                f"field_weights names {shown(name)}, which is no searchable field; the text counts once",
                expected=f"'title' or a field that searchable names; here: {', '.join(fields)}",
                setting="field_weights",
            )
    weights = {
        name: checked_integer(given[name], f"field_weights: the weight of {shown(name)}", 1, MAX_FIELD_WEIGHT)
        for name in sorted(given)
    }
    return {name: weight for name, weight in weights.items() if weight > 1}


def _sort_fields(sort: object) -> tuple[str, ...]:
    given = (sort,) if isinstance(sort, str) else sort
    names = given if isinstance(given, list | tuple) else ()
    are_names = all(isinstance(name, str) and name.removeprefix("-") for name in names)
    if not are_names or not 0 < len({name.removeprefix("-") for name in names}) == len(names) <= _MAX_SORT_FIELDS:
        expected = f"a path, 'price' or '-price', or up to {_MAX_SORT_FIELDS} different ones"
        raise InvalidSetting(
            "sort is not a field, or several", expected=expected, actual=shown(sort), setting="sort"
        )
    return tuple(names)


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if not is_one_of(value, allowed):
        raise InvalidSetting(f"unknown {name}", expected=" or ".join(allowed), actual=shown(value), setting=name)
