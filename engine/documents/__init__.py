"""Documents on their way in: validated, given an id, read from files and iterables.

`document` defines a document and validates it, `reader` reads documents from iterables, JSON Lines and BEIR
folders, `lines` reads lines from plain and compressed files, `stdlib_docstrings` makes documents of the standard
library's docstrings.

May import: `quarry.formats`.
"""
