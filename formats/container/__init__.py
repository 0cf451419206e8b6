"""The container that every file of an index is written in.

Start with `container`: preamble, sections, table of contents and footer. A section is one array (`sections`) whose
chunks are verified by checksum when they are first read. `packing` is canonical msgpack, `json_fields` and
`packing.Fields` read records strictly, `varint` and `byte_strings` encode small integers and ragged strings,
`spool` buffers a section of unknown size, and `directory` makes every call to the operating system about files.

May import: `quarry.formats.errors`.
"""
