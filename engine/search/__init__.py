"""The read path: from validated queries to hits.

Start with `retriever`, which gets the `candidates` of one partition by vectors and by terms; `merging` ranks those
of all partitions, whose scores `fusion` combines. `searcher` is dense search over all segments: stage 1 in
backends, stage 2 in `rescorer`. `hits` makes what a search returns, and `reranker` reorders it with a
cross-encoder. `relevance` turns scores into probabilities by those of random documents, `similar` searches by the
vectors of documents, and `request` validates what was requested. `id_order` orders documents with equal scores.
"""
