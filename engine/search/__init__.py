"""The read path: stage 1, stage 2 and BM25 to hits.

Start with `hybrid`, which fuses dense and lexical candidates, and `searcher`, dense search over all segments.
`rescorer` is stage 2, `fusion` the fusion formulas, `reranker` a cross-encoder, `hits` and `explanation` what a
search returns.

May import: every package of the engine except `indexer`, `index` and `cli`.
"""
