"""A temporary index of a corpus, and runs of queries in the form that evaluation suites expect."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from bench.data.trec_run import Run
from quarry import engine
from quarry.engine import Encoder, Engine
from quarry.engine.choices import Mode

__all__ = ["CorpusIndex"]

_BATCH = 64  # queries of one search: hits of deep rankings take memory


class CorpusIndex:
    """An index in a temporary folder, which `close` deletes; a context manager.

    Documents without any text, of which some collections have a few, are left out: no query finds them.

    Args:
        documents: mappings with ``id``, ``text`` and, if there is one, ``title``.
        encoder: of the index; None: the bundled one.
    """

    def __init__(self, documents: Iterable[Mapping[str, object]], encoder: Encoder | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="quarry-corpus-")
        path = Path(self._folder.name) / "index"
        try:
            engine.build(map(_document, filter(_has_text, documents)), path, encoder=encoder)
            self.engine = Engine.open(path, encoder=encoder)
        except BaseException:
            self._folder.cleanup()
            raise

    def run(
        self,
        queries: Mapping[str, str],
        k: int,
        mode: Mode = "hybrid",
        candidates: Mapping[str, Sequence[str]] | None = None,
    ) -> Run:
        """Return ids and scores of the `k` best documents of each query; none for a query without text.

        Args:
            queries: text by query id.
            k: number of documents.
            mode: as in `quarry.engine.Engine.search`.
            candidates: for each query the ids of the documents to be ranked; None: all documents.
        """
        found: Run = {name: {} for name in queries}
        asked = [(name, text) for name, text in queries.items() if text.strip()]
        if candidates is not None:
            for name, text in asked:
                only = {"id": {"$in": list(candidates[name])}}
                hits = self.engine.search(text, k, mode=mode, filter=only)
                found[name] = {hit.id: float(hit.score) for hit in hits}
            return found
        for first in range(0, len(asked), _BATCH):
            batch = asked[first : first + _BATCH]
            answers = self.engine.search([text for _, text in batch], k, mode=mode)
            for (name, _), hits in zip(batch, answers, strict=True):
                found[name] = {hit.id: float(hit.score) for hit in hits}
        return found

    def close(self) -> None:
        """Close the index and delete it."""
        self.engine.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _document(entry: Mapping[str, object]) -> dict[str, object]:
    return {"id": entry["id"], "text": entry.get("text") or "", "title": entry.get("title") or ""}


def _has_text(entry: Mapping[str, object]) -> bool:
    return any(str(entry.get(field) or "").strip() for field in ("title", "text"))
