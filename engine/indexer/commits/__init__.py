"""Commits: how a generation follows another, and what happens if one fails.

Start with `committer`, which decides what the next generation consists of, from the current one (`generation`),
the new segments, the `deletions` and the `metadata_updates`. `publication` makes it visible by one rename, or
undoes it; `failures` lists what a failure leads to; `garbage` deletes the files of no generation.
"""
