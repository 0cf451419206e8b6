"""The write path: documents to segments, segments to a new generation.

Start with `index_writer`, which collects additions and deletions: `batches` turns documents into encoded batches,
`segments` writes and merges segments, `commits` makes the next generation visible, or undoes it. In the
background, `merge_policy` selects segments to merge and `merge_scheduler` decides when. `metadata_updates`
replaces metadata of stored documents; `build_folder` locks the folder of a build.

May import: every package of the engine except `search`, `index` and `cli`.
"""
