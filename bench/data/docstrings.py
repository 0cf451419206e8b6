"""A retrieval collection made from the docstrings of Python's standard library.

A query is the first paragraph of a docstring, in one line; its only relevant document is the rest of the same
docstring. There are about two thousand pairs, depending on the version of Python. They are for trying the
measurements and for speed. They say little about quality: relevance was not judged, query and document have the
same author, and other documents may answer a query as well.
"""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from quarry.engine.bundled.stdlib_docstrings import StdlibDocument, stdlib_documents

__all__ = ["DOCSTRINGS", "docstrings_folder", "write_docstrings"]

DOCSTRINGS = "docstrings"
_MIN_CHARACTERS = 80  # of a document


def docstrings_folder(cache: Path) -> Path:
    """Return the folder of the collection in BEIR's layout; it is created on first use."""
    folder = cache / "collections" / f"python-{platform.python_version()}" / DOCSTRINGS
    if not folder.is_dir():
        unfinished = folder.with_name(f"{DOCSTRINGS}.tmp")
        shutil.rmtree(unfinished, ignore_errors=True)
        write_docstrings(unfinished, stdlib_documents())
        unfinished.replace(folder)
    return folder


def write_docstrings(folder: Path, documents: Iterable[StdlibDocument]) -> None:
    """Write a collection made of docstrings into a new folder.

    Args:
        folder: the folder to create, with ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv``.
        documents: docstrings; those of one paragraph are skipped.
    """
    (folder / "qrels").mkdir(parents=True)
    pairs = _split_docstrings(documents)
    _write_lines(folder / "corpus.jsonl", ({"_id": name, "title": "", "text": rest} for name, _, rest in pairs))
    _write_lines(folder / "queries.jsonl", ({"_id": f"q-{name}", "text": query} for name, query, _ in pairs))
    judgments = ["query-id\tcorpus-id\tscore", *(f"q-{name}\t{name}\t1" for name, _, _ in pairs)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(judgments) + "\n", encoding="utf-8")


def _split_docstrings(documents: Iterable[StdlibDocument]) -> list[tuple[str, str, str]]:
    """Return id, first paragraph and rest of each docstring; duplicates of either are dropped."""
    found: dict[str, tuple[str, str, str]] = {}
    rests: set[str] = set()
    for document in documents:
        first, _, rest = document["text"].partition("\n\n")
        query = " ".join(first.split())
        if len(rest) >= _MIN_CHARACTERS and query not in found and rest not in rests:
            found[query] = (document["id"], query, rest)
            rests.add(rest)
    return list(found.values())


def _write_lines(path: Path, entries: Iterable[Mapping[str, str]]) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
