"""Documents to encoded batches, in their order.

Start with `document_feed`, which passes documents on as `encoded_batch`, which is what a segment is written from.
`document_encoder` encodes them on several threads, or in the batches of `document_batches` if the encoder takes
many texts in one call. `given_documents` and `column_batches` prepare documents that come with vectors, one by one
or as columns of a table. `stored_type` chooses how vectors are stored by the first documents.
"""
