"""Measurements of what is fitted to data.

`encoders` compares trained encoders, `relevance` calibrates the relevance of hits, `wording` compares weights of
the proximity and form of the query's words.
"""
