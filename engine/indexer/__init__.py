"""The write path: documents to segments, segments to a new generation.

Start with `index_writer`: it turns documents into encoded batches (`batches`) and passes them, and other changes,
to the partitions of the index, which are shards, or one; `new_shards` writes those of a build. In a
`partition_writer`, `collected_changes` holds additions, deletions and changed metadata until a commit,
`segments` writes and merges segments, `commits` makes the next generation visible, or undoes it. In the background
`merge_policy` selects segments to merge and `merge_scheduler` decides when. `build_folder` locks the folder of a
build.
"""
