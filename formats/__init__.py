"""Bytes on disk: every file of an index, its writer and its reader.

``SPEC.md`` in this folder is the specification of the bytes. Nothing in this package knows what a text
encoder or a search is, and nothing in a file is trusted before it has been checked.
"""
