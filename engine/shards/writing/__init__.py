"""Changes of a sharded index: each goes to the shard that holds its document, all are committed together.

Start with `shard_writers`, which routes changes to the writers of the shards; `new_shards` is the writer of a
build, `sharded_writer` that of an open index.

May import: `quarry.engine.shards.shard_folders`, `quarry.engine.indexer` and what it imports.
"""
