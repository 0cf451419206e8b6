"""Corrects mistyped words of a query text, so that its vector is that of the words that were meant.

The dictionary of an index has stems. The word that stands for a mistyped one is found among the texts within one
edit of the latter: the first one that has the stem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.analysis.edits import one_edit
from quarry.engine.lexical.close_terms import Expansion

__all__ = ["correct_text"]


def correct_text(text: str, expansions: Mapping[str, Sequence[Expansion]], analyzer: Analyzer) -> str:
    """Return a text with corrected words; a word for which none is found stays as it is.

    Args:
        text: of the query.
        expansions: the terms that stand for mistyped ones, the likeliest first, by the latter.
        analyzer: of the index.
    """
    parts: list[str] = []
    at = 0
    for start, end, terms in analyzer.located_terms(text):
        expansion = expansions.get(terms[0]) if len(terms) == 1 else None
        word = _find_word(text[start:end].lower(), expansion[0].name, analyzer) if expansion else None
        if word is not None:
            parts += [text[at:start], word]
            at = end
    return "".join([*parts, text[at:]])


def _find_word(mistyped: str, term: str, analyzer: Analyzer) -> str | None:
    """Return a word within one edit of a mistyped one that has a term; None if there is none, or beyond ASCII."""
    words = list(dict.fromkeys(one_edit(mistyped)))
    return next((word for word, stem in zip(words, analyzer.stems(words), strict=True) if stem == term), None)
