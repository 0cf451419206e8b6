"""Measurements of what is fitted to data.

`encoders` compares trained encoders, `relevance` calibrates the relevance of hits.
"""
