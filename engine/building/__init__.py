"""Making indexes: of documents, in this process or several, and by encoding those of an index again.

Start with `builder`, whose `build` makes an index. `plan` has the settings and the encoder of a new one, and
`creation` makes one when it is opened. `staged_build` is a build whose documents are encoded somewhere else,
`workers` are processes that encode them. `reencoding` gives an index the vectors of another encoder.
"""
