"""Pages of a PDF file, read by pypdfium2: imported, or run as a program that can be ended from outside.

The program imports nothing of Quarry. It reads the file from standard input and writes JSON: ``title`` and
``pages``, or ``problem``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["read_pages"]

_MAX_BYTES = 4 << 30  # of memory of the program


def read_pages(content: bytes, max_characters: int) -> dict[str, Any]:
    """Return the title and the text of each page, or what is wrong with the file.

    Args:
        content: the file.
        max_characters: the largest length of all pages together.
    """
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        return {"problem": f"is not a PDF file that can be opened: {error}"}
    pages: list[str] = []
    n_left = max_characters
    try:
        for number in range(len(document)):
            page = document[number]
            text_page = page.get_textpage()
            pages.append(text_page.get_text_range())
            text_page.close()
            page.close()
            n_left -= len(pages[-1])
            if n_left < 0:
                problem = f"has more than {max_characters} characters up to page {number + 1}"
                return {"problem": f"{problem}: split it into several files"}
        return {"title": document.get_metadata_value("Title"), "pages": pages}
    except pypdfium2.PdfiumError as error:
        return {"problem": f"is a damaged PDF file: {error}"}
    finally:
        document.close()


def _main() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    except (ImportError, OSError, ValueError):  # there are no limits on this system
        pass
    max_characters, sys.path[:] = json.loads(sys.argv[1])
    pages = read_pages(sys.stdin.buffer.read(), max_characters)
    sys.stdout.buffer.write(json.dumps(pages).encode())


if __name__ == "__main__":
    _main()
