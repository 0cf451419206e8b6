"""Training of the encoder of queries alone: documents keep the vectors that an index of them has.

Start with `objective.FixedDocuments`, the losses. `stored_rows` has the vectors of a source's documents and
searches all of them at every step, and `preparation` makes them.
"""
