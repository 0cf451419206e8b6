"""Prints what may have come from outside, such as names of files, and formats hits and facets for a terminal."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import unicodedata
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quarry.engine import Facets, Hit, Passage
    from quarry.engine.progress import Report

__all__ = [
    "PrintableFormatter",
    "format_facets",
    "format_hit",
    "marks_words",
    "print_error",
    "print_lines",
    "printable",
    "reported",
]

_ID_WIDTH = 36  # characters, as of a UUID
_TEXT_WIDTH = 84  # characters of a passage in a line
_BEFORE_WORD = 20  # characters before the first word that matches, when the beginning of a passage is left out
_REPORT_S = 10.0  # between two lines of progress
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_CUT = "..."
_ISOLATE, _END_ISOLATE = "\u2068", "\u2069"
_JOINERS = "\u200c\u200d"  # invisible characters of several scripts, which do not change the order of others


def printable(text: str, kept: str = "") -> str:
    """Return a text with escapes for all characters that a terminal acts upon, line breaks included.

    Args:
        text: a text that may come from anybody.
        kept: characters that stay.
    """
    if text.isprintable():
        return text
    kept += _JOINERS
    return "".join(
        each
        if each.isprintable() or each in kept or unicodedata.category(each) == "Zs"
        else each.encode("unicode_escape").decode()
        for each in text
    )


def print_lines(*lines: str) -> None:
    """Print lines to standard output, each of which stays one line, without control characters."""
    print(*map(printable, lines), sep="\n", flush=True)  # noqa: T201


def print_error(message: str) -> None:
    """Print a message to standard error, in one line without control characters."""
    print("quarry:", printable(" ".join(message.split())), file=sys.stderr)  # noqa: T201


def reported(label: str) -> Report | None:
    """Return how a command reports progress: by a bar on a terminal (None), else by a line every ten seconds.

    Args:
        label: what is done to documents, in a word or two.
    """
    if sys.stderr is None or sys.stderr.isatty():
        return None
    due = time.monotonic() + _REPORT_S

    def report(n_done: int, n_total: int | None) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _REPORT_S
            print_error(f"{label} {n_done:,}{'' if n_total is None else f' of {n_total:,}'} documents")

    return report


class PrintableFormatter(logging.Formatter):
    """Writes records of a log without control characters, but for the line breaks of tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return printable(super().format(record), "\n\t")


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def marks_words(stream: TextIO | None) -> bool:
    """Return whether words are marked in what is written to a stream: on a terminal that shows bold type."""
    return _is_terminal(stream) and not os.environ.get("NO_COLOR")


def format_hit(hit: Hit, stream: TextIO | None) -> list[str]:
    """Return the lines of a hit: relevance, id and best passage; where that was read; its matches, if explained.

    Where the relevance is not known, the score is shown, with a digit more. On a terminal the words of the passage
    that match the query are in bold type, and texts in right-to-left scripts are isolated from the rest of a line.

    Args:
        hit: the hit.
        stream: what the lines will be written to.
    """
    from quarry.engine.search.hits.hits import snippet  # with numpy, which ``--help`` does without

    isolated = _isolated if _is_terminal(stream) else str
    best = hit.passages[0] if hit.passages else None
    text = snippet(hit.text, _TEXT_WIDTH) if best is None else _format_passage(best, marks_words(stream))
    number = f"{hit.score:6.3f}" if hit.relevance is None else f"{hit.relevance:6.2f}"
    name = _shorten_middle(hit.id, _ID_WIDTH)
    padding = " " * (_ID_WIDTH - _n_columns(name))
    lines = [f"  {number}  {isolated(name)}{padding}  {isolated(text)}"]
    if place := hit.place:
        lines.append(f"          {isolated(snippet(str(place), 100))}")
    elif hit.is_part:
        lines.append(f"          passage {hit.passage}")
    lines += [f"          {match.weight:4.0%}  {isolated(snippet(match.text, 100))}" for match in hit.matches]
    return lines


def _isolated(text: str) -> str:
    """Return a text whose letters do not change the order of what stands beside it.

    A terminal that reorders right-to-left scripts (UAX #9) would take an id and a text in Arabic for one phrase
    and show the text before the id. Other texts stay as they are, since some terminals show isolates as boxes.
    """
    is_reordered = any(unicodedata.bidirectional(each) in {"R", "AL"} for each in text)
    return f"{_ISOLATE}{text}{_END_ISOLATE}" if is_reordered else text


def _n_columns(text: str) -> int:
    """Return the width of a text on a terminal: wide characters take two columns, combining marks none."""
    return sum(
        unicodedata.category(each) not in {"Mn", "Me"} and 1 + (unicodedata.east_asian_width(each) in {"W", "F"})
        for each in text
    )


def _shorten_middle(name: str, width: int) -> str:
    """Return a name without control characters, and without its middle if it is too long.

    Names of files and numbered ids differ at their ends.
    """
    shown = "".join(character if character.isprintable() else " " for character in name)
    if len(shown) <= width:
        return shown
    n_last = (width - len(_CUT)) // 2
    return shown[: width - len(_CUT) - n_last] + _CUT + shown[-n_last:]


def _format_passage(passage: Passage, is_marking: bool) -> str:
    """Return the part of a passage that has its first matching words, on one line."""
    text, words = _one_line(passage.text, passage.words)
    low = 0
    if len(text) > _TEXT_WIDTH and words and words[0][1] > _TEXT_WIDTH - len(_CUT):
        low = text.rfind(" ", 0, max(1, words[0][0] - _BEFORE_WORD)) + 1
    head = _CUT if low else ""
    high = low + _TEXT_WIDTH - len(head)
    tail = ""
    if len(text) > high:
        high, tail = high - len(_CUT), _CUT
    shown, at = head, low
    for start, end in words if is_marking else ():
        if at <= start and end <= high:
            shown += f"{text[at:start]}{_BOLD}{text[start:end]}{_PLAIN}"
            at = end
    return (shown + text[at:high]).rstrip() + tail


def _one_line(text: str, words: Sequence[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """Return a text with single spaces and without control characters, and where its words are then."""
    places = [0]  # of each character of the text in the line
    line: list[str] = []
    for character in text:
        if character.isspace():
            if line and line[-1] != " ":
                line.append(" ")
        elif character.isprintable():
            line.append(character)
        places.append(len(line))
    return "".join(line).rstrip(), [(places[start], places[end]) for start, end in words]


def format_facets(facets: Facets) -> list[str]:
    """Return the lines that show the values of a field with their numbers of documents."""
    rest = facets.n_values - len(facets.values)
    lines = [f"{facets.field}: {facets.n_documents} documents, {facets.n_missing} without a value"]
    lines += [f"{each.n_documents:>8}  {json.dumps(each.value, ensure_ascii=False)}" for each in facets.values]
    return lines + ([f"     ...  {rest} more values"] if rest else [])
