"""The command ``quarry sync``: the documents of an index are made those of a folder's files."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from quarry import engine
from quarry.engine.cli.output import print_lines
from quarry.engine.cli.words import decode_text, parse_path
from quarry.formats.errors import IndexNotFound

if TYPE_CHECKING:
    from quarry.engine import SyncReport

__all__ = ["SUMMARY", "add_arguments", "add_columns", "run"]

SUMMARY = "add, update and delete documents as the files of a folder have changed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, without those that other commands have too."""
    parser.add_argument("folder", metavar="FOLDER", type=parse_path, help="the folder with the files")
    parser.add_argument(
        "index", metavar="INDEX", type=parse_path, help="the folder of the index; made if it is missing"
    )
    add_columns(parser)
    parser.add_argument("--dry-run", action="store_true", help="change nothing, only say what would change")
    parser.add_argument(
        "--remove-all", action="store_true", help="go on if none of the files of the index is in the folder"
    )


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add the names of the columns of tables."""
    parser.add_argument("--id", metavar="COLUMN", type=decode_text, help="the column of a table that has the ids")
    parser.add_argument(
        "--text", metavar="COLUMN", type=decode_text, action="append", help="of the texts; may be repeated"
    )
    parser.add_argument(
        "--title", metavar="COLUMN", type=decode_text, help="of the titles; the others become metadata"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; return 1 if a file could not be read, else 0."""
    report = _report(args)
    print_lines(*([json.dumps(asdict(report))] if args.json else _lines(report)))
    return 1 if report.failed else 0


def _report(args: argparse.Namespace) -> SyncReport:
    try:
        opened = _opened(args)
    except IndexNotFound:
        from quarry.engine.documents.document import FILE_FIELDS
        from quarry.engine.documents.tables.columns import Columns
        from quarry.engine.encoding.opening import open_encoder
        from quarry.engine.sync import folder_sync

        columns = Columns.of(args.id, args.text, args.title)
        plan = folder_sync()(args.folder, args.index, (), columns, args.remove_all, open_encoder(args.encoder))
        if args.dry_run:
            return plan.report()
        resources: Any = {"encoder": args.encoder, "threads": args.threads, "progress": False}
        engine.build([], args.index, searchable=FILE_FIELDS, **resources)
        opened = _opened(args)
    with opened as index:
        return index.sync(
            args.folder,
            id=args.id,
            text=args.text,
            title=args.title,
            dry_run=args.dry_run,
            remove_all=args.remove_all,
        )


def _opened(args: argparse.Namespace) -> engine.Engine:
    return engine.Engine.open(args.index, writable=not args.dry_run, encoder=args.encoder, threads=args.threads)


def _lines(report: SyncReport) -> list[str]:
    """A line for each file that has changed, and one with the numbers."""
    from quarry.engine.search.hits.hits import snippet

    marks = (("+", report.added), ("~", report.changed), ("-", report.removed), ("0", report.empty))
    lines = [f"{mark} {snippet(name, 200)}" for mark, names in marks for name in names]
    lines += [f"! {snippet(name, 200)}: {snippet(reason, 400)}" for name, reason in report.failed.items()]
    counts = ((len(report.added), "added"), (len(report.changed), "changed"), (len(report.removed), "removed"))
    ends = ((len(report.failed), "failed"), (len(report.empty), "without text"), (report.n_unchanged, "unchanged"))
    left_out = (
        [(len(report.left_out), "left out (tables without documents, see --json)")] if report.left_out else []
    )
    state = "nothing was changed" if report.generation is None else f"generation {report.generation}"
    return [*lines, ", ".join(f"{count} {what}" for count, what in (*counts, *ends, *left_out)) + f"; {state}"]
