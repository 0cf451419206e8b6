"""The command ``quarry sync``: the documents of an index are made those of a folder's files."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarry import engine
from quarry.engine.cli.output import print_error, print_lines, reported
from quarry.engine.cli.words import decode_text, parse_path
from quarry.engine.process.libraries import requiring
from quarry.formats.errors import IndexNotFound, InvalidSetting, QuarryError

if TYPE_CHECKING:
    from quarry.engine import SyncReport

__all__ = ["SUMMARY", "add_arguments", "add_columns", "run"]

_NAMES = 20  # of files that are left out for the same reason
_FIRST_MS = 500  # until the folder is looked at again after the watch has begun

SUMMARY = "add, update and delete documents as the files of a folder have changed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, without those that other commands have too."""
    parser.add_argument("folder", metavar="FOLDER", type=parse_path, help="the folder with the files")
    parser.add_argument(
        "index", metavar="INDEX", type=parse_path, help="the folder of the index; made if it is missing"
    )
    add_columns(parser)
    for name, what in (("include", "read only files"), ("exclude", "leave out files and folders")):
        parser.add_argument(
            f"--{name}",
            metavar="PATTERN",
            type=decode_text,
            action="append",
            default=[],
            help=f"{what} that match, as in .gitignore: '*.md', 'drafts/'; may be repeated",
        )
    parser.add_argument(
        "--vectors-up-to",
        metavar="SIZE",
        type=decode_text,
        help="find the documents of larger files, such as logs, by words alone: bytes, or 1MB",
    )
    parser.add_argument("--watch", action="store_true", help="go on, and follow each change of the folder")
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
    if args.watch and args.dry_run:
        raise InvalidSetting("--watch changes the index", expected="--watch or --dry-run")
    report = _report(args)
    _print(args, report)
    if args.watch:
        _follow(args)
    return 1 if report.failed else 0


def _print(args: argparse.Namespace, report: SyncReport) -> None:
    print_lines(*([json.dumps(asdict(report))] if args.json else _lines(report)))


def _follow(args: argparse.Namespace) -> None:
    """Synchronize whenever files below the folder change, but for those of the index, until interrupted."""
    with requiring("the library that watches folders is not installed", "'quarry-search[watch]'"):
        from watchfiles import DefaultFilter, watch

    usual, index = DefaultFilter(), args.index.resolve()
    is_first = True  # what changed before it watched is found after a timeout
    for changed in watch(
        args.folder.resolve(),
        watch_filter=lambda change, path: usual(change, path) and index not in (Path(path), *Path(path).parents),
        rust_timeout=_FIRST_MS,
        yield_on_timeout=True,
    ):
        if not changed and not is_first:
            continue
        is_first = False
        try:
            report = _report(args)
        except (QuarryError, OSError) as error:  # such as a lock; the next change is tried again
            print_error(str(error))
            continue
        if report.added or report.changed or report.removed or report.failed:
            _print(args, report)


def _report(args: argparse.Namespace) -> SyncReport:
    try:
        opened = _opened(args)
    except IndexNotFound:
        from quarry.engine.documents.document import FILE_FIELDS
        from quarry.engine.documents.tables.columns import Columns
        from quarry.engine.encoding.opening import open_encoder
        from quarry.engine.index.memory import memory_bytes
        from quarry.engine.sync import folder_sync

        columns = Columns.of(args.id, args.text, args.title)
        settings = (columns, args.remove_all, open_encoder(args.encoder), None, (args.include, args.exclude))
        plan = folder_sync()(
            args.folder, args.index, (), *settings, memory_bytes(args.vectors_up_to, "vectors_up_to")
        )
        if args.dry_run:
            return plan.report()
        opened = _opened(args, create=True, searchable=FILE_FIELDS)
    with opened as index:
        return index.sync(
            args.folder,
            id=args.id,
            text=args.text,
            title=args.title,
            dry_run=args.dry_run,
            remove_all=args.remove_all,
            include=args.include,
            exclude=args.exclude,
            vectors_up_to=args.vectors_up_to,
            progress=reported("adding"),
        )


def _opened(args: argparse.Namespace, **created: Any) -> engine.Engine:  # noqa: ANN401  # how it is created
    resources = {"encoder": args.encoder, "threads": args.threads}
    return engine.Engine.open(args.index, writable=not args.dry_run, **resources, **created)


def _lines(report: SyncReport) -> list[str]:
    """A line for each file that has changed, and one with the numbers."""
    from quarry.engine.search.hits.hits import snippet

    marks = (("+", report.added), ("~", report.changed), ("-", report.removed), ("0", report.empty))
    lines = [f"{mark} {snippet(name, 200)}{_origin(report, name)}" for mark, names in marks for name in names]
    for mark, reasons in ((".", report.left_out), ("!", report.failed)):
        for reason in dict.fromkeys(reasons.values()):
            names = [snippet(name, 200) for name, why in reasons.items() if why == reason]
            more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
            lines.append(f"{mark} {', '.join(names[:_NAMES])}{more}: {snippet(reason, 400)}")
    counts = ((len(report.added), "added"), (len(report.changed), "changed"), (len(report.removed), "removed"))
    ends = ((len(report.failed), "failed"), (len(report.empty), "without text"), (report.n_unchanged, "unchanged"))
    left_out = [(len(report.left_out), "left out")] if report.left_out else []
    left_out += [(len(report.by_words), "by words alone")] if report.by_words else []
    state = "nothing was changed" if report.generation is None else f"generation {report.generation}"
    return [*lines, ", ".join(f"{count} {what}" for count, what in (*counts, *ends, *left_out)) + f"; {state}"]


def _origin(report: SyncReport, name: str) -> str:
    from quarry.engine.search.hits.hits import snippet

    if name in report.by_words:
        return " (large: found by words alone)"
    return f" (was {snippet(report.moved[name], 200)})" if name in report.moved else ""
