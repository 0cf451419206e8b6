"""Kinds of files that are documents, known by the names of the files, and the function that reads each.

A kind of Quarry's own is a row of `_KINDS`; others come from installed packages and from callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import TypeAlias, cast

from quarry.engine.arguments import shown
from quarry.engine.documents.tables.table_files import is_plain_table
from quarry.engine.extensions import extension_failed, load_extension, registered_names
from quarry.formats.errors import InvalidSetting
from quarry.readers.files.docx import read_docx
from quarry.readers.files.epub import read_epub
from quarry.readers.files.file_text import FileText
from quarry.readers.files.html_text import read_html
from quarry.readers.files.mail import read_mailbox, read_message
from quarry.readers.files.markup import read_markdown, read_plain, read_rst, read_source
from quarry.readers.files.notebook import read_notebook
from quarry.readers.files.pdf import read_pdf

__all__ = ["FileKind", "FileKinds", "FileReader"]

FileReader: TypeAlias = Callable[[bytes], FileText | Iterable[FileText]]
"""Makes the document of a file of its bytes, or several; raises `UnreadableError` if it cannot.

Files are not trusted: a reader bounds the time and the memory that it takes. Any other error than
`UnreadableError` is reported as one of the file too. It may be called on several threads at once.
"""


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file.

    Attributes:
        name: the field ``file.type`` of the metadata of its documents.
        read: reads a file; None for a table, which is read otherwise.
        has_several: whether a file may have several documents.
    """

    name: str
    read: FileReader | None = None
    has_several: bool = True


_KINDS: tuple[tuple[FileKind, str, str], ...] = (  # with the endings of its files, and names of whole files
    (
        FileKind("text", read_plain, has_several=False),
        ".txt .text .log",
        "authors changelog changes contributing contributors copying copyright history install license licence "
        "maintainers news notice readme security todo",
    ),
    (FileKind("markdown", read_markdown, has_several=False), ".md .markdown .mdx", ""),
    (FileKind("rst", read_rst, has_several=False), ".rst", ""),
    (FileKind("html", read_html, has_several=False), ".html .htm .xhtml", ""),
    (FileKind("notebook", read_notebook, has_several=False), ".ipynb", ""),
    (FileKind("email", read_message, has_several=False), ".eml", ""),
    (FileKind("mailbox", read_mailbox), ".mbox", ""),
    (FileKind("pdf", read_pdf, has_several=False), ".pdf", ""),
    (FileKind("docx", read_docx, has_several=False), ".docx", ""),
    (FileKind("epub", read_epub, has_several=False), ".epub", ""),
    (
        FileKind("code", read_source, has_several=False),
        ".adb .ads .asm .awk .bash .bat .c .cc .clj .cljs .cmake .coffee .cpp .cs .css .cu .cxx .d .dart "
        ".el .elm .erl .ex .exs .f .f90 .f95 .fish .fs .fsx .gd .go .gradle .graphql .groovy .h .hcl .hh "
        ".hpp .hrl .hs .hxx .ini .java .jl .js .jsx .kt .kts .less .lisp .lua .m .mjs .ml .mli .mm .nim "
        ".nix .pas .php .pl .pm .proto .ps1 .py .pyi .pyx .r .rb .rkt .rs .s .sass .scala .scm .scss .sh "
        ".sol .sql .svelte .swift .tcl .tex .tf .toml .ts .tsx .v .vb .vhd .vhdl .vim .vue .yaml .yml .zig "
        ".zsh",
        "cmakelists.txt dockerfile gemfile jenkinsfile justfile makefile procfile rakefile vagrantfile",
    ),
)
_OF_ENDING = {ending: kind for kind, endings, _ in _KINDS for ending in endings.split()}
_OF_NAME = {name: kind for kind, _, names in _KINDS for name in names.split()}


class FileKinds:
    """The kinds of files that are read: Quarry's, those of installed packages, and those that a caller gives.

    Args:
        given: readers by the endings of their files, such as ``{".gpx": read_gpx}``; they come before all others.

    Raises:
        InvalidSetting: it is no such mapping, or an ending is that of a table.
    """

    def __init__(self, given: Mapping[str, FileReader] | None = None) -> None:
        self._of_ending: dict[str, FileKind] = {}
        if given is not None and not isinstance(given, Mapping):
            raise _bad_readers(given)
        for ending, read in (given or {}).items():
            name = f"name{ending}"
            if PurePath(name).suffix != ending or is_plain_table(name) or not callable(read):
                raise _bad_readers({ending: read})
            self._of_ending[ending.lower()] = FileKind(ending[1:].lower(), read)

    def of_name(self, name: str) -> FileKind | None:
        """Return the kind of a file by its name, in capitals or not; None for one that is not read.

        Raises:
            ExtensionFailed: the reader of another package cannot be loaded.
        """
        lower = name.lower()
        ending = PurePath(lower).suffix
        kind = self._of_ending.get(ending) or _OF_NAME.get(lower) or _OF_ENDING.get(ending)
        if kind is None and ending[1:] in self._registered:
            kind = self._of_ending[ending] = _load(ending[1:])
        return kind

    @cached_property
    def _registered(self) -> frozenset[str]:
        return registered_names("reader")


def _bad_readers(given: object) -> InvalidSetting:
    expected = "a mapping of endings such as '.gpx', none of a table, to functions"
    return InvalidSetting("readers are not valid", expected=expected, actual=shown(given), setting="readers")


def _load(ending: str) -> FileKind:
    read = load_extension("reader", ending)
    if not callable(read):
        raise extension_failed("reader", ending, "it is not a function")
    return FileKind(ending, cast("FileReader", read))
