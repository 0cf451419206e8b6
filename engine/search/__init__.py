"""The read path: from queries to hits.

Start with `query`: it validates what a caller gave, and a `Query` is what one search is about. `candidates` finds
the candidates of one partition by vectors and by terms, and ranks those of all by `fusion`. `searcher` is
dense search over all segments: stage 1 in backends, stage 2 in `quarry.engine.scoring.aggregation`. `hits` makes
what a search returns, with the `passages` of documents, and `reranker` reorders it with a cross-encoder.
`relevance` turns scores into probabilities by those of random documents, and `similar` searches by the vectors of
documents.
"""
