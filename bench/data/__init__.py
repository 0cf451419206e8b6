"""Collections, prepared vectors and quality measures.

`collections` reads folders in BEIR's layout and `docstrings` creates one; `prepare` encodes a collection once and
`prepared` reads the result; `query_vectors`, `synthetic`, `token_vectors` and `word_encoder` make vectors,
`recode` builds an index from stored vectors; `quality` computes
measures, and `trec_run` reads and writes run files.

May import: `bench.harness`, `quarry`.
"""
