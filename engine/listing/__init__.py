"""The documents of an open index one after another, and counts of the values in their metadata.

Start with `documents`, which reads ids or whole documents in the order in which they are stored; `facets` counts
values at a path of the metadata.
"""
