"""One open generation of an index.

Start with `view`: a generation, searched as a whole. It asks partitions (`partition`): an index without shards is
one, an index with shards has several, which `gathering` asks at once, recording those that do not answer; they may
also be in other processes. `collection` adds up what BM25 needs to know of the documents of all of them.

`current` holds the current view and follows commits, `resources` has what all views share, `memory` divides the
memory limit, `statistics` and `verification` implement ``stats`` and ``verify``.
"""
