"""Files and folders as documents, on top of the engine, which imports this package when a path is given to it.

`files` reads one file of any kind, `folders` the files of a folder, `sync` makes an index follow a folder. The
names below are what a reader of other files returns and raises; see `quarry.readers.files.kinds.FileReader`.
"""

from quarry.engine.documents.outline import Heading, Outline
from quarry.readers.files.file_text import FileText, UnreadableError
from quarry.readers.files.kinds import FileReader

__all__ = ["FileReader", "FileText", "Heading", "Outline", "UnreadableError"]
