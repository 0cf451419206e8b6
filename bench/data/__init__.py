"""Collections, prepared vectors and quality measures.

`collections` reads folders in BEIR's layout and `docstrings` creates one; `prepare` encodes a collection once and
`prepared` reads the result; `query_vectors` and `synthetic` make vectors, `recoded` an index of stored vectors;
`quality` computes measures, `trec_run` and `judge` read TREC run files.

May import: `bench.harness`, `quarry`.
"""
