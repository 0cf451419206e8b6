"""Objects of JSON Lines files, plain or compressed, one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from quarry.engine.documents.lines import LineReader
from quarry.formats.errors import InvalidDocument

__all__ = ["json_lines"]


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield (``file, line n``, object) for each line that is not blank; .gz and .zst files are inflated.

    Raises:
        InvalidDocument: a line is no JSON object or too long, or the compressed data is damaged.
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
