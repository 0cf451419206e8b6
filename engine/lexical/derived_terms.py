"""Terms of queries that no dictionary has: prefixes, phrases and groups of synonyms, and their postings.

The dictionary has stems. The terms that begin with a prefix are found there; a word that begins with it may also
have a shorter stem (``internat*`` and ``international``, whose stem is ``intern``). Such stems are nearly always
the beginning of the prefix, perhaps with another last letter: in English .998 of those of all words of cranfield
and 8,000 paragraphs of squad, for all their prefixes. The texts of the documents with these stems are read, and
their words compared. Those of documents with all terms of a phrase are read, too, since postings have no
positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial, reduce

import numpy as np

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.analysis.auto_analyzer import ALTERNATIVE_SIGN, cached_analyzer
from quarry.engine.analysis.phrases import PHRASE_SIGN, Phrase
from quarry.engine.analysis.synonyms import alternatives_of
from quarry.engine.analysis.words import is_unspaced, normalize_word, split_compound, split_words
from quarry.engine.documents.document import full_text, passage_text, searchable_texts
from quarry.formats.arrays import BoolArray, Int64Array, UInt8Array, UInt32Array
from quarry.formats.container.cancellation import stop_if_cancelled
from quarry.formats.errors import CorruptFile
from quarry.formats.manifest import IndexSettings
from quarry.formats.postings.elias_fano import Postings
from quarry.formats.postings.postings import PostingsReader
from quarry.formats.segment import SegmentReader
from quarry.formats.snapshot import OpenSegment

__all__ = ["PREFIX_SIGN", "DerivedTerms", "TextReader", "WordPrefixes", "derived_terms", "is_derived"]

PREFIX_SIGN = "*"  # at the end of the name of a prefix among the terms of a query; no term has one

TextReader = Callable[[Int64Array], Iterable[Sequence[str]]]
"""Returns the text of each passage of a segment, with the title, and texts that count besides, given ordinals."""

_LAST_LETTERS = ("", "e", "i", "l", "y")  # with which stems of English end instead of a suffix
_MIN_STEM = 2
_MAX_READ = 64  # documents of a segment, of each kind, in which words are counted
_MAX_CHARACTER_BYTES = 4  # in UTF-8


def is_derived(name: str) -> bool:
    """Return whether no dictionary has a term, because it is a prefix, a phrase or a group."""
    return name.endswith(PREFIX_SIGN) or name.startswith(PHRASE_SIGN) or ALTERNATIVE_SIGN in name


class DerivedTerms:
    """Finds the live documents of a segment that have a prefix, a phrase or a group of synonyms; thread-safe.

    Args:
        reader: the segment's postings.
        deleted: (reader.n_docs,) bool; None: nothing is deleted.
        texts: reads texts of the segment.
        analyzer: the analyzer of the index.
    """

    def __init__(
        self, reader: PostingsReader, deleted: BoolArray | None, texts: TextReader, analyzer: Analyzer
    ) -> None:
        self._reader = reader
        self._deleted = deleted
        self._texts = texts
        self._analyzer = analyzer

    def find(self, name: str) -> Postings:
        """Return the documents with a prefix, a phrase or a group, given its name with the sign.

        Raises:
            FormatError: the segment is damaged.
        """
        if name.startswith(PHRASE_SIGN):
            return self._find_phrase(name.removeprefix(PHRASE_SIGN))
        if name.endswith(PREFIX_SIGN):
            return self.find_prefix(name.removesuffix(PREFIX_SIGN))
        totals: UInt32Array = np.zeros(self._reader.n_docs, np.uint32)
        for terms in alternatives_of(name):
            postings = self._with_all(terms)
            totals[postings.docs] += postings.frequencies
        return self._live(totals)

    def _find_phrase(self, text: str) -> Postings:
        """Return the documents with a phrase, all of frequency 1; none for one without terms."""
        phrase = Phrase(text, self._analyzer)
        found = self._any_of(self._with_all(terms).docs for terms in phrase.alternatives)
        if not phrase.is_term:
            found = found[[phrase.occurs_in(text) for text, *_ in self._texts(found)]]
        return Postings(found.astype(np.uint32), np.ones(len(found), np.uint32))

    def _with_all(self, terms: Iterable[str]) -> Postings:
        """Return the documents with all of some terms, as often as they have each; deleted ones included."""
        first, *others = sorted(terms, key=self._reader.document_frequency)
        postings = self._reader.postings(first)
        for other in map(self._reader.postings, others):
            stop_if_cancelled()
            docs, left, right = np.intersect1d(postings.docs, other.docs, True, return_indices=True)
            postings = Postings(docs, np.minimum(postings.frequencies[left], other.frequencies[right]))
        return postings

    def _any_of(self, several: Iterable[UInt32Array]) -> Int64Array:
        """Return the live documents of some postings: (n,) int64, ascending."""
        flags = np.zeros(self._reader.n_docs, bool)
        for docs in several:
            stop_if_cancelled()
            flags[docs] = True
        if self._deleted is not None:
            flags &= ~self._deleted
        return np.flatnonzero(flags)

    def _live(self, totals: UInt32Array) -> Postings:
        """Return the live documents whose frequency, of (n_docs,) uint32, is not 0."""
        if self._deleted is not None:
            totals[self._deleted] = 0
        found = np.flatnonzero(totals)
        return Postings(found.astype(np.uint32), totals[found])

    def find_prefix(self, prefix: str) -> Postings:
        """Return the documents with a term or a word that begins with a prefix.

        A single character of a script without spaces is also found inside of runs, and at their end. Frequencies
        are numbers of terms and of further words with the prefix.

        Args:
            prefix: case-folded; see `quarry.engine.analysis.analyzer.Analyzer.prefix`.

        Raises:
            FormatError: the segment is damaged.
        """
        reader = self._reader
        totals: UInt32Array = np.zeros(reader.n_docs, np.uint32)
        for batch in reader.batches_with_prefix(prefix):
            stop_if_cancelled()
            np.add.at(totals, batch.postings.docs, batch.postings.frequencies)
        if len(prefix) == 1 and is_unspaced(prefix):
            totals = np.maximum(totals, self._count_bigrams_ending_with(prefix))
        docs = self._any_of(reader.postings(stem).docs for stem in _shorter_stems(prefix, self._analyzer))
        counted = _Words(prefix, self._analyzer)
        for doc, texts in zip(docs.tolist(), self._texts(docs), strict=True):
            totals[doc] += sum(map(counted.count, texts))
        return self._live(totals)

    def count_completions(self, word: str) -> Counter[str]:
        """Count in how many documents there are the words that begin with one, in lower case.

        Up to 64 documents are read with a term that begins so, 64 with a shorter stem of such words, and 64 with
        the term of the word itself. A part of a compound is a word too.

        Args:
            word: the raw word, with terms, see `quarry.engine.search.query.unfinished_word`.

        Raises:
            FormatError: the segment is damaged.
        """
        prefix, reader = self._analyzer.prefix(word) or word, self._reader
        own = (each.terms_of_word(word)[:1] for each in self._analyzer.members)
        same = (reader.postings(term).docs for terms in own for term in terms)
        begun = (batch.postings.docs for batch in reader.batches_with_prefix(prefix))
        shorter = (reader.postings(stem).docs for stem in _shorter_stems(prefix, self._analyzer))
        docs = reduce(np.union1d, (_sample(self._any_of(each)) for each in (same, begun, shorter)))
        forms: dict[str, set[str]] = {}
        counts: Counter[str] = Counter()
        for text, *_ in self._texts(docs):
            stop_if_cancelled()
            words = set(split_words(text))
            for each in words.difference(forms):
                forms[each] = set() if _is_other(each, prefix) else self._begun(each, prefix)
            counts.update(set[str]().union(*map(forms.__getitem__, words)))
        return counts

    def _begun(self, word: str, prefix: str) -> set[str]:
        """Return those of a raw word and its parts that begin with a prefix, in lower case."""
        whole = normalize_word(word)
        forms = (whole, *split_compound(whole)[1])
        return {form.lower() for form in forms if (self._analyzer.prefix(form) or "").startswith(prefix)}

    def _count_bigrams_ending_with(self, character: str) -> UInt32Array:
        """Return how many bigrams of each document end with a character, (n_docs,) uint32.

        Only at the end of a run does a character not begin a bigram.
        """
        totals: UInt32Array = np.zeros(self._reader.n_docs, np.uint32)
        for bigram in self._bigrams.ending_with(character):
            stop_if_cancelled()
            postings = self._reader.postings(bigram)
            totals[postings.docs] += postings.frequencies
        return totals

    @cached_property
    def _bigrams(self) -> _Bigrams:
        return _Bigrams(self._reader)


def _sample(docs: Int64Array) -> Int64Array:
    """Return up to `_MAX_READ` of some documents, evenly spaced."""
    return docs[:: -(-len(docs) // _MAX_READ) or 1]


def derived_terms(segment: OpenSegment, settings: IndexSettings) -> DerivedTerms:
    """Return what finds the live documents of a segment that have a derived term, also in searchable fields."""
    texts = partial(_passage_texts, segment.reader, settings)
    analyzer = cached_analyzer(settings.analysis, settings.analysis_rules)
    return DerivedTerms(segment.reader.postings, segment.deleted_passages, texts, analyzer)


def _passage_texts(
    reader: SegmentReader, settings: IndexSettings, passages: Int64Array
) -> Iterator[Sequence[str]]:
    documents = reader.passages.documents_of(passages)
    extents = reader.passages.extents_of(passages)
    ids = reader.ids.read(documents) if "id" in settings.searchable else [""] * len(documents)
    for extent, doc_id, stored in zip(extents, ids, reader.documents.read(documents), strict=True):
        text, more = passage_text(stored.title, full_text(stored.title, stored.text), extent), []
        if settings.searchable or settings.field_weights:
            first, others = searchable_texts(doc_id, stored.title, stored.metadata, settings, 2)
            fields, *more = others if extent[0] else first
            text += "\n" + fields
        yield text, *more


class WordPrefixes(dict[str, tuple[str, ...]]):
    """Maps a word to those of some prefixes that it, one of its parts or a stem of them begins with.

    Words are computed when they are first looked up, and remembered. A run of a script without spaces has a prefix
    of one character wherever it has the character. No stop word begins with a prefix.

    Args:
        prefixes: case-folded; see `quarry.engine.analysis.analyzer.Analyzer.prefix`.
        analyzer: the analyzer of the index.
    """

    def __init__(self, prefixes: Sequence[str], analyzer: Analyzer) -> None:
        super().__init__()
        self._prefixes = prefixes
        self._characters = {each for each in prefixes if len(each) == 1 and is_unspaced(each)}
        self._beginnings = tuple(each for each in prefixes if each not in self._characters)
        self._analyzer = analyzer

    def __missing__(self, text: str) -> tuple[str, ...]:
        begun: set[str] = set()
        for word in split_words(text):  # in normal form
            begun |= self._characters.intersection(word)
            for form in self._analyzer.forms(word):
                if form.startswith(self._beginnings):
                    begun |= {beginning for beginning in self._beginnings if form.startswith(beginning)}
        prefixes = self[text] = tuple(prefix for prefix in self._prefixes if prefix in begun)
        return prefixes


class _Bigrams:
    """The bigrams of a segment in scripts without spaces, by their last character: four bytes for each.

    The dictionary, which is in the order of first characters, is read once from the first term to the last.

    Raises:
        FormatError: the segment is damaged.
    """

    def __init__(self, reader: PostingsReader) -> None:
        try:
            parts = [np.empty((0, 2), np.uint32), *map(_read_bigrams, reader.term_rows())]
        except UnicodeDecodeError as error:
            invalid = error.object[error.start : error.end]
            raise CorruptFile("terms that are not UTF-8", path=reader.path, actual=invalid) from error
        bigrams = np.concatenate(parts)
        bigrams = bigrams[np.argsort(bigrams[:, 1], kind="stable")]
        self._firsts = bigrams[:, 0].copy()
        self._lasts, starts = np.unique(bigrams[:, 1], return_index=True)
        self._bounds = np.append(starts, len(bigrams))

    def ending_with(self, character: str) -> list[str]:
        """Return those that end with a character, ascending."""
        place = int(np.searchsorted(self._lasts, ord(character)))
        if place == len(self._lasts) or self._lasts[place] != ord(character):
            return []
        firsts = self._firsts[self._bounds[place] : self._bounds[place + 1]]
        return [chr(first) + character for first in firsts.tolist()]


def _read_bigrams(rows: UInt8Array) -> UInt32Array:
    """Return the code points of those terms that are two characters of a script without spaces, (n, 2).

    Args:
        rows: the rows of terms, see `quarry.formats.postings.term_blocks`.
    """
    width = min(rows.shape[1] - 1, 2 * _MAX_CHARACTER_BYTES)
    is_short = rows[:, -1] <= width
    texts, sizes = rows[is_short, :width], rows[is_short, -1]
    is_inside = np.arange(width) < sizes[:, np.newaxis]
    n_characters = np.count_nonzero(is_inside & (texts & 0xC0 != 0x80), axis=1)  # bytes that begin one in UTF-8
    is_pair = n_characters == 2
    data = texts[is_pair][is_inside[is_pair]].tobytes().decode("utf-8", "surrogatepass")
    pairs = np.frombuffer(data.encode("utf-32-le", "surrogatepass"), "<u4").reshape(-1, 2).astype(np.uint32)
    firsts, numbers = np.unique(pairs[:, 0], return_inverse=True)
    is_unspaced_first = np.array([is_unspaced(chr(first)) for first in firsts.tolist()], bool)
    bigrams: UInt32Array = pairs[is_unspaced_first[numbers]]
    return bigrams


def _shorter_stems(prefix: str, analyzer: Analyzer) -> set[str]:
    """Return terms that words with a prefix may have, though they do not begin with it."""
    heads = [prefix[:end] for end in range(_MIN_STEM, len(prefix) + 1)]
    stems = {head + letter for head in heads for letter in _LAST_LETTERS}
    stems.update(stem for each in analyzer.members for stem in each.stems([prefix]))
    return {stem for stem in stems if not stem.startswith(prefix)}


class _Words(dict[str, int]):
    """Remembers for each word of the texts 1 if it begins with a prefix, and none of its terms does; else 0.

    The language of a text is not known, so one in which no term does is enough.
    """

    def __init__(self, prefix: str, analyzer: Analyzer) -> None:
        super().__init__()
        self._prefix = prefix
        self._analyzer = analyzer
        self._begun_by = WordPrefixes([prefix], analyzer)

    def count(self, text: str) -> int:
        """Return the number of such words of a text."""
        return sum(map(self.__getitem__, split_words(text)))

    def __missing__(self, word: str) -> int:
        if _is_other(word, self._prefix):
            self[word] = 0
            return 0
        has_term = all(
            any(term.startswith(self._prefix) for term in each.terms_of_word(word))
            for each in self._analyzer.members
        )
        self[word] = counts = int(not has_term and bool(self._begun_by[word]))
        return counts


def _is_other(word: str, prefix: str) -> bool:
    """Return whether neither a raw word nor a part of it begins with a prefix, as far as is seen at once.

    Only its stem may, which is then a term that begins with the prefix.
    """
    return word.isascii() and word.isalnum() and prefix not in word.lower()
