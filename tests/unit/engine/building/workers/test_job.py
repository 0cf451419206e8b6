"""Splitting a stream of documents into batches."""

from __future__ import annotations

from quarry.engine.building.workers.job import divide
from quarry.engine.documents.document import Document


def test_every_document_is_in_one_batch_in_order():
    documents = [Document(str(number), "text") for number in range(5000)]
    batches = list(divide(iter(documents), 2))
    assert [document for batch in batches for document in batch.documents] == documents
    assert [batch.number for batch in batches] == list(range(len(batches)))
    assert [batch.first for batch in batches] == [int(batch.documents[0].id) for batch in batches]
    sizes = [len(batch.documents) for batch in batches]
    assert sizes[0] == 64
    assert max(sizes) <= 5000 // 32
    assert sizes[:-1] == sorted(sizes[:-1])


def test_long_documents_make_small_batches():
    documents = [Document(str(number), "x" * (1 << 20)) for number in range(20)]
    assert [len(batch.documents) for batch in divide(documents, 1)] == [8, 8, 4]


def test_no_documents():
    assert not list(divide([], 4))


def test_names_of_batches():
    (batch,) = divide([Document("a\n", "text"), Document("b", "text")], 1)
    assert str(batch) == r"documents 1 to 2 (ids 'a\n' to 'b')"
    (batch,) = divide([Document("a", "text")], 1)
    assert str(batch) == "documents 1 to 1 (id 'a')"
