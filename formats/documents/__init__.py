"""Ids, texts and spans of the documents of a segment.

`ids` maps ordinals to document ids and back, `store` keeps one zstd frame for each document with a dictionary
shared by the segment (`store_sections` writes them, `store_merge` joins the stores of several segments), `spans`
keeps which
characters each centroid stands for.

May import: `quarry.formats.container`.
"""
