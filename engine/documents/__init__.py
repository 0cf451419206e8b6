"""Documents to index: read from iterables, tables, files and folders, validated and given an id.

`document` defines a document and validates it, `reader` opens a source of any kind: items that a caller gives
(`given`), JSON and rows (`tables`), and, through `quarry.readers`, files and folders of them. `lines` and
`inflated` read compressed files in bounded memory. `outline` says what divides the text of a file, and
`file_place` where in the file a passage stands.
"""
