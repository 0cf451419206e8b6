"""Examples in JSON Lines, plain or compressed: pairs and triples of texts, one object a line."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from quarry.engine.documents.document import full_text
from quarry.engine.documents.lines import LineReader
from quarry.formats.errors import InvalidDocument, InvalidSetting
from quarry.training.data.example_store import ExampleWriter

__all__ = ["json_lines", "read_pair_titles", "read_pairs"]


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield (``file, line n``, object) for each line that is not blank; .gz and .zst files are inflated.

    Raises:
        InvalidDocument: a line is not a JSON object or too long, or the compressed data is damaged.
        OSError: the file cannot be read.
    """
    lines = LineReader(path)
    for number, content in lines:
        place = f"{path.name}, line {number}"
        if content is not None and not content.strip():
            lines.skip_empty_lines()
            continue
        try:
            value = json.loads(content or b"")
        except (ValueError, RecursionError) as error:
            raise InvalidDocument(f"{place}: not JSON: {error}", path=path) from None
        if not isinstance(value, dict):
            raise InvalidDocument(f"{place}: not a JSON object", path=path, actual=type(value).__name__)
        yield place, value


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
        pair = _pair(value, place, path)
        relevant = [writer.document(full_text(pair.title, text), pair.title, place) for text in pair.positives]
        others = [writer.document(text, "", place) for text in pair.negatives]
        writer.example(pair.query, relevant, others, place)


def read_pair_titles(path: Path, excluded: Collection[str], writer: ExampleWriter) -> None:
    """Write the titles in a file of pairs as queries for the positives, without a title.

    All positives of one title are relevant to it; pairs without a title, or with one of those excluded, are left
    out. The queries of the pairs are not used.

    Raises:
        InvalidDocument: a line is malformed, a text is blank, or no line has a title that is not excluded.
        InvalidSetting: no line has one of the excluded titles, which may be misspelled.
    """
    seen: set[str] = set()
    writer.titles(_passages_by_title(path, excluded, seen))
    missing = sorted(set(excluded) - seen)
    if missing:
        raise InvalidSetting(
            "exclude_titles has a title that no pair has",
            path=path,
            expected="titles as they are in the file",
            actual=", ".join(map(repr, missing)),
        )
    if seen <= set(excluded):
        raise InvalidDocument(
            "no pair has a title", path=path, expected="a member title (or t) that is not in exclude_titles"
        )


def _passages_by_title(path: Path, excluded: Collection[str], titles: set[str]) -> Iterator[tuple[str, str, str]]:
    """Yield title, text and place of the positives whose title is not excluded, and note all titles."""
    for place, value in json_lines(path):
        pair = _pair(value, place, path)
        title = pair.title.strip()
        if title:
            titles.add(title)
        if title and title not in excluded:
            for text in pair.positives:
                yield title, text, place


class _Pair(NamedTuple):
    query: str
    positives: list[str]
    negatives: list[str]
    title: str


def _pair(value: Mapping[str, object], place: str, path: Path) -> _Pair:
    titles = _texts(value, "title", place, path)
    if len(titles) > 1:
        raise InvalidDocument(f"{place}: several titles", path=path, expected="one at most", actual=len(titles))
    title = "".join(titles)
    positives, negatives = (_texts(value, name, place, path) for name in ("positive", "negative"))
    queries = _texts(value, "query", place, path)
    if len(queries) != 1 or not positives:
        raise InvalidDocument(
            f"{place}: not a pair",
            path=path,
            expected="one query and a positive",
            actual=", ".join(sorted(value)) or "no member",
        )
    return _Pair(queries[0], positives, negatives, title)


def _texts(value: Mapping[str, object], name: str, place: str, path: Path) -> list[str]:
    member = next((value[key] for key in _NAMES[name] if key in value), None)
    if member is None:
        return []
    texts = member if isinstance(member, list) else [member]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidDocument(
            f"{place}: {name} is not a text",
            path=path,
            expected="a string or a list of strings",
            actual=repr(member)[:80],
        )
    return [str(text) for text in texts]
