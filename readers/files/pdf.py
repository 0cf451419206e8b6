"""Text of PDF files, page by page, read by a process of its own.

A file of a few kilobytes can keep the library busy for years, or make it take all memory, and nothing can
interrupt it. So each file is read by another process, which is ended when it takes too long.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from quarry.engine.documents.document import MAX_TEXT_CHARACTERS
from quarry.engine.documents.outline import Outline
from quarry.readers.files import pdf_pages
from quarry.readers.files.file_text import FileText, UnreadableError, printable

__all__ = ["read_pdf"]

_LIMIT_S = 60.0
_BETWEEN = "\n\n"
_LINE_BREAK = re.compile("\r\n?")
_HYPHEN = re.compile("[\x02\ufffe](?:\r?\n)?")  # what the library writes for a hyphen at the end of a line
_LIBRARY = "needs the library pypdfium2: pip install 'quarry-search[documents]'"
_ONE_AT_A_TIME = threading.Lock()  # the library is not safe to use from several threads


def read_pdf(content: bytes, limit_s: float = _LIMIT_S) -> FileText:
    """Make the document of a PDF file; pages are counted from 1, empty ones too.

    Raises:
        UnreadableError: it is damaged, needs a password, has too much text, takes more than a minute or more than
            4 GiB of memory, or the library is missing.
    """
    if importlib.util.find_spec("pypdfium2") is None:
        raise UnreadableError(_LIBRARY)
    answer = _read_apart(content, limit_s) if _can_start_python() else _read_here(content)
    if "problem" in answer:
        raise UnreadableError(answer["problem"])
    pages = [printable(_LINE_BREAK.sub("\n", _HYPHEN.sub("", page))).strip() for page in answer["pages"]]
    starts = [0]
    for page in pages:
        starts.append(starts[-1] + len(page) + len(_BETWEEN))
    title = " ".join(printable(answer["title"]).split())
    return FileText(_BETWEEN.join(pages), title, Outline("page", tuple(starts[: len(pages)])))


def _can_start_python() -> bool:
    """Whether `sys.executable` is Python, and not a program with Python in it, which would start itself again."""
    is_python = Path(sys.executable or "").stem.lower().startswith(("python", "pypy"))
    return is_python and not getattr(sys, "frozen", False) and Path(pdf_pages.__file__).is_file()


def _read_here(content: bytes) -> dict[str, Any]:
    with _ONE_AT_A_TIME:
        return pdf_pages.read_pages(content, MAX_TEXT_CHARACTERS)


def _read_apart(content: bytes, limit_s: float) -> dict[str, Any]:
    command = [sys.executable, "-I", pdf_pages.__file__, json.dumps([MAX_TEXT_CHARACTERS, sys.path])]
    try:
        done = subprocess.run(
            command,
            input=content,
            capture_output=True,
            check=False,
            timeout=limit_s,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"is a PDF file that takes more than {limit_s:g} seconds to read"}
    if done.returncode:
        return {"problem": f"is a PDF file that the library fails at, or lacks memory for: code {done.returncode}"}
    pages: dict[str, Any] = json.loads(done.stdout)
    return pages
