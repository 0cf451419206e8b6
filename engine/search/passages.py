"""Where a document matches a query: its words, and its best passages, by their vectors, by words, or by both."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from quarry.engine.analysis.auto_analyzer import cached_analyzer
from quarry.engine.analysis.phrases import open_phrase
from quarry.engine.analysis.words import is_unspaced, normalize_text
from quarry.engine.documents.document import full_text
from quarry.engine.documents.file_place import FilePlace, find_place
from quarry.engine.json_mapping import JsonMapping, JsonRecord
from quarry.engine.lexical.derived_terms import PREFIX_SIGN, WordPrefixes
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.documents.spans import Span, unpack_spans
from quarry.formats.documents.store import StoredDocument
from quarry.formats.segment import SegmentReader

__all__ = ["MatchedWord", "Passage", "PassageFinder", "PassagePlace", "QueryWords"]

_MARGIN = 0.1  # of the best score: other passages within it are returned too
_MAX_PASSAGES = 3
_GAP = " … "


@dataclass(frozen=True, slots=True)
class MatchedWord(JsonRecord):
    """A word of a text that a term of the query matches.

    Attributes:
        start: position of its first character.
        end: position after its last one.
        terms: the terms of the query that it has.
    """

    start: int
    end: int
    terms: tuple[str, ...]


class QueryWords(NamedTuple):
    """The terms of a query with their weights, and the rules by which texts are analyzed; can be pickled.

    Attributes:
        weights: weight of each term, above 0.
        language: of the index.
        rules: version of the rules of the analysis.
        quoted: the terms that are words of phrases only; words have them only inside of a phrase.
        phrases: texts of the phrases.
    """

    weights: Mapping[str, float]
    language: str
    rules: int
    quoted: frozenset[str] = frozenset()
    phrases: tuple[str, ...] = ()

    def find(self, text: str) -> tuple[MatchedWord, ...]:
        """Return the words of a text that have a term of the query, in order; overlapping ones are joined."""
        matched: list[MatchedWord] = []
        if not self.weights:
            return ()
        analyzer = cached_analyzer(self.language, self.rules)
        places = self._find_phrases(text)
        prefixes = [term for term in self.weights if term.endswith(PREFIX_SIGN)]
        begun_by = WordPrefixes([term.removesuffix(PREFIX_SIGN) for term in prefixes], analyzer)
        wanted = None if prefixes else self.weights.keys()
        for start, end, terms in analyzer.located_terms(text, wanted):
            own = tuple(term for term in terms if term in self.weights)
            if own and self.quoted and not any(low <= start and end <= high for low, high in places):
                own = tuple(term for term in own if term not in self.quoted)
            begun = tuple(each + PREFIX_SIGN for each in begun_by[text[start:end]]) if prefixes else ()
            characters = [] if own else _find_characters(text, start, end, begun)
            for character in characters:
                _append(matched, character)
            if (own or begun) and not characters:
                _append(matched, MatchedWord(start, end, own + begun))
        return tuple(matched)

    def _find_phrases(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) characters of the places where a text has one of the phrases."""
        phrases = (open_phrase(phrase, self.language, self.rules) for phrase in self.phrases)
        return [place for phrase in phrases for place in phrase.find(text)]

    def share(self, words: Sequence[MatchedWord]) -> float:
        """Return the share of the query's weight that words of a text have, from 0 to 1."""
        total = sum(self.weights.values())
        return sum(self.weights[term] for term in {term for word in words for term in word.terms}) / (total or 1.0)


class Passage(JsonMapping):
    """A passage of a document that matches a query: the text of one of the document's vectors.

    Like a hit it is also a mapping of its JSON-compatible values, of which the place is a str.

    Attributes:
        text: of the passage; the texts of several spans are joined by " … ".
        spans: (start, end) characters in the document's full text (its title, a line break, its text).
        score: what the passages of a document are ranked by, comparable within the document only; see
            `PassageFinder`. In dense mode, in an index of codes alone, it may be above the score of the document,
            of which the mean over all passages is a part.
        words: (start, end) characters of the words in `text` that match words of the query.
        place: where it was read: "manual.pdf, p. 12"; None when the document was not read from a file.
    """

    __slots__ = ("place", "score", "spans", "text", "words")
    __hash__ = None  # type: ignore[assignment]  # attributes can be set

    def __init__(
        self,
        text: str,
        spans: tuple[tuple[int, int], ...],
        score: float,
        words: tuple[tuple[int, int], ...],
        place: FilePlace | None,
    ) -> None:
        self.text = text
        self.spans = spans
        self.score = score
        self.words = words
        self.place = place

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Passage):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        return f"Passage({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    def _values(self) -> Mapping[str, Callable[[], object]]:
        return {
            "text": lambda: self.text,
            "spans": lambda: [list(span) for span in self.spans],
            "score": lambda: self.score,
            "words": lambda: [list(word) for word in self.words],
            "place": lambda: None if self.place is None else str(self.place),
        }


class PassagePlace(NamedTuple):
    """Where a passage of the index is in its document; can be pickled, and needs no open index.

    Attributes:
        path: file of the document, for messages.
        number: of the passage in its document, from 0.
        extent: (start, end) characters of the passage in the document's full text; (0, 0): all of it.
        rows: (first, stop) of its vectors among those of the document, and how many the document has; None: all
            are those of the passage.
        before: extents of the passages before it that are read with it, in the order of the text.
        after: extents of those after it.
    """

    path: Path
    number: int = 0
    extent: tuple[int, int] = (0, 0)
    rows: tuple[int, int, int] | None = None
    before: tuple[tuple[int, int], ...] = ()
    after: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, reader: SegmentReader, passages: Int64Array, context: int = 0) -> list[Self]:
        """Return the places of (n,) passages of a segment, each with so many passages before and after it."""
        table = reader.passages
        if not table.is_divided:
            return [cls(reader.path)] * len(passages)
        offsets = reader.centroids.offsets
        firsts, stops = table.of_documents(table.documents_of(passages))
        starts = offsets[firsts]
        rows = (offsets[passages] - starts, offsets[passages + 1] - starts, offsets[stops] - starts)
        places = [
            cls(reader.path, number, extent, (first, stop, n_rows))
            for number, extent, first, stop, n_rows in zip(
                *((passages - firsts).tolist(), table.extents_of(passages)),
                *(each.tolist() for each in rows),
                strict=True,
            )
        ]
        if not context:
            return places
        bounds = zip(places, passages.tolist(), firsts.tolist(), stops.tolist(), strict=True)
        return [
            place._replace(
                before=tuple(table.extents_of(np.arange(max(first, passage - context), passage))),
                after=tuple(table.extents_of(np.arange(passage + 1, min(stop, passage + 1 + context)))),
            )
            for place, passage, first, stop in bounds
        ]

    def text(self, stored: StoredDocument, extent: tuple[int, int] | None = None) -> str:
        """Return the passage's text, or that of another extent of the document, without the title."""
        start, end = self.extent if extent is None else extent
        n_before = len(stored.title) + 1 if stored.title else 0
        return stored.text[max(0, start - n_before) : max(0, end - n_before) or None]

    def spans(self, stored: StoredDocument, n_vectors: int | None) -> list[list[Span]]:
        """Return the spans of each vector of the passage.

        Raises:
            CorruptFile: the number of those of the document is wrong, or there are none.
        """
        first, stop, n_centroids = (0, n_vectors, n_vectors) if self.rows is None else self.rows
        return unpack_spans(stored.spans, self.path, n_centroids, first, stop)


class PassageFinder(NamedTuple):
    """Finds the best parts of one passage, by vectors and words; can be pickled, and needs no open index.

    A passage is scored, in dense mode, by the inner product of the query and its vector; in lexical mode by the
    share of the query's words that it contains, weighted by their rarity; in hybrid mode by the mean of both, each
    relative to the best passage of the document, weighted as the scores of documents are.

    Attributes:
        dense: (n_passages,) float32, inner products; None in lexical mode.
        words: the words of the query; None if it is a vector.
        dense_weight: weight of the inner products; 1 in dense mode, 0 in lexical mode.
        place: of the passage of the index in which they are.
    """

    dense: Float32Array | None
    words: QueryWords | None
    dense_weight: float
    place: PassagePlace

    def find(self, stored: StoredDocument) -> tuple[Passage, ...]:
        """Return the best passage of the document, and up to two others whose scores are nearly as high.

        The vector of a whole document is no passage, unless the document has no other. A document without a text
        has none.

        Raises:
            CorruptFile: the number of stored spans differs from the number of vectors.
        """
        n_vectors = None if self.dense is None else len(self.dense)
        spans = self.place.spans(stored, n_vectors)
        if not any(spans):  # vectors without a text
            return ()
        words = self.find_words(stored)
        places = ([word.start for word in words], [word.end for word in words])
        inside = [_words_in(each, words, *places) for each in spans]
        scores: list[float] = self._scores(inside).tolist()
        # not by numpy, whose sorting gives up the interpreter lock, for which a busy server then waits
        order = sorted(_parts(spans), key=scores.__getitem__, reverse=True)[:_MAX_PASSAGES]
        least = scores[order[0]] - _MARGIN * abs(scores[order[0]])
        return tuple(
            _passage(stored, spans[number], scores[number], inside[number])
            for number in order
            if scores[number] >= least
        )

    def find_words(self, stored: StoredDocument) -> tuple[MatchedWord, ...]:
        """Return the words of the passage that match the query, with positions in the document's full text."""
        start, end = self.place.extent
        if self.words is None:
            return ()
        words = self.words.find(_characters(stored, start, end or None))
        return tuple(replace(word, start=word.start + start, end=word.end + start) for word in words)

    def _scores(self, words: list[tuple[MatchedWord, ...]]) -> Float32Array:
        """Return the scores of passages, given the words in each: (n,) float32."""
        if self.dense is not None and (self.words is None or self.dense_weight == 1):
            return self.dense
        assert self.words is not None
        lexical = np.array([self.words.share(each) for each in words], np.float32)
        if self.dense is None:
            return lexical
        weight = np.float32(self.dense_weight)
        mixed: Float32Array = weight * _relative(self.dense) + (1 - weight) * _relative(lexical)
        return mixed


def _parts(spans: list[list[Span]]) -> list[int]:
    """Return the numbers of the vectors that are parts of a document, not of the whole text that all cover.

    If the parts cover less than half of it, such as only a document's first tokens, the whole is returned.
    """
    low, high = min(each[0][0] for each in spans if each), max(each[-1][1] for each in spans if each)
    is_whole = [each == [(low, high)] for each in spans]
    n_covered = sum(
        end - start for each, whole in zip(spans, is_whole, strict=True) if not whole for start, end in each
    )
    is_divided = 2 * n_covered >= high - low
    return [number for number, whole in enumerate(is_whole) if whole != is_divided] or list(range(len(spans)))


def _relative(scores: Float32Array) -> Float32Array:
    """Divide scores by the largest magnitude."""
    largest = np.abs(scores).max()
    relative: Float32Array = scores / largest if largest > 0 else scores
    return relative


def _words_in(
    spans: list[Span], words: tuple[MatchedWord, ...], starts: list[int], ends: list[int]
) -> tuple[MatchedWord, ...]:
    """Return the words inside of one of some spans; words are in order and do not overlap."""
    groups = [words[bisect_left(starts, low) : bisect_right(ends, high)] for low, high in spans]
    return groups[0] if len(groups) == 1 else tuple(dict.fromkeys(word for each in groups for word in each))


def _passage(stored: StoredDocument, spans: list[Span], score: float, words: tuple[MatchedWord, ...]) -> Passage:
    parts: list[str] = []
    marks: list[tuple[int, int]] = []
    at = 0
    for low, high in spans:
        marks += [(word.start - low + at, word.end - low + at) for word in words if low <= word.start < high]
        parts.append(_characters(stored, low, high))
        at += high - low + len(_GAP)
    bounds = tuple(spans)
    place = find_place(stored.text, stored.title, stored.metadata, bounds)
    return Passage(_GAP.join(parts), bounds, score, tuple(marks), place)


def _characters(stored: StoredDocument, start: int, end: int | None) -> str:
    """Return characters of a document's full text, which is not joined for a few of them: it may be long."""
    n_before = len(stored.title) + 1 if stored.title else 0
    if start < n_before:
        return full_text(stored.title, stored.text[: None if end is None else max(0, end - n_before)])[start:end]
    return stored.text[start - n_before : None if end is None else end - n_before]


def _append(words: list[MatchedWord], word: MatchedWord) -> None:
    """Append a word, or join it to the last one if they overlap."""
    if words and word.start < words[-1].end:
        before = words.pop()
        terms = tuple(dict.fromkeys(before.terms + word.terms))
        word = MatchedWord(min(before.start, word.start), max(before.end, word.end), terms)
    words.append(word)


def _find_characters(text: str, start: int, end: int, prefixes: Sequence[str]) -> list[MatchedWord]:
    """Return the places of the single characters of a script without spaces among some prefixes.

    None if the text writes one of them as several characters.
    """
    if not any(len(prefix) == 2 and is_unspaced(prefix[0]) for prefix in prefixes):
        return []
    characters = enumerate(map(normalize_text, text[start:end]), start)
    return [
        MatchedWord(place, place + 1, (character + PREFIX_SIGN,))
        for place, character in characters
        if character + PREFIX_SIGN in prefixes
    ]
