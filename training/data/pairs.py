"""Examples of JSON Lines: pairs and triples of texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from quarry.engine.documents.document import full_text
from quarry.formats.errors import InvalidDocument
from quarry.training.data.example_store import ExampleWriter
from quarry.training.data.json_lines import json_lines

__all__ = ["read_pairs"]

_NAMES = {
    "query": ("query", "q"),
    "positive": ("positive", "d"),
    "negative": ("negative",),
    "title": ("title", "t"),
}


def read_pairs(path: Path, writer: ExampleWriter) -> None:
    """Write the examples of a file.

    Each line is an object with ``query`` (or ``q``) and ``positive`` (or ``d``), a text or a list of texts that
    answer it; for a triple also ``negative``, a text or a list of texts that do not; and perhaps ``title`` (or
    ``t``), the article of the positives, which is put before them and groups them.

    Raises:
        InvalidDocument: a line is malformed, or a text is blank.
    """
    for place, value in json_lines(path):
        title = "".join(_texts(value, "title", place, path)[:1])
        positives, negatives = (_texts(value, name, place, path) for name in ("positive", "negative"))
        queries = _texts(value, "query", place, path)
        if len(queries) != 1 or not positives:
            raise InvalidDocument(
                f"{place}: not a pair",
                path=path,
                expected="one query and a positive",
                actual=", ".join(sorted(value)) or "no member",
            )
        relevant = [writer.document(full_text(title, text), title, place) for text in positives]
        others = [writer.document(text, "", place) for text in negatives]
        writer.example(queries[0], relevant, others, place)


def _texts(value: Mapping[str, object], name: str, place: str, path: Path) -> list[str]:
    found = next((value[key] for key in _NAMES[name] if key in value), None)
    if found is None:
        return []
    texts = found if isinstance(found, list) else [found]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidDocument(f"{place}: {name} is no text", path=path, expected="a string or a list of strings")
    return [str(text) for text in texts]
