"""``quarry demo``: indexes the docstrings of the standard library and runs a few queries."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quarry import engine
from quarry.engine.bundled.stdlib_docstrings import stdlib_documents
from quarry.engine.cli.output import format_hit
from quarry.formats.errors import EncoderMismatch, FormatError, IndexNotFound

if TYPE_CHECKING:
    from quarry.engine import BuildReport, Document, Engine, Hit

__all__ = ["QUESTIONS", "run_demo"]

QUESTIONS = (
    "parse command line arguments",
    "run another program and read its output",
    "wait until several threads have reached the same point",
    "pick some elements of a list at random",
    "show how two texts differ",
    "make a temporary folder that goes away",
)
_N_HITS = 10  # of a question


@dataclass(frozen=True)
class _Answer:
    """The hits of one query, and the duration of the search."""

    query: str
    duration_s: float
    hits: list[Hit]


def run_demo(folder: Path, as_json: bool, documents: Iterable[Document] | None = None) -> int:
    """Build the index of the demonstration below a folder unless it exists, and search it.

    Args:
        folder: contains one index for each version of Python.
        as_json: print one JSON object and nothing else on standard output.
        documents: the documents of an index that is built; None: the docstrings of the standard library.

    Returns:
        The exit code, 0.

    Raises:
        QuarryError: the index cannot be built or read.
    """
    path = folder / f"python-{platform.python_version()}"
    report = _build_if_missing(path, documents)
    with engine.Engine.open(path) as index:
        _print_unless(as_json, _format_summary(index, path, report))
        answers = []
        for question in QUESTIONS:
            answers.append(_search(index, question))
            _print_unless(as_json, _format_answer(answers[-1]))
        if as_json:
            _print_json(index, path, report, answers)
    return 0


def _build_if_missing(path: Path, documents: Iterable[Document] | None) -> BuildReport | None:
    """Build the index unless there is one that this version of Quarry can search."""
    try:
        engine.Engine.open(path, encoder=engine.open_encoder()).close()
    except IndexNotFound:
        return _build(path, documents, overwrite=False)
    except (FormatError, EncoderMismatch):
        return _build(path, documents, overwrite=True)
    return None


def _build(path: Path, documents: Iterable[Document] | None, overwrite: bool) -> BuildReport:
    path.parent.mkdir(parents=True, exist_ok=True)
    return engine.build(list(stdlib_documents() if documents is None else documents), path, overwrite=overwrite)


def _format_summary(index: Engine, path: Path, report: BuildReport | None) -> str:
    size = f"{len(index):,} docstrings of Python {platform.python_version()} in {_size_bytes(path) / 1e6:.1f} MB"
    if report is None:
        return f"{size}, already indexed: {path}"
    n_documents_s = report.n_documents / report.duration_s
    n_tokens_s = report.n_tokens / report.duration_s
    speed = f"{n_documents_s:,.0f} documents/s, {n_tokens_s:,.0f} tokens/s"
    return f"{size}, indexed in {report.duration_s:.1f} s ({speed}): {path}"


def _size_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _search(index: Engine, question: str) -> _Answer:
    start = time.perf_counter()
    hits = index.search(question, k=_N_HITS, mode="dense")  # questions share few words with their answers
    return _Answer(question, time.perf_counter() - start, hits)


def _format_answer(answer: _Answer) -> str:
    heading = f"\n{answer.query}  ({answer.duration_s * 1e3:.1f} ms)"
    return "\n".join([heading, *(line for hit in answer.hits for line in format_hit(hit, sys.stdout))])


def _print_unless(as_json: bool, text: str) -> None:
    if not as_json:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _print_json(index: Engine, path: Path, report: BuildReport | None, answers: list[_Answer]) -> None:
    fields = {
        "python": platform.python_version(),
        "path": str(path),
        "n_documents": len(index),
        "size_bytes": _size_bytes(path),
        "build": None if report is None else asdict(report),
        "answers": [
            {"query": each.query, "duration_s": each.duration_s, "hits": [hit.to_dict() for hit in each.hits]}
            for each in answers
        ],
    }
    sys.stdout.write(json.dumps(fields) + "\n")
