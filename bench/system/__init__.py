"""Measurements of the system: the main figures, ingest, changes to an index, servers, shards.

`figures` measures the main figures with `probes`, each in a new process; `ingest` measures documents with given
vectors, `durability` changes to an index, `serving` a server under load, `shards` builds and searches of several
shards.
"""
