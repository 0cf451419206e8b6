"""Jupyter notebooks: the sources of their cells, with the headings of those in Markdown; outputs are left out."""

from __future__ import annotations

import json

from quarry.engine.documents.outline import Heading, Outline
from quarry.readers.files.characters import decoded
from quarry.readers.files.file_text import FileText, UnreadableError
from quarry.readers.files.markup import markdown_headings

__all__ = ["read_notebook"]

_BETWEEN = "\n\n"
_MAX_VALUES = 5_000_000  # of JSON, each of which takes up to a hundred bytes of memory


def read_notebook(content: bytes, max_values: int = _MAX_VALUES) -> FileText:
    """Make the document of a notebook (nbformat 3 or 4); its cells are counted from 1, empty ones too.

    Raises:
        UnreadableError: it is not JSON, has too many values, or no list of cells.
    """
    if sum(map(content.count, (b",", b"[", b"{"))) > max_values:
        raise UnreadableError(f"is a notebook of more than {max_values} values")
    try:
        notebook: object = json.loads(decoded(content))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"is not a notebook in JSON: {error}") from error
    parts: list[str] = []
    starts: list[int] = []
    headings: list[Heading] = []
    position = 0
    for cell in _cells(notebook):
        source = _source(cell)
        starts.append(position)
        if cell.get("cell_type") == "markdown":
            headings += markdown_headings(source, position)
        parts.append(source)
        position += len(source) + len(_BETWEEN)
    return FileText(_BETWEEN.join(parts), outline=Outline("cell", tuple(starts), tuple(headings)))


def _cells(notebook: object) -> list[dict[str, object]]:
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if cells is None and isinstance(notebook, dict):  # nbformat 3
        sheets = notebook.get("worksheets")
        sheets = sheets if isinstance(sheets, list) else []
        cells = [cell for sheet in sheets if isinstance(sheet, dict) for cell in sheet.get("cells") or []]
        cells = cells if sheets else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise UnreadableError("is not a notebook: it has no list of cells")
    return cells


def _source(cell: dict[str, object]) -> str:
    source = cell.get("source", cell.get("input", ""))
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str)).replace("\r\n", "\n")
