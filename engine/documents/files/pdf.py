"""Text of PDF files, page by page; the module that imports pypdfium2."""

from __future__ import annotations

import re
import threading

from quarry.engine.documents.document import MAX_TEXT_CHARACTERS
from quarry.engine.documents.files.file_text import FileText, UnreadableError, printable
from quarry.engine.documents.outline import Outline

__all__ = ["read_pdf"]

_BETWEEN = "\n\n"
_LINE_BREAK = re.compile("\r\n?")
_HYPHEN = re.compile("[\x02\ufffe](?:\r?\n)?")  # what the library writes for a hyphen at the end of a line
_LIBRARY = "needs the library pypdfium2: pip install 'quarry-search[documents]'"
_ONE_AT_A_TIME = threading.Lock()  # the library is not safe to use from several threads


def read_pdf(content: bytes) -> FileText:
    """Make the document of a PDF file; pages are counted from 1, empty ones too.

    Raises:
        UnreadableError: it is damaged, needs a password, has too much text, or the library is missing.
    """
    try:
        import pypdfium2
    except ImportError as error:
        raise UnreadableError(_LIBRARY) from error
    with _ONE_AT_A_TIME:
        try:
            document = pypdfium2.PdfDocument(content)
        except pypdfium2.PdfiumError as error:
            raise UnreadableError(f"is not a PDF file that can be opened: {error}") from error
        try:
            pages = _pages(document)
            title = document.get_metadata_value("Title")
        except pypdfium2.PdfiumError as error:
            raise UnreadableError(f"is a damaged PDF file: {error}") from error
        finally:
            document.close()
    starts = [0]
    for page in pages:
        starts.append(starts[-1] + len(page) + len(_BETWEEN))
    title = " ".join(printable(title).split())
    return FileText(_BETWEEN.join(pages), title, Outline("page", tuple(starts[: len(pages)])))


def _pages(document: object) -> list[str]:
    pages: list[str] = []
    n_characters = 0
    for number in range(len(document)):  # type: ignore[arg-type]
        page = document[number]  # type: ignore[index]
        text_page = page.get_textpage()
        text = text_page.get_text_range()
        text_page.close()
        page.close()
        pages.append(printable(_LINE_BREAK.sub("\n", _HYPHEN.sub("", text))).strip())
        n_characters += len(pages[-1]) + len(_BETWEEN)
        if n_characters > MAX_TEXT_CHARACTERS:
            problem = f"has more than {MAX_TEXT_CHARACTERS} characters up to page {number + 1}"
            raise UnreadableError(f"{problem}: split it into several files")
    return pages
