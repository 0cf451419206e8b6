"""The write path: documents to segments, segments to a new generation.

Start with `index_writer`, which collects additions and deletions; `document_encoder` encodes documents on several
threads, `segment_builder` writes a segment, `committer` commits. Merging: `merge_policy` chooses segments,
`merge_scheduler` decides when, `segment_merger` merges. `graphs` writes HNSW graphs when requested.

May import: every package of the engine except `search`, `index` and `cli`.
"""
