"""Filters: conditions on metadata, evaluated to a bitmap for each segment.

Start with `filter`, which validates a condition; `evaluation` finds the documents of a segment that satisfy it,
as flags that backends and BM25 take, and `cache` keeps recent results.
"""
