"""Documents to encoded batches, in their order.

Start with `batch`, the columns of documents that a segment is written from. `encode` makes batches on several
threads: of texts, of documents that come with vectors and of columns of a table; `calls` divides texts among the
calls of an encoder that takes many at once. `stored_type` chooses how vectors are stored by the first documents.
"""
