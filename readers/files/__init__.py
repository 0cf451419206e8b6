"""Files that are documents: text, Markdown, reStructuredText, code, HTML, notebooks, mail, PDF, DOCX, EPUB.

`kinds` recognizes a file by its name, `file_documents` reads one and makes its documents, `characters` decodes
bytes; the other modules make the text and the outline of one kind each. Files are not trusted: every reader is
bounded in time and memory, and what it cannot read is an `InvalidDocument`.
"""
