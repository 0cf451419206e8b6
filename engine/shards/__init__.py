"""A sharded index: one index whose documents are divided among several folders, searched as one.

Start with `current_shards`, which opens the shards and follows their commits, and `view`, which searches them:
every shard returns candidates with their scores (`shard`, `candidates`), `merging` ranks them as one index would,
and `gathering` waits for shards and records those that do not answer. `collection` adds up what BM25 needs to
know of all documents. `writing` builds and changes shards, whose folders are made by `shard_folders`.
`statistics` and `verification` implement ``stats`` and ``verify``.

May import: `quarry.engine.index`, `quarry.engine.indexer`, `quarry.engine.search` and what they import.
"""
