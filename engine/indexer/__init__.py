"""The write path: documents to segments, segments to a new generation.

Start with `index_writer`, which collects additions and deletions: `document_encoder` encodes documents on several
threads, or in the batches of `document_batches`; `segment_builder` writes a segment, `adopted_segments` joins
those that other processes wrote; `new_quantizer` trains the first quantizer of an index. `committer` decides what
the next generation consists of, from the current one (`generation`) and `deletions`; `publication` makes it
visible or undoes it; `failures` lists what a failure leads to; `garbage` deletes files. Merging: `merge_policy`
selects segments, `merge_scheduler` decides when, `segment_merger` merges. `build_folder` locks the folder of a
build, `graphs` writes HNSW graphs on request.

May import: every package of the engine except `search`, `index` and `cli`.
"""
