"""Documents to encoded batches, in their order.

Start with `batch_writer`, which adds documents to an index or to its shards. `document_encoder` encodes
documents on several threads, or in the batches of `document_batches` if the encoder takes many texts in one
call. `given_documents` and `column_batches` prepare documents that come with vectors, one by one or as
columns of a table. `document_feed` passes all on as `encoded_batch`, which is what a segment is written from.
`stored_type` chooses the type of stored vectors by the first documents.

May import: `quarry.engine.analysis`, `quarry.engine.documents`, `quarry.engine.encoding`, `quarry.engine.process`,
`quarry.engine.representation`, `quarry.engine.scoring`, `quarry.formats`.
"""
