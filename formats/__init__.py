"""Bytes on disk: every file of an index and of an exported model, its writer and its reader.

``SPEC.md`` in this folder specifies the bytes. Start with `manifest` (one generation of an index), `segment` (a
batch
of documents) and `snapshot` (one generation with all of its files open); the packages below hold their parts:
`container` (what every file is made of), `vectors`, `documents`, `postings`, `metadata`, and `bundle` (exported
models). Nothing here knows what a text encoder or a search is, and nothing in a file is trusted before it is
checked.

May import: numpy, msgpack, zstandard, xxhash; nothing else of Quarry.
"""
