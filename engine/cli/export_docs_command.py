"""The command ``quarry export-docs``: writes the documents of an index as JSON Lines."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import re
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from quarry import engine
from quarry.engine.cli.output import print_error, print_lines
from quarry.engine.cli.words import decode_text, parse_filter_option, parse_path
from quarry.formats.errors import InvalidSetting

if TYPE_CHECKING:
    from quarry.engine import Document

__all__ = ["SUMMARY", "add_arguments", "run"]

_CONTROLS = re.compile("[\x7f-\x9f]")  # that JSON leaves as they are, and terminals act upon
_BATCH = 256  # documents whose vectors are read at a time

SUMMARY = "write the documents of an index as JSON Lines, which quarry build reads"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, without the index."""
    parser.add_argument(
        "out",
        metavar="FILE",
        type=parse_path,
        nargs="?",
        default=Path("-"),
        help="the file to write; - (default) is standard output",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a file that exists")
    parser.add_argument("--filter", metavar="JSON", type=decode_text, help="only documents that pass the filter")
    parser.add_argument(
        "--vectors",
        action="store_true",
        help="write the stored vectors too, which are not encoded again then; always done without an encoder",
    )
    parser.add_argument("--ids", action="store_true", help="write only the ids, one JSON string per line")


def run(args: argparse.Namespace) -> int:
    """Run the command; a file that could not be written completely is not left behind.

    Raises:
        InvalidSetting: the file exists, and ``--overwrite`` was not given.
        OSError: the file cannot be written.
    """
    only = parse_filter_option(args.filter)
    with engine.Engine.open(args.index) as index:
        is_given = index.stats()["representation"] == {"name": "given"}
        has_vectors = (args.vectors or is_given) and not args.ids
        if args.ids:
            lines: Iterator[object] = index.ids(filter=only)
        elif has_vectors:
            lines = map(_fields_of, _with_vectors(index, index.ids(filter=only)))
        else:
            lines = map(_fields_of, index.documents(filter=only))
        with _open_output(args.out, args.overwrite) as output:
            n_documents = 0
            for line in lines:
                text = json.dumps(line, ensure_ascii=False)
                output.write(_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode() + b"\n")
                n_documents += 1
        if args.json and str(args.out) != "-":
            print_lines(json.dumps({"n_documents": n_documents, "has_vectors": has_vectors}))
        elif has_vectors:
            kind = "approximate vectors, of their codes" if index.stats()["stored"] == "none" else "vectors"
            print_error(f"documents were written with {kind}, which quarry build --like INDEX takes as they are")
    return 0


def _with_vectors(index: engine.Engine, ids: Iterator[str]) -> Iterator[Document]:
    while batch := list(itertools.islice(ids, _BATCH)):
        yield from index.get(batch, vectors=True)


def _fields_of(document: Document) -> dict[str, object]:
    """Return the fields of a document that are not empty; vectors of zeros are none."""
    fields: dict[str, object] = {"id": document.id, "text": document.text}
    if document.title:
        fields["title"] = document.title
    if document.metadata:
        fields["metadata"] = dict(document.metadata)
    if document.vectors is not None and document.stored_as != "words":
        fields["vectors"] = document.vectors.tolist()
        if any(end for _, end in document.spans):
            fields["spans"] = document.spans
    return fields


@contextlib.contextmanager
def _open_output(path: Path, is_replacing: bool) -> Iterator[BinaryIO]:
    """Open standard output, or a temporary file that is renamed when everything was written."""
    if str(path) == "-":
        yield sys.stdout.buffer
        return
    if path.exists() and not is_replacing:
        raise InvalidSetting("the file exists already; replace it with --overwrite", path=path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as output:
            yield output
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
