"""The read path: from validated queries to hits.

Start with `retriever`, which gets candidates by vectors and by terms and fuses their scores. `searcher` is dense
search over all segments: stage 1 in backends, stage 2 in `rescorer`. `hit_builder` turns
answers into `hits`, and `reranker` is a cross-encoder.

May import: every package of the engine except `indexer`, `index` and `cli`.
"""
