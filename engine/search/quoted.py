"""Searches for texts with quoted phrases: each query is searched among the documents with its own phrases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from quarry.engine.filtering.filter import Condition, HasPhrase, join_conditions
from quarry.engine.lexical.query_syntax import find_phrases
from quarry.engine.options import SearchOptions
from quarry.engine.scoring.query_vectors import Vectors
from quarry.engine.search.hits.hits import Hits
from quarry.formats.manifest import IndexSettings

__all__ = ["phrase_condition", "search_quoted"]

Search = Callable[[list[str], SearchOptions, Vectors | None], list[Hits]]


@dataclass(frozen=True, kw_only=True)
class _QuotedOptions(SearchOptions):
    """Options of a search among the documents with some phrases.

    Attributes:
        phrases: the condition that they have them.
    """

    phrases: Condition | None = None

    def _conditions(self) -> list[Condition]:
        assert self.phrases is not None
        return [*super()._conditions(), self.phrases]


def phrase_condition(text: str, settings: IndexSettings) -> Condition | None:
    """Return the condition that documents have the quoted phrases of a text; None if there are none."""
    each = [
        HasPhrase(phrase, settings.language, settings.analysis_rules)
        for phrase in dict.fromkeys(find_phrases(text))
    ]
    return join_conditions(each) if each else None


def search_quoted(
    search: Search,
    texts: list[str],
    options: SearchOptions,
    vectors: Vectors | None,
    settings: IndexSettings,
) -> list[Hits]:
    """Return the hits of each query; queries with the same phrases, or none, are searched together.

    Args:
        search: returns the hits of queries that have the same options.
        texts: of the queries.
        options: of all queries.
        vectors: (n, dim) of the queries; None: there are texts alone.
        settings: of the index.
    """
    if not any(map(find_phrases, texts)):
        return search(texts, options, vectors)
    groups: dict[Condition | None, list[int]] = {}
    for number, text in enumerate(texts):
        groups.setdefault(phrase_condition(text, settings), []).append(number)
    found: dict[int, Hits] = {}
    for phrases, numbers in groups.items():
        own = options if phrases is None else _restricted(options, phrases)
        hits = search([texts[number] for number in numbers], own, None if vectors is None else vectors[numbers])
        found |= zip(numbers, hits, strict=True)
    return [found[number] for number in range(len(texts))]


def _restricted(options: SearchOptions, phrases: Condition) -> SearchOptions:
    given = {each.name: getattr(options, each.name) for each in fields(SearchOptions)}
    return _QuotedOptions(**given, phrases=phrases)
