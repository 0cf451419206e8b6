"""The write path: documents to segments, segments to a new generation.

Start with `index_writer`: `batches` turns documents into encoded batches, `collected_changes` holds them,
deletions and `metadata_updates` until a commit, `segments` writes and merges segments, `commits` makes the
next generation visible, or undoes it. In the background, `merge_policy` selects segments to merge and
`merge_scheduler` decides when. `build_folder` locks the folder of a build.
"""
