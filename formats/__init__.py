"""Files on disk: writers and readers for every file of an index and of an exported model.

`SPEC.md` in this folder specifies the bytes. Start with `manifest` (one generation of an index), `segment` (a
batch of documents) and `snapshot` (one generation with all its files open). Their parts are in the packages
`container` (what every file is made of), `vectors`, `documents`, `postings` and `metadata`; `bundle` holds
exported models, `errors` all errors of Quarry, `arrays` the names of array types. This package does not depend on
encoders or search. Everything that is read from a file is checked before it is used.
"""
