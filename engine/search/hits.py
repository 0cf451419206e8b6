"""Hits: what a search returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from quarry.engine.scoring.ranking import Exactness
from quarry.engine.search.coverage import Coverage
from quarry.formats.documents.store import PackedDocument

__all__ = ["Hit", "Hits", "Match", "snippet"]


@dataclass(frozen=True, slots=True)
class Match:
    """A part of a document that made it a hit: the text whose tokens formed one centroid.

    Attributes:
        spans: (start, end) characters in the document's full text (its title, a line break, its text).
        text: what stands there, spans joined by " … ".
        score: inner product of the query and the centroid.
        weight: its share in the document's score, from 0 to 1; the weights of a document add up to 1.
    """

    spans: tuple[tuple[int, int], ...]
    text: str
    score: float
    weight: float


@dataclass(slots=True, repr=False)
class Hit:
    """A document found. It needs no open index: what it holds of the document is inflated when asked for.

    Attributes:
        id: the document's id.
        score: larger is better, always.
        matches: with ``explain=True`` the parts that matched, by falling weight; else empty.
        terms: with ``explain=True`` the query's terms (as they were analysed) that the document has, and what
            each adds to the lexical score; else empty.
        dense_score: how well the meanings match, where that was computed.
        lexical_score: how well the words match (BM25), where that was computed.
    """

    id: str
    score: float
    _document: PackedDocument = field(compare=False)
    matches: tuple[Match, ...] = ()
    terms: Mapping[str, float] = field(default_factory=dict)
    dense_score: float | None = None
    lexical_score: float | None = None

    @property
    def text(self) -> str:
        """The document's text."""
        return self._document.unpack().text

    @property
    def title(self) -> str:
        """Its title, or ""."""
        return self._document.unpack().title

    @property
    def metadata(self) -> Mapping[str, object]:
        """What was stored with it."""
        return self._document.unpack().metadata

    def to_dict(self) -> dict[str, object]:
        """All of it as plain values, for JSON."""
        return {
            "id": self.id,
            "score": self.score,
            "title": self.title,
            "text": self.text,
            "metadata": dict(self.metadata),
            "matches": [asdict(match) for match in self.matches],
            "terms": dict(self.terms),
            "dense_score": self.dense_score,
            "lexical_score": self.lexical_score,
        }

    def __repr__(self) -> str:
        title, text = snippet(self.title), snippet(self.text)  # a text may have megabytes
        return f"Hit(id={self.id!r}, score={self.score:.4f}, title={title!r}, text={text!r})"


class Hits(list[Hit]):
    """The hits of one query, best first: a list that says how much it promises.

    Attributes:
        exactness: what is known about the documents that are not in it; "exact", "exact over probed lists" or
            "approximate"; "partial" if a shard of the index did not answer.
        coverage: which shards answered; None for an index without shards.
    """

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        exactness: Exactness = Exactness.APPROXIMATE,
        coverage: Coverage | None = None,
    ) -> None:
        super().__init__(hits)
        self.exactness = exactness
        self.coverage = coverage


def snippet(text: str, n_characters: int = 88) -> str:
    """Put the beginning of a text on one line.

    White space becomes single spaces; characters that a terminal would act upon are left out, because the
    text is a stranger's.
    """
    # A bounded part is enough: a text of megabytes need not be split into words for one line.
    words = text[: 8 * n_characters].split()
    line = "".join(character for character in " ".join(words) if character.isprintable())
    return line if len(line) <= n_characters else line[: n_characters - 3].rstrip() + "..."
