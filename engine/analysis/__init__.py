"""Text analysis: text to terms, for lexical search.

Start with `analyzer`, which normalizes, splits, stems and filters; `words` finds words in all scripts, and
their parts.
"""
