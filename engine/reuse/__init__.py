"""Indexes made out of the files of others: snapshots, and segments that are taken over.

Start with `snapshot`, which copies the files that `generation_files` has open.
"""
