"""The inverted index of a segment: which documents have a term, and how often.

Start with `postings`, the writer and the reader. Documents are sorted by term in bounded memory (`inversion`); a
posting list is encoded with Elias-Fano (`elias_fano`); the terms are a front-coded dictionary (`term_dictionary`,
`term_blocks`).
"""
