"""The container that every file of an index is written in.

Start with `layout` (preamble, sections, table of contents, footer), then `writer` and `reader`. A section is one
array (`sections`); its chunks are verified by checksum when they are first read. `packing` is canonical msgpack,
`fields` reads maps of msgpack and JSON strictly, `varint` and `byte_strings` encode small integers and ragged
strings, `spool` buffers a section of unknown size, and `directory` makes all system calls for files.
"""
