"""Hits, the results of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from quarry.engine.arguments import shown
from quarry.engine.documents.document import full_text
from quarry.engine.documents.file_place import FilePlace, find_place
from quarry.engine.json_mapping import JsonMapping, JsonRecord, pydantic_schema, values_of
from quarry.engine.scoring.ranking import Exactness
from quarry.engine.search.hits.hit_tables import to_arrow, to_pandas
from quarry.engine.search.passages import MatchedWord, Passage, PassageFinder, PassagePlace
from quarry.formats.documents.store import PackedDocument
from quarry.formats.errors import InvalidSetting

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

__all__ = ["Coverage", "Hit", "Hits", "Match", "snippet"]


class Coverage(JsonMapping):
    """Which shards of an index answered a search, and how many documents they hold.

    Like a `Hit` it is also a mapping of its JSON-compatible values.

    Attributes:
        n_shards: shards of the index.
        n_documents: documents of the whole index.
        n_reached: documents of the shards that answered.
        missing: folder of each shard that did not answer, and the reason.
        generations: of an index served with several copies of its shards: for each shard whose copies are at
            different generations, these, ascending; the answer is from one of them. No value if there are none.
    """

    __slots__ = ("generations", "missing", "n_documents", "n_reached", "n_shards")
    __hash__ = None  # type: ignore[assignment]  # attributes can be set

    def __init__(
        self,
        *,
        n_shards: int,
        n_documents: int,
        n_reached: int,
        missing: Mapping[str, str] | None = None,
        generations: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self.n_shards = n_shards
        self.n_documents = n_documents
        self.n_reached = n_reached
        self.missing: Mapping[str, str] = {} if missing is None else missing
        self.generations: Mapping[str, tuple[int, ...]] = {} if generations is None else generations

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Coverage) else NotImplemented

    def __repr__(self) -> str:
        return f"Coverage({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    @property
    def is_complete(self) -> bool:
        """Whether every shard answered."""
        return not self.missing

    def _values(self) -> Mapping[str, Callable[[], object]]:
        values: dict[str, Callable[[], object]] = {
            "n_shards": lambda: self.n_shards,
            "n_documents": lambda: self.n_documents,
            "n_reached": lambda: self.n_reached,
            "missing": lambda: dict(self.missing),
        }
        if self.generations:
            values["generations"] = lambda: {name: list(each) for name, each in self.generations.items()}
        return values


_ANSWERS = 0.5  # calibrated with as many queries that a collection answers as of others


@dataclass(frozen=True, slots=True)
class Match(JsonRecord):
    """A part of a document that contributes to its score: the text of one centroid.

    Attributes:
        spans: (start, end) characters in the document's full text (its title, a line break, its text).
        text: the text of the spans, joined by " … ".
        score: inner product of the query and the centroid.
        weight: weight of the part in the document's score, from 0 to 1; the weights of a document add up to 1.
            The mean over all centroids, which is a part of scores in an index of codes alone, is not counted.
    """

    spans: tuple[tuple[int, int], ...]
    text: str
    score: float
    weight: float


@dataclass(slots=True, eq=False, repr=False)
class Hit(JsonMapping):
    """A document found. It stays valid when the index is closed; the document is decompressed on access.

    A hit is also a mapping of its JSON-compatible values: ``dict(hit)`` is ``hit.to_dict()``, and a web framework
    can return hits as they are.

    Attributes:
        id: the document's id.
        score: what the hits of one query are ranked by; larger is better. It is not comparable between queries: in
            hybrid mode scores are scaled for each query, so that the best document of any query gets a high one.
        matches: with ``explain=True`` the parts of it that contribute, by descending weight; otherwise empty.
        terms: with ``explain=True`` the analyzed terms of the query that the document contains, and the lexical
            score of each; otherwise empty.
        mistyped: with ``explain=True`` maps each matched term to the misspelled term that it replaced.
        relevance: an estimate of the probability that the document answers the query, from 0 to 1, comparable
            between queries and collections; None if the encoder has no calibration
            (docs/scores.md).
        group: in a search with `group_by` the value of its group; None: it has none there.
        dense_score: aggregated inner products of vectors, None if not computed. In an index of codes alone it may
            be below the score of the best passage, see docs/scores.md.
        lexical_score: BM25 score, None if not computed.
    """

    __hash__ = None  # type: ignore[assignment]  # attributes can be set

    id: str
    score: float
    _document: PackedDocument
    _: KW_ONLY
    relevance: float | None = None
    dense_score: float | None = None
    lexical_score: float | None = None
    matches: tuple[Match, ...] = ()
    terms: Mapping[str, float] = field(default_factory=dict)
    mistyped: Mapping[str, str] = field(default_factory=dict)
    group: str | int | float | bool | None = None
    _is_explained: bool = False
    _finder: PassageFinder | None = None
    _place: PassagePlace | None = None
    _passages: tuple[Passage, ...] | None = field(default=None, init=False)
    _words: tuple[MatchedWord, ...] | None = field(default=None, init=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hit):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in (*_FIELDS, "words", "passage"))

    @property
    def passages(self) -> tuple[Passage, ...]:
        """Its best passage for the query, and up to two others that score nearly as high, best first."""
        if self._passages is None:
            self._passages = () if self._finder is None else self._finder.find(self._document.unpack())
        return self._passages

    @property
    def words(self) -> tuple[MatchedWord, ...]:
        """With ``explain=True`` the words of the document, or of the passage, that match words of the query.

        Their positions are in the document's full text (its title, a line break, its text). Otherwise empty.
        """
        if self._words is None:
            finder = self._finder if self._is_explained else None
            if finder is not None and self._place is None:
                finder = finder._replace(place=PassagePlace(finder.place.path))
            self._words = () if finder is None else finder.find_words(self._document.unpack())
        return self._words

    @words.setter
    def words(self, words: tuple[MatchedWord, ...]) -> None:
        self._words = words

    @property
    def text(self) -> str:
        """The document's text, or that of the passage."""
        stored = self._document.unpack()
        return stored.text if self._place is None else self._place.text(stored)

    @property
    def passage(self) -> int | None:
        """In a search for passages the number of the passage in its document, from 0; None: it is a document."""
        return None if self._place is None else self._place.number

    @property
    def is_part(self) -> bool:
        """Whether it is one of several passages of its document."""
        return self._place is not None and self._place.extent != (0, 0)

    @property
    def before(self) -> tuple[str, ...]:
        """In a search for passages with `context`, the texts of so many passages before it."""
        return () if self._place is None else self._neighbors(self._place, self._place.before)

    @property
    def after(self) -> tuple[str, ...]:
        """In a search for passages with `context`, the texts of so many passages after it."""
        return () if self._place is None else self._neighbors(self._place, self._place.after)

    def _neighbors(self, place: PassagePlace, extents: tuple[tuple[int, int], ...]) -> tuple[str, ...]:
        stored = self._document.unpack()
        return tuple(place.text(stored, extent) for extent in extents)

    @property
    def extent(self) -> tuple[int, int] | None:
        """The (start, end) characters of a passage in the full text of its document; None if it is no passage."""
        if self._place is None:
            return None
        start, end = self._place.extent
        return start, end or len(full_text(self.title, self._document.unpack().text))

    @property
    def title(self) -> str:
        """The document's title, or ""."""
        return self._document.unpack().title

    @property
    def metadata(self) -> Mapping[str, object]:
        """The document's metadata."""
        return self._document.unpack().metadata

    @property
    def place(self) -> FilePlace | None:
        """Where it was read: "manual.pdf, p. 12"; None if the document was not read from a file.

        Of a document it is the place of the best passage.
        """
        if self.extent is not None:
            stored = self._document.unpack()
            return find_place(stored.text, stored.title, stored.metadata, (self.extent,))
        return self.passages[0].place if self.passages else self.place_of(None)

    def place_of(self, match: Match | None) -> FilePlace | None:
        """Find where a match was read: "manual.pdf, p. 12"; None when the document was not read from a file."""
        stored = self._document.unpack()
        return find_place(stored.text, stored.title, stored.metadata, match.spans if match else ())

    def _values(self) -> Mapping[str, Callable[[], object]]:
        return values_of(self, _NAMES)

    def __repr__(self) -> str:
        title, text = snippet(self.title), snippet(self.text)  # texts can be long
        return f"Hit(id={self.id!r}, score={self.score:.4f}, title={title!r}, text={text!r})"


_FIELDS = tuple(each.name for each in fields(Hit) if not each.name.startswith("_"))
_OF_PASSAGES = ("passage", "extent", "before", "after")
_FIRST = ("id", "score", "relevance", "title", "text", "metadata", *_OF_PASSAGES, "place", "passages")
_NAMES = (*_FIRST, *(name for name in _FIELDS if name not in _FIRST), "words")
del Hit.__dataclass_fields__  # by which FastAPI would convert hits attribute by attribute, private ones too


class Hits(list[Hit]):
    """The hits of one query, best first: a list with the exactness of the answer.

    Attributes:
        exactness: what is known about the documents that are not in it; "exact", "exact over probed lists" or
            "approximate"; "partial" if a shard of the index did not answer.
        coverage: which shards answered; None for an index without shards.
        total: in a search with `total` the number of documents, or passages, that match: in lexical mode those
            with a term of the query, otherwise all that pass the filter. `min_relevance` does not count.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        return pydantic_schema(cls, lambda hits: [hit.to_dict() for hit in hits], list)

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        exactness: Exactness = Exactness.APPROXIMATE,
        coverage: Coverage | None = None,
        total: int | None = None,
    ) -> None:
        super().__init__(hits)
        self.exactness = exactness
        self.coverage = coverage
        self.total = total

    @property
    def groups(self) -> dict[str | int | float | bool | None, list[Hit]]:
        """The hits of a search with `group_by` by the values of their groups, the first group first."""
        groups: dict[str | int | float | bool | None, list[Hit]] = {}
        for hit in self:
            groups.setdefault(hit.group, []).append(hit)
        return groups

    @property
    def answerable(self) -> bool | None:
        """Whether a hit has a relevance of at least 1/2, so probably answers the query; None if it is unknown."""
        known = [hit.relevance for hit in self if hit.relevance is not None]
        return None if self and not known else any(relevance >= _ANSWERS for relevance in known)

    def at_least(self, relevance: float | None) -> Hits:
        """Return the hits whose relevance is at least so high; all of them if None is given.

        Raises:
            InvalidSetting: the relevance is not a number from 0 to 1.
        """
        if relevance is None:
            return self
        number: object = relevance.item() if isinstance(relevance, np.generic) else relevance
        if type(number) not in (int, float) or not 0 <= relevance <= 1:
            raise InvalidSetting(
                "relevance is out of range", expected="a number from 0 to 1, or None", actual=shown(relevance)
            )
        kept = [hit for hit in self if hit.relevance is not None and hit.relevance >= relevance]
        return Hits(kept, self.exactness, self.coverage, self.total)

    def to_dict(self) -> dict[str, object]:
        """Return the hits and all attributes as JSON-compatible values.

        Web frameworks that are given the hits themselves return a list of the hits.
        """
        return {
            "exactness": str(self.exactness),
            "coverage": None if self.coverage is None else self.coverage.to_dict(),
            "total": self.total,
            "hits": [hit.to_dict() for hit in self],
        }

    def to_pandas(self) -> Any:  # noqa: ANN401  # pandas has no types
        """Return a DataFrame with a row for each hit, best first.

        Its columns are id, score, relevance, title, text, metadata (dictionaries), passage, dense_score and
        lexical_score. A score that was not computed is NaN, and so is a relevance that is not known; the number of
        the passage is missing (``pandas.NA``) if hits are documents.

        Raises:
            BackendUnavailable: pandas is not installed.
        """
        return to_pandas(self, Hit)

    def to_arrow(self) -> Any:  # noqa: ANN401  # pyarrow has no types
        """Return a ``pyarrow.Table`` with a row for each hit, best first.

        Its columns are those of `to_pandas`, the metadata as JSON; values that are missing there are null.

        Raises:
            BackendUnavailable: pyarrow is not installed.
        """
        return to_arrow(self, Hit)


def snippet(text: str, n_characters: int = 88) -> str:
    """Return the beginning of a text on one line.

    White space becomes single spaces, and control characters are dropped, since texts are not trusted.
    """
    # only a bounded part of a long text is split into words
    words = text[: 8 * n_characters].split()
    line = "".join(character for character in " ".join(words) if character.isprintable())
    return line if len(line) <= n_characters else line[: n_characters - 3].rstrip() + "..."
