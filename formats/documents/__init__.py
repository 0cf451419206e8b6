"""Ids, texts and spans of the documents of a segment.

`ids` maps ordinals to document ids and back. `store` keeps each document as a zstd frame that is compressed with a
shared dictionary; `store_merge` merges the stores of several segments. `spans`
packs the characters that each centroid was computed from.
"""
