"""Small files of kinds that need more than a few bytes, written from the specifications; what is read of files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence

from quarry.engine.documents.document import Document
from quarry.engine.documents.file_place import find_place
from quarry.engine.documents.reader import read_documents

__all__ = ["docx", "epub", "paragraph", "pdf", "place", "read_documents", "zipped"]

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def pdf(pages: Sequence[str], title: str = "") -> bytes:
    """Return a PDF file with lines of text in Helvetica on each page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        lines = "".join(f"({line}) Tj 0 -20 Td " for line in text.split("\n"))
        stream = f"BT /F1 12 Tf 72 720 Td {lines} ET".encode()
        resources = "<< /Font << /F1 3 0 R >> >>"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources {resources}"
            f" /Contents {5 + 2 * number} 0 R >>".encode()
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
    objects.append(f"<< /Title ({title}) >>".encode())
    content, offsets = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        offsets.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    trailer = b"<< /Size %d /Root 1 0 R /Info %d 0 R >>" % (size, len(objects))
    return content + b"xref\n0 %d\n0000000000 65535 f \n%strailer\n%s\nstartxref\n%d\n%%%%EOF\n" % (
        size,
        table,
        trailer,
        len(content),
    )


def zipped(members: Mapping[str, str | bytes]) -> bytes:
    """Return a zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def paragraph(text: str, style: str = "") -> str:
    """Return a paragraph of WordprocessingML."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def docx(body: str, title: str = "", namespace: str = WORD, others: str = "") -> bytes:
    """Return a Word document whose style ids are those of the German version; others declares other namespaces."""
    w = f'xmlns:w="{namespace}"'
    styles = (
        f'<w:styles {w}><w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
        f'<w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style></w:styles>'
    )
    properties = f'<p xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title></p>'
    document = f"<w:document {w} {others}><w:body>{body}</w:body></w:document>"
    return zipped({"word/document.xml": document, "word/styles.xml": styles, "docProps/core.xml": properties})


def epub(chapters: Mapping[str, str], title: str = "") -> bytes:
    """Return an EPUB book whose chapters are in a folder and declared in reverse order."""
    container = '<container><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>'
    items = "".join(
        f'<item id="{name}" href="text/{name}%201.xhtml" media-type="application/xhtml+xml"/>'
        for name in reversed(chapters)
    )
    order = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    package = (
        f'<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>{title}</dc:title></metadata>'
        f"<manifest>{items}</manifest><spine>{order}</spine></package>"
    )
    pages = {f"OPS/text/{name} 1.xhtml": page for name, page in chapters.items()}
    return zipped({"META-INF/container.xml": container, "OPS/book.opf": package, **pages})


def place(document: Document, words: str = "") -> str:
    """Return the place of these words in a document; without any, that of the document."""
    start = document.full_text.index(words)
    spans = ((start, start + len(words)),) if words else ()
    return str(find_place(document.text, document.title, document.metadata, spans))
