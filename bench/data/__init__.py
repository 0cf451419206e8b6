"""Collections, prepared vectors and judged results.

`collections` reads BEIR folders, `prepare` encodes a collection once and `prepared` reads the result,
`synthetic` makes vectors, `quality` computes measures, `trec_run` and `judge` read run files in the format of
TREC.
"""
