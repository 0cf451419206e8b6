"""Collections, prepared vectors and quality measures.

`collections` reads folders in BEIR's layout, and creates one of docstrings; `evaluation_collections` has those
that encoders and ranking are compared on. `prepare` encodes a collection once and `prepared` reads the result;
`word_encoder` makes vectors; `quality` reads and writes TREC run files, and measures them.
"""
