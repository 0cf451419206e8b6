"""What a search is about: the queries that a caller gave, and what is known about each.

Operators in the text of a query are phrases in quotation marks, and prefixes before an asterisk:

* ``"exact phrase"``: a quotation mark (the ASCII one, not the typographic ones) begins a phrase before a word and
  ends it after one. Its words are words of the query like others, and the phrase is one more term, which raises
  the documents that have it; with ``operators=True`` documents must have it instead. A quotation mark without a
  counterpart, or after a digit or letter (``a 5" pipe``), is not an operator.
* ``prefix*``: an asterisk directly after a word of two characters or more, and before a space, punctuation or the
  end. The prefix is one term of the query. Any other asterisk is not an operator, also inside of a phrase.

With ``operators=True`` there are also conditions, at the beginning of the text or after a space. Words and phrases
are those of a hit: of a document, or with ``unit="passage"`` of the passage.

* ``-word``, ``-"exact phrase"``: documents must not have it; ``+word``: they must, and it is a word of the query.
* ``field:value``, ``field:"a value"``: a field of the metadata, or ``id`` or ``title``, must have the value, a
  text or the number or bool that it is written as; ``-field:value``: it must not.

Characters that are not an operator separate words, as in documents. A single character of a script without spaces
between words is a prefix in every query: documents have only the bigrams with it, unless it is alone there too.

Of all prefixes of a query the first 64 different ones count, single characters last: each is a search of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Self

import numpy as np

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.analysis.auto_analyzer import cached_analyzer
from quarry.engine.analysis.phrases import PHRASE_SIGN, open_phrase
from quarry.engine.analysis.positions import WordPosition, locate_words
from quarry.engine.analysis.synonyms import Synonyms, without_groups
from quarry.engine.analysis.words import is_unspaced, split_words
from quarry.engine.arguments import iterator_of
from quarry.engine.documents.mistaken_sources import rows_of_table
from quarry.engine.filtering.filter import (
    Comparison,
    Condition,
    HasId,
    HasPhrase,
    Negation,
    join_conditions,
    parse_filter,
)
from quarry.engine.lexical.bm25 import Bm25, Bm25Query
from quarry.engine.lexical.close_terms import Expansion, correct_text
from quarry.engine.lexical.derived_terms import PREFIX_SIGN
from quarry.engine.options import SearchKeywords, SearchOptions
from quarry.engine.scoring.query_vectors import Queries, Vectors, as_array, query_vectors, to_host_vectors
from quarry.engine.search.passages import QueryWords
from quarry.formats.errors import InvalidQuery, InvalidSetting
from quarry.formats.manifest import IndexSettings
from quarry.formats.metadata.values import to_scalar

__all__ = [
    "MAX_PREFIXES",
    "ParsedQuery",
    "Query",
    "SearchRequest",
    "browses",
    "filter_of",
    "find_phrases",
    "give_vectors",
    "join_vectors",
    "parse_query",
    "parse_words",
    "unfinished_word",
]

MAX_PREFIXES = 64
MAX_PHRASES = 16  # that are terms; each is searched for in texts
_CONDITION = re.compile(
    r"""(?<!\S)(?:(?P<sign>[+-])(?:(?P<field>[^\W\d][\w.]*):)?|(?P<only_field>[^\W\d][\w.]*):)"""
    r"""(?P<value>"[^"\w]*+\w[^"]*+"(?!\w)|(?=[^\s"]*\w)[^\s"]+(?!\S))"""
)
_NUMBERS = re.compile(r"true|false|-?(?:0|[1-9]\d{0,17})(?:\.\d{1,20})?")
_QUOTED = re.compile(r'(?<!\w)"([^"\w]*+\w[^"]*+)"(?!\w)')


@dataclass(frozen=True, eq=False)
class SearchRequest:
    """The queries of a search.

    Attributes:
        texts: the texts of the queries; None: there are vectors alone.
        vectors: (n, dim) float32, of the queries; None: there are texts alone.
        is_single: whether there is one query, whose hits are returned by themselves.
    """

    texts: list[str] | None
    vectors: Vectors | None
    is_single: bool

    @classmethod
    def of(cls, queries: object, vector: object, dim: int) -> Self:
        """Check the queries that a caller gave.

        Args:
            queries: a text, several, or None.
            vector: (dim,) or (n, dim) numbers, or None.
            dim: length of a vector.

        Raises:
            InvalidQuery: there is neither, a query is not valid, or there are not as many vectors as texts.
        """
        if vector is None:
            if queries is None:
                expected = "queries, a vector, both, or like; without them filter, sort, boost or group_by"
                raise InvalidQuery("there is nothing to search for", expected=expected)
            return cls(_query_texts(queries), None, isinstance(queries, str))
        array = as_array(vector)
        is_single = array.ndim == 1
        texts = None if queries is None else _query_texts(queries)
        if texts is not None and is_single != isinstance(queries, str):
            expected = f"shape ({dim},)" if isinstance(queries, str) else f"shape ({len(texts)}, {dim})"
            raise InvalidQuery("vector does not fit the texts", expected=expected, actual=f"shape {array.shape}")
        vectors = query_vectors(array[np.newaxis] if is_single else array, dim)
        if texts is not None and len(texts) != len(vectors):
            raise InvalidQuery("not as many vectors as texts", expected=len(texts), actual=len(vectors))
        return cls(texts, vectors, is_single)

    def options(self, k: int, given: SearchKeywords, *, has_encoder: bool) -> SearchOptions:
        """Return the options of the search, in the mode that the queries allow for if none is given.

        Raises:
            InvalidSetting: an option is not valid, or the mode does not fit the queries.
        """
        if "mode" not in given and (self.texts is None or (self.vectors is None and not has_encoder)):
            given = {**given, "mode": "dense" if self.texts is None else "lexical"}
        options = SearchOptions.of(k, given)
        if self.texts is None and (options.mode != "dense" or options.rerank):
            raise InvalidSetting(
                "a vector without a text is searched in dense mode without reranking",
                expected="mode dense and no rerank, or a text too",
                actual=f"mode {options.mode}" + (f", rerank {options.rerank}" if options.rerank else ""),
                setting="rerank" if options.mode == "dense" else "mode",
            )
        if self.vectors is not None and options.mode == "lexical":
            expected, actual = "mode dense or hybrid", "vector"
            raise InvalidSetting("lexical mode uses no vector", expected=expected, actual=actual, setting="mode")
        return options


def _query_texts(queries: object) -> list[str]:
    """Return one text, or several, as a list.

    Raises:
        InvalidQuery: `queries` is neither a text nor several; the message has the number of a query that is not.
    """
    if isinstance(queries, str):
        return [queries]
    is_other = isinstance(queries, bytes | bytearray | Mapping) or rows_of_table(queries)
    given = None if is_other else iterator_of(queries)
    if given is None:
        raise InvalidQuery("queries are not texts", expected="a str or several", actual=type(queries).__name__)
    texts = []
    for number, text in enumerate(given):
        if not isinstance(text, str):
            raise InvalidQuery(f"query {number} is not a text", expected="str", actual=type(text).__name__)
        texts.append(text)
    return texts


class Query:
    """One query of a search; what is known about it is computed when it is first needed, and once.

    It can be pickled: with its vector in main memory, and with what was computed before.

    Args:
        text: the text of the query; None: it is a vector alone.
        settings: the settings of the index.
        condition: that documents have to satisfy; None: all may be found.
        operators: whether the text has operators; None: phrases alone, as terms.
        has_prefixes: whether there are prefixes besides, if `operators` is None.
        prefix: what words begin with that are one more term; None: there is none.
        typos: whether terms that no document has are replaced by close ones.
        browses: whether the text is empty, and all documents that satisfy the condition are found.
        in_passages: whether passages, and not documents, must have the words and phrases of conditions.
        synonyms: of the index; None: there are none.

    Attributes:
        text: the text of the query, without conditions; None: it is a vector alone.
        analysis: see `quarry.formats.manifest.IndexSettings`.
        browses: see above.
        condition: that documents must satisfy: the filter, and the conditions of the text; None: all may be found.
        passage_phrases: texts that passages must have, with True, or must not have, with False.
        batch: (n, stored_dim), the vectors of this and other queries, as the index compares them; None: there are
            none, or they are not known here.
        number: the number of its vector in the batch.
    """

    def __init__(  # noqa: PLR0913  # keywords, each with a default
        self,
        text: str | None,
        settings: IndexSettings,
        condition: Condition | None = None,
        *,
        operators: bool | None = False,
        has_prefixes: bool = False,
        prefix: str | None = None,
        typos: bool = True,
        browses: bool = False,
        in_passages: bool = False,
        synonyms: Synonyms | None = None,
    ) -> None:
        self.text = text
        self.browses = browses
        self.batch: Queries | None = None
        self.number = 0
        self.analysis, self._rules = settings.analysis, settings.analysis_rules
        self._operators, self._has_prefixes = operators, has_prefixes
        self._prefix = prefix
        self._searchable, self._synonyms = settings.searchable, synonyms
        self._has_groups = synonyms is not None or ":" in settings.analysis
        self.condition = condition
        self.passage_phrases: Sequence[tuple[str, bool]] = ()
        if operators and text is not None:
            self._set_conditions(text, in_passages)
        self._typos = typos
        self._expansions: Mapping[str, Sequence[Expansion]] | None = None

    def __getstate__(self) -> dict[str, object]:
        if self._synonyms is not None and self.text is not None:
            self.__dict__["parsed"] = self.parsed  # which needs no synonyms any more
        return {**self.__dict__, "vector": self.vector, "batch": None, "_synonyms": None}

    @cached_property
    def vector(self) -> Vectors | None:
        """(stored_dim,) float32; None: the query has none. Vectors on a device are copied and validated here.

        Raises:
            InvalidQuery: a number of the batch is not finite, or above 1e18.
        """
        return None if self.batch is None else to_host_vectors(self.batch)[self.number]

    def _set_conditions(self, text: str, in_passages: bool) -> None:
        """Take the conditions out of the text, and add them to those that documents or passages must satisfy."""
        phrases: list[tuple[str, bool]] = []
        conditions = [] if self.condition is None else [self.condition]
        for match in _CONDITION.finditer(text):
            value, field = match["value"].strip('"'), match["field"] or match["only_field"]
            if field is None:
                phrases.append((value, match["sign"] == "+"))
                continue
            is_number = not match["value"].startswith('"') and _NUMBERS.fullmatch(value)
            values = [value, json.loads(value)] if is_number else [value]
            equal = Comparison(field, "eq", tuple(map(to_scalar, values)))
            conditions.append(Negation(equal) if match["sign"] == "-" else equal)
        self.text = _CONDITION.sub(_without_condition, text)
        phrases += [(phrase, True) for phrase in find_phrases(self.text)]
        language, rules = self.analysis, self._rules
        phrases = [each for each in dict.fromkeys(phrases) if open_phrase(each[0], language, rules).alternatives]
        if in_passages:
            self.passage_phrases = phrases
        else:
            fields = self._searchable
            having = [(HasPhrase(each, language, rules, fields), is_wanted) for each, is_wanted in phrases]
            conditions += [each if is_wanted else Negation(each) for each, is_wanted in having]
        self.condition = join_conditions(conditions) if conditions else None

    @cached_property
    def parsed(self) -> ParsedQuery:
        """The analyzed terms of the text."""
        text = self._known_text
        phrases = () if self._operators is False else find_phrases(text)
        if self._operators:
            parsed = parse_query(text, self._analyzer, phrases)
        else:
            has_prefixes = self._has_prefixes and self._operators is None
            parsed = (parse_query if has_prefixes else parse_words)(text, self._analyzer)
            several = (phrase for phrase in dict.fromkeys(phrases) if len(split_words(phrase)) > 1)
            names = tuple(PHRASE_SIGN + phrase for phrase in islice(several, MAX_PHRASES)) if phrases else ()
            parsed = replace(parsed, quoted=names) if names else parsed
        if self._prefix is not None:
            parsed = replace(parsed, free=(*parsed.free, self._prefix + PREFIX_SIGN))
        return parsed if self._synonyms is None else replace(parsed, free=self._synonyms.apply(parsed.free))

    def expansions(self, bm25: Bm25) -> Mapping[str, Sequence[Expansion]]:
        """Return the terms that stand for mistyped ones, the likeliest first, by the latter.

        Args:
            bm25: the scorer of the collection that is searched, or of a part with the statistics of all of it.
        """
        if not self._typos:
            return {}
        if self._expansions is None:
            unchanged = (*self.parsed.quoted, *self._analyzer.stop_terms(self._known_text))
            self._expansions = bm25.find_expansions(self.parsed.terms, unchanged)
        return self._expansions

    def correct(self, bm25: Bm25) -> str:
        """Return the text with words corrected that no document has; see `quarry.engine.lexical.close_terms`."""
        expansions = self.expansions(bm25)
        return correct_text(self._known_text, expansions, self._analyzer) if expansions else self._known_text

    def look_up(self, bm25: Bm25) -> Bm25Query:
        """Return the terms with their postings, which take memory and are therefore not kept here."""
        return bm25.query(self.parsed.terms, self.expansions(bm25))

    def words(self, terms: Bm25Query | None) -> QueryWords | None:
        """Return the words of the text, to find them in documents; None without a text.

        Args:
            terms: what `look_up` returned, by which terms are weighted by rarity. None: all terms weigh the same,
                and the text has no operators.
        """
        if self.text is None:
            return None
        if terms is None:
            weights: Mapping[str, float] = dict.fromkeys(self._analyzer.terms(self.text), 1.0)
            weights = without_groups(weights) if self._has_groups else weights
            return QueryWords(weights, self.analysis, self._rules)
        parsed = self.parsed
        quoted = frozenset(parsed.quoted) - {*parsed.free, *terms.mistyped}
        weights = without_groups(terms.idf) if self._has_groups else terms.idf
        return QueryWords(weights, self.analysis, self._rules, quoted, parsed.phrases)

    @property
    def _known_text(self) -> str:
        assert self.text is not None
        return self.text

    @property
    def _analyzer(self) -> Analyzer:
        return cached_analyzer(self.analysis, self._rules)


def give_vectors(queries: Sequence[Query], vectors: Queries) -> None:
    """Give each query its vector, (n, stored_dim), which on a device is copied when it is first needed."""
    for number, query in enumerate(queries):
        query.batch, query.number = vectors, number


def join_vectors(queries: Sequence[Query]) -> Queries:
    """Return the vectors of queries of one search: (n, stored_dim), those of a whole batch as they are."""
    batch = queries[0].batch
    if batch is not None and len(batch) == len(queries):
        return batch
    return np.stack([query.vector for query in queries if query.vector is not None])


def filter_of(options: SearchOptions) -> Condition | None:
    """Return the filter of a search, which leaves out the document of `like`; None: all documents may be found.

    Raises:
        InvalidFilter: the filter is malformed.
    """
    only: list[Condition] = [] if options.filter is None else [parse_filter(options.filter)]
    if options.like is not None:
        only.append(Negation(HasId(options.like)))
    return join_conditions(only) if only else None


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """The terms of a query text.

    Attributes:
        free: the terms outside of phrases, and the prefixes, with `PREFIX_SIGN`; repeated as often as they occur.
        quoted: the terms of phrases that documents must have, or the phrases themselves, with `PHRASE_SIGN`.
        phrases: the texts of phrases that documents must have.
    """

    free: tuple[str, ...]
    quoted: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()

    @property
    def terms(self) -> tuple[str, ...]:
        """All terms."""
        return self.free + self.quoted


def browses(text: str, options: SearchOptions) -> bool:
    """Return whether a text has no words, and documents are found by conditions, a filter or an order alone."""
    is_limited = options.filter is not None or options.is_arranged
    if options.operators and _CONDITION.search(text):
        text, is_limited = _CONDITION.sub(_without_condition, text), True
    return is_limited and not text.strip()


def unfinished_word(text: str, analyzer: Analyzer, *, operators: bool) -> WordPosition | None:
    """Return the word that a text ends with, if it may be the beginning of another one.

    None for a stop word, one letter, a script without spaces, whose words are found by any part, or a condition.
    """
    *_, word = (None, *locate_words(text))
    if word is None or word.end < len(text) or is_unspaced(word.word) or analyzer.prefix(word.word) is None:
        return None
    if operators and any(match.end() == len(text) for match in _CONDITION.finditer(text)):
        return None
    return word if analyzer.of_query(text).terms_of_word(word.word) else None


def _without_condition(match: re.Match[str]) -> str:
    """Return the words that a condition adds to the text."""
    is_word = match["sign"] == "+" and match["field"] is None
    return match["value"] if is_word else " "


def find_phrases(text: str) -> tuple[str, ...]:
    """Return the phrases of a query text."""
    return tuple(_QUOTED.findall(text)) if '"' in text else ()


def parse_query(text: str, analyzer: Analyzer, phrases: Sequence[str] = ()) -> ParsedQuery:
    """Parse a query text with prefixes.

    Args:
        text: the text.
        analyzer: the analyzer of the index.
        phrases: its phrases, if documents must have them.
    """
    if phrases:
        text = _QUOTED.sub(" ", text)
    prefixes, text = _find_prefixes(text, analyzer)
    characters, text = _find_characters(text)
    quoted = tuple(term for phrase in phrases for term in analyzer.terms(phrase))
    return ParsedQuery((*analyzer.terms(text), *_take_first(prefixes + characters)), quoted, tuple(phrases))


def parse_words(text: str, analyzer: Analyzer) -> ParsedQuery:
    """Parse a query text without operators."""
    characters, text = _find_characters(text)
    return ParsedQuery((*analyzer.terms(text), *_take_first(characters)))


def _take_first(prefixes: list[str]) -> list[str]:
    """Return the first `MAX_PREFIXES` different prefixes, repeated as often as they occur."""
    kept = set(islice(dict.fromkeys(prefixes), MAX_PREFIXES))
    return [prefix for prefix in prefixes if prefix in kept]


def _find_characters(text: str) -> tuple[list[str], str]:
    """Return the single characters of unspaced scripts as prefixes, and the text with blanks in their places."""
    if text.isascii():
        return [], text
    prefixes: list[str] = []
    rest = list(text)
    for word in locate_words(text):
        if len(word.word) == 1 and is_unspaced(word.word):
            prefixes.append(word.word + PREFIX_SIGN)
            rest[word.starts[0] : word.end] = " " * (word.end - word.starts[0])
    return prefixes, "".join(rest)


def _find_prefixes(text: str, analyzer: Analyzer) -> tuple[list[str], str]:
    """Return the prefixes of a text, and the text with blanks in their places."""
    if PREFIX_SIGN not in text:
        return [], text
    prefixes: list[str] = []
    rest: list[str] = []
    at = 0
    for word in locate_words(text):
        start, end = word.starts[0], word.end
        if text[end : end + 1] != PREFIX_SIGN or text[start - 1 : start] == PREFIX_SIGN:
            continue
        after = text[end + 1 : end + 2]
        prefix = None if after.isalnum() or after in {"_", PREFIX_SIGN} else analyzer.prefix(word.word)
        if prefix is not None:
            prefixes.append(prefix + PREFIX_SIGN)
            rest += [text[at:start], " " * (end + 1 - start)]
            at = end + 1
    return prefixes, "".join([*rest, text[at:]])
