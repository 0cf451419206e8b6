"""Kinds of files that are documents, known by the names of the files."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

__all__ = ["KINDS", "MAX_FILE_BYTES", "kind_of_name"]

MAX_FILE_BYTES: Final = 256 << 20
"""The largest file that is read as a document."""

KINDS: Final = {
    "text": ".txt .text .log",
    "markdown": ".md .markdown .mdx",
    "rst": ".rst",
    "html": ".html .htm .xhtml",
    "notebook": ".ipynb",
    "email": ".eml",
    "mailbox": ".mbox",
    "pdf": ".pdf",
    "docx": ".docx",
    "epub": ".epub",
    "code": (
        ".adb .ads .asm .awk .bash .bat .c .cc .clj .cljs .cmake .coffee .cpp .cs .css .cu .cxx .d .dart "
        ".el .elm .erl .ex .exs .f .f90 .f95 .fish .fs .fsx .gd .go .gradle .graphql .groovy .h .hcl .hh "
        ".hpp .hrl .hs .hxx .ini .java .jl .js .jsx .kt .kts .less .lisp .lua .m .mjs .ml .mli .mm .nim "
        ".nix .pas .php .pl .pm .proto .ps1 .py .pyi .pyx .r .rb .rkt .rs .s .sass .scala .scm .scss .sh "
        ".sol .sql .svelte .swift .tcl .tex .tf .toml .ts .tsx .v .vb .vhd .vhdl .vim .vue .yaml .yml .zig "
        ".zsh"
    ),
}
"""The endings of the files of each kind."""

_NAMES = {
    "text": "authors changelog changes contributing contributors copying copyright history install license licence"
    " maintainers news notice readme security todo",
    "code": "cmakelists.txt dockerfile gemfile jenkinsfile justfile makefile procfile rakefile vagrantfile",
}
_OF_ENDING = {ending: kind for kind, endings in KINDS.items() for ending in endings.split()}
_OF_NAME = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def kind_of_name(name: str) -> str | None:
    """Return the kind of a file by its name, in capitals or not; None for one that is not read."""
    lower = name.lower()
    return _OF_NAME.get(lower) or _OF_ENDING.get(PurePath(lower).suffix)
