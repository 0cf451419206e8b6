"""Columnar metadata of a segment: which documents have which value at which path.

Start with `columns`, all paths of a segment; `column` writes and reads one path, `dictionary` holds
the distinct strings of a column, and `values` defines which values metadata may have.
"""
