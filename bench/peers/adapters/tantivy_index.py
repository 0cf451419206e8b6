"""tantivy: lexical search with stored texts, its English tokenizer.

As https://github.com/quickwit-oss/tantivy-py shows; the words of a question are joined by OR.
"""

from __future__ import annotations

import re
from importlib import import_module

from bench.peers.protocol import Corpus, FolderIndex, Ranking, Vector

REQUIREMENTS = ("tantivy",)
IMPORTS = ("tantivy",)

_WORD = re.compile(r"\w+")


class Index(FolderIndex):
    """See `bench.peers.protocol.PeerIndex`; vectors are not used."""

    def build(self, corpus: Corpus) -> None:
        """Add all, commit, wait for merges."""
        tantivy = import_module("tantivy")

        schema = tantivy.SchemaBuilder()
        schema.add_text_field("name", stored=True, tokenizer_name="raw")
        schema.add_text_field("body", stored=True, tokenizer_name="en_stem")
        self._folder.mkdir()
        index = tantivy.Index(schema.build(), path=str(self._folder))
        writer = index.writer()
        for name, text in zip(corpus.ids, corpus.texts or [], strict=True):
            writer.add_document(tantivy.Document(name=name, body=text))
        writer.commit()
        writer.wait_merging_threads()

    def open(self) -> None:
        """Open for reading."""
        tantivy = import_module("tantivy")

        self._index = tantivy.Index.open(str(self._folder))
        self._searcher = self._index.searcher()

    def search(self, text: str, vector: Vector, k: int) -> Ranking:
        """Search by text."""
        query = self._index.parse_query(" ".join(_WORD.findall(text.lower())), ["body"])
        hits = self._searcher.search(query, k).hits
        documents = ((self._searcher.doc(address), score) for score, address in hits)
        return [(document["name"][0], score) for document, score in documents if document["body"]]
