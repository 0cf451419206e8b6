"""The command ``quarry``: builds, searches, changes and inspects indexes.

Heavy modules are imported when a command runs, so that ``quarry --help`` is fast.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import errno
import io
import json
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeAlias, cast

from quarry import engine
from quarry.engine.cli import evaluation_commands, export_docs_command, sync_command
from quarry.engine.cli.completion_command import SHELLS, completion_script
from quarry.engine.cli.demo import run_demo
from quarry.engine.cli.output import (
    format_facets,
    format_hit,
    print_error,
    print_lines,
    printable,
    reported,
)
from quarry.engine.cli.words import decode_text, parse_filter_option, parse_object, parse_path
from quarry.formats.errors import InvalidQuery, InvalidSetting, QuarryError

__all__ = ["main"]

_EXIT_CODES_HELP = """\
exit codes:
  0    done
  1    an error, reported in one line on standard error
  2    wrong usage
  130  interrupted
"""
_GROUPS = {
    "make and search": ("demo", "build", "sync", "search"),
    "change": ("add", "delete", "add-indexes", "reencode", "upgrade", "merge"),
    "inspect and copy": ("info", "verify", "export-docs", "snapshot"),
    "quality": ("eval", "tune"),
    "serve": ("serve", "mcp"),
    "models": ("encoders", "export", "train", "plan"),
}
_PLUGINS = "quarry.commands"
_DEMO_FOLDER = Path(".demo")

_Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the command line after ``quarry``; None: that of the process.

    Returns:
        The exit code: 0, 1 for an error of Quarry or of the operating system, 130 when interrupted.

    Raises:
        SystemExit: with code 2 after wrong usage, with 0 after help.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    _make_printable(sys.stdout, "replace")
    _make_printable(sys.stderr, "backslashreplace")
    args = make_parser(words).parse_args(words)
    try:
        with _warnings_in_one_line():
            code = cast("int", args.run(args))
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print_error("interrupted")
        return 130
    except (QuarryError, OSError) as error:
        if _is_broken_pipe(error):  # the reader of standard output has stopped
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print_error(". ".join([str(error), *getattr(error, "__notes__", [])]))
        return 1
    return code


def _is_broken_pipe(error: Exception) -> bool:
    """Return whether the other end of a pipe was closed; for Windows, that is an argument which is not valid."""
    return isinstance(error, BrokenPipeError) or (
        sys.platform == "win32"
        and isinstance(error, OSError)
        and (error.errno, error.filename) == (errno.EINVAL, None)
    )


def _make_printable(stream: object, errors: str) -> None:
    """Replace characters that a stream's encoding lacks, unless nobody has chosen it: then it becomes UTF-8.

    ASCII is the default without a locale, a code page that of pipes on Windows.
    """
    if isinstance(stream, io.TextIOWrapper):
        is_default = codecs.lookup(stream.encoding).name == "ascii" or (
            sys.platform == "win32" and "PYTHONIOENCODING" not in os.environ
        )
        stream.reconfigure(encoding="utf-8" if is_default else None, errors=errors)


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print warnings of Quarry like errors, in one line; warnings of libraries are shown as usual."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **to: Any) -> None:  # noqa: ANN401
            if issubclass(category, engine.UnknownFieldWarning):
                print_error(f"warning: {message}")
            else:
                usual(message, category, *where, **to)

        warnings.showwarning = show
        yield


def make_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    return _parser_and_commands(words)[0]


def _parser_and_commands(words: Sequence[str]) -> tuple[argparse.ArgumentParser, _Subparsers]:
    parser: argparse.ArgumentParser = _Parser(
        prog="quarry",
        usage="quarry [-h] [--version] COMMAND ...",
        description="Semantic search over your own texts, in your own process.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(prog="quarry", dest="COMMAND", required=True, help=argparse.SUPPRESS)
    for add in (
        _add_demo,
        _add_build,
        _add_sync,
        _add_search,
        _add_add,
        _add_delete,
        _add_add_indexes,
        _add_reencode,
        _add_upgrade,
        _add_merge,
        _add_info,
        _add_verify,
        _add_encoders,
        _add_export_docs,
        _add_snapshot,
        _add_eval,
        _add_tune,
        _add_completion,
    ):
        add(commands)
    if not words or words[0] not in commands.choices:
        _add_plugins(commands, words[0] if words else "")
    parser.epilog = _list_commands(commands.choices) + _EXIT_CODES_HELP
    return parser, commands


def _list_commands(parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return the commands with their summaries, in groups; argparse lists them in one."""
    others = tuple(name for name in parsers if not any(name in names for names in _GROUPS.values()))
    width = min(shutil.get_terminal_size().columns, 120) - 2
    lines = []
    for title, names in {**_GROUPS, "others": others}.items():
        lines.append(f"{title}:")
        for name in names:
            if name in parsers:
                summary = parsers[name].description or ""
                lines += textwrap.wrap(
                    f"  {name:<13}{summary}", max(width, 40), subsequent_indent=" " * 15, break_on_hyphens=False
                )
        lines.append("")
    return "\n".join(lines) + "\n"


class _Parser(argparse.ArgumentParser):
    """A parser whose messages quote words, such as names of files, without control characters."""

    def _print_message(self, message: str, file: Any = None) -> None:  # noqa: ANN401
        super()._print_message(printable(message, "\n"), file)


class _Version(argparse.Action):
    """Prints the version, which is looked up only when requested."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"quarry {engine.__version__}")
        parser.exit()


def _add_plugins(commands: _Subparsers, name: str) -> None:
    """Add the commands of higher layers: the named one, or all of them for ``--help``."""
    plugins = sorted(entry_points(group=_PLUGINS), key=lambda entry: entry.name)
    for entry in [entry for entry in plugins if entry.name == name] or plugins:
        try:
            module = entry.load()
        except Exception as error:  # other commands must work if one is broken
            print_error(f"the command {entry.name!r} cannot be loaded: {error}")
            continue
        parser = _add_command(commands, entry.name, (module.__doc__ or "").partition("\n")[0], module.run)
        module.add_arguments(parser)


def _add_command(
    commands: _Subparsers, name: str, summary: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, description=summary)
    parser.set_defaults(run=run)
    return parser


def _add_json(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"print {what}, for programs")


def _add_index(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="INDEX", type=parse_path, help="the folder of the index")


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="SOURCE",
        type=parse_path,
        help="documents: a table, JSON, a text, a PDF or other file, or a folder",
    )
    sync_command.add_columns(parser)


def _add_encoder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--encoder",
        type=parse_path,
        help="folder of an encoder bundle, or name of one that is installed (quarry encoders) "
        "(default: the bundled encoder of the index; for a new one quarry-minilm-l6)",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="number of threads (default: all processors)")


def _add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait", type=float, metavar="SECONDS", help="how long to wait while another process writes to the index"
    )


def _add_demo(commands: _Subparsers) -> None:
    parser = _add_command(
        commands, "demo", "index the docstrings of Python's library and ask a few questions", _run_demo_command
    )
    parser.add_argument(
        "folder",
        type=parse_path,
        nargs="?",
        default=_DEMO_FOLDER,
        help=f"folder of the index, which is reused (default: {_DEMO_FOLDER})",
    )
    _add_json(parser, "one JSON object")


def _run_demo_command(args: argparse.Namespace) -> int:
    return run_demo(args.folder, args.json)


def _add_build(commands: _Subparsers) -> None:
    parser = _add_command(commands, "build", "build an index of a collection of documents", _run_build)
    _add_source(parser)
    _add_index(parser)
    _add_encoder(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace an index that exists")
    parser.add_argument("--skip-invalid", action="store_true", help="skip invalid documents and count them")
    parser.add_argument(
        "--representation",
        metavar="NAME",
        help="how a document becomes vectors: pieces (default), kmeans, ...",
    )
    parser.add_argument(
        "--language",
        help="language of the texts: english, german, ..., none, or auto: that of each passage (default: english;"
        " with a multilingual encoder auto)",
    )
    parser.add_argument(
        "--searchable",
        metavar="FIELD",
        action="append",
        help="a field of metadata that is found by words, too; may be repeated (default: paths and addresses)",
    )
    parser.add_argument(
        "--field-weights",
        metavar="JSON",
        help='how often words of the title and of searchable fields count: {"title": 2}',
    )
    parser.add_argument(
        "--centroids",
        metavar="TYPE",
        help="how vectors are stored: int8 (default), float16, or none: only codes, the smallest index",
    )
    parser.add_argument(
        "--code-bytes",
        type=int,
        metavar="N",
        help="bytes of a vector's PQ code (default: 48, or what fits the dimensions)",
    )
    parser.add_argument("--shards", type=int, metavar="N", help="divide the documents among N folders")
    parser.add_argument("--workers", type=int, metavar="N", help="encode with N processes, each on one thread")
    parser.add_argument(
        "--like", type=parse_path, metavar="INDEX", help="take settings and quantizer of another index"
    )
    _add_json(parser, "the report as one JSON object")


def _run_build(args: argparse.Namespace) -> int:
    given = {name: getattr(args, name) for name in ("language", "searchable", "centroids", "code_bytes")}
    if args.field_weights is not None:
        given["field_weights"] = parse_object(args.field_weights, "--field-weights", InvalidSetting)
    report = engine.build(
        args.source,
        args.index,
        id=args.id,
        text=args.text,
        title=args.title,
        encoder=args.encoder,
        representation=args.representation,
        overwrite=args.overwrite,
        skip_invalid=args.skip_invalid,
        threads=args.threads,
        shards=args.shards,
        workers=args.workers,
        like=args.like,
        progress=reported("building"),
        **cast("Any", {name: value for name, value in given.items() if value is not None}),
    )
    _print_fields(asdict(report), args.json)
    return 0


def _add_search(commands: _Subparsers) -> None:
    parser = _add_command(commands, "search", "search an index; ends with 1 if nothing is found", _run_search)
    _add_index(parser)
    parser.add_argument(
        "query",
        metavar="QUERY",
        type=decode_text,
        nargs="*",
        help="a text; - reads one per line from standard input; none: all documents that pass --filter",
    )
    parser.add_argument(
        "--like", metavar="ID", type=decode_text, help="search for documents like this one instead"
    )
    _add_encoder(parser)
    parser.add_argument("-k", type=int, default=10, help="number of hits (default: 10)")
    parser.add_argument("--offset", type=int, default=0, metavar="N", help="leave out the first N hits")
    parser.add_argument("--unit", default="document", help="what is found: document (default) or passage")
    parser.add_argument(
        "--context", type=int, default=0, metavar="N", help="with --unit passage --json, N passages around each"
    )
    parser.add_argument(
        "--sort",
        metavar="FIELD",
        type=decode_text,
        action="append",
        help="sort by a metadata field, by --sort=-FIELD from the largest; several, the first one decides",
    )
    parser.add_argument(
        "--boost",
        metavar="JSON",
        type=decode_text,
        help="""what fields add to scores, such as '{"date": {"recency": {"half_life": "30d"}}}'""",
    )
    parser.add_argument(
        "--group-by", metavar="FIELD", type=decode_text, help="show k groups of hits with one value of a field"
    )
    parser.add_argument("--group-size", type=int, default=1, metavar="N", help="hits of a group (default: 1)")
    parser.add_argument("--total", action="store_true", help="count the documents that match")
    parser.add_argument("--explain", action="store_true", help="show the passages that matched")
    parser.add_argument(
        "--mode", default="hybrid", help="hybrid (default), dense (by meaning) or lexical (by words)"
    )
    parser.add_argument(
        "--filter",
        metavar="JSON",
        type=decode_text,
        help="""condition on metadata, id and title, such as '{"year": {"$gte": 2020}}'""",
    )
    parser.add_argument(
        "--facets",
        metavar="FIELD",
        type=decode_text,
        action="append",
        default=[],
        help="count the values of a metadata field in all documents that have a word of the query",
    )
    parser.add_argument(
        "--operators",
        action=argparse.BooleanOptionalAction,
        help='whether "phrases", prefix*, -word, +word and field:value are operators; by default phrases raise '
        "documents, and prefixes are found in lexical mode",
    )
    parser.add_argument(
        "--typos", action=argparse.BooleanOptionalAction, default=True, help="whether typing errors are corrected"
    )
    parser.add_argument("--prefix", action="store_true", help="the last word is the beginning of a word")
    parser.add_argument("--fusion", default="linear", help="of hybrid scores: linear (default) or rrf")
    parser.add_argument(
        "--dense-weight",
        type=float,
        metavar="W",
        help="weight of dense scores, from 0 to 1 (default: of the index)",
    )
    parser.add_argument("--candidates", type=int, metavar="N", help="documents that are scored exactly")
    parser.add_argument("--nprobe", type=int, metavar="N", help="inverted lists that are read")
    parser.add_argument("--reranker", type=parse_path, metavar="BUNDLE", help="folder of a cross-encoder's bundle")
    parser.add_argument("--rerank", type=int, metavar="N", help="score the first N hits again by the reranker")
    parser.add_argument("--partial", action="store_true", help="leave out shards that fail or are late")
    parser.add_argument(
        "--min-relevance", type=float, metavar="P", help="leave out hits that are less relevant, from 0 to 1"
    )
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="how long shards have to answer")
    _add_json(parser, "one JSON object per query")
    parser.set_defaults(fail=parser.error)


def _run_search(args: argparse.Namespace) -> int:
    is_limited = any((args.filter, args.sort, args.boost, args.group_by))
    queries = args.query or ([""] if args.like is None and is_limited else [])
    if bool(queries) == (args.like is not None):
        args.fail("one of QUERY and --like is required, or --filter, --sort, --boost or --group-by without both")
    only = parse_filter_option(args.filter)
    from quarry.engine.options import SearchKeywords

    options = {name: value for name, value in vars(args).items() if name in SearchKeywords.__annotations__}
    options["filter"] = only
    if args.boost is not None:
        options["boost"] = parse_object(args.boost, "--boost", InvalidSetting)
    n_hits = 0
    with engine.Engine.open(
        args.index, encoder=args.encoder, threads=args.threads, reranker=args.reranker
    ) as index:
        for query in [None] if args.like is not None else _read_queries(queries):
            hits = index.search(query, k=args.k, **options)
            facets = [
                index.facets(field, query=query or None, filter=only, operators=args.operators, prefix=args.prefix)
                for field in args.facets
            ]
            about = {"like": args.like} if query is None else {"query": query}
            _print_hits(about, hits, facets, args.json)
            n_hits += len(hits)
    return 0 if n_hits else 1


def _read_queries(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if word != "-":
            yield word
            continue
        for number, line in enumerate(sys.stdin.buffer, 1):
            try:
                query = line.decode().strip()
            except UnicodeDecodeError as error:
                raise InvalidQuery(f"standard input, line {number}: not UTF-8 at byte {error.start}") from error
            if query:
                yield query


def _print_hits(
    about: Mapping[str, str], hits: engine.Hits, facets: Sequence[engine.Facets], as_json: bool
) -> None:
    """Print the answer to a query, or to the document that hits are like."""
    if as_json:
        printed: dict[str, object] = {
            **about,
            "exactness": hits.exactness,
            "total": hits.total,
            "hits": [hit.to_dict() for hit in hits],
        }
        if hits.coverage is not None:
            printed["coverage"] = hits.coverage.to_dict()
        if facets:
            printed["facets"] = [each.to_dict() for each in facets]
        print(json.dumps(printed), flush=True)
        return
    print_lines(*about.values())
    if hits.coverage is not None and not hits.coverage.is_complete:
        reached = f"{hits.coverage.n_reached} of {hits.coverage.n_documents} documents were searched"
        print_error(f"warning: {reached}; missing: {', '.join(hits.coverage.missing)}")
    if hits.total is not None:
        print(f"  {hits.total} found")
    for number, hit in enumerate(hits):
        if hit.group is not None and (not number or hit.group != hits[number - 1].group):
            print_lines(f"  {hit.group}:")
        print(*format_hit(hit, sys.stdout), sep="\n")
    if hits.answerable is False:
        print("  no good answer: no hit has a relevance of .5" if hits else "  no hits")
    for each in facets:
        print_lines(*format_facets(each))
    print(flush=True)


def _add_add(commands: _Subparsers) -> None:
    parser = _add_command(
        commands, "add", "add documents to an index; a document with the same id is replaced", _run_add
    )
    _add_index(parser)
    _add_source(parser)
    _add_encoder(parser)
    _add_wait(parser)
    _add_json(parser, "one JSON object")


def _run_add(args: argparse.Namespace) -> int:
    with engine.Engine.open(
        args.index, writable=True, wait=args.wait, encoder=args.encoder, threads=args.threads
    ) as index:
        n_added = index.add(args.source, id=args.id, text=args.text, title=args.title, progress=reported("adding"))
        generation = index.commit()
        _print_fields({"n_added": n_added - generation.n_replaced, "generation": generation}, args.json)
    return 0


def _add_delete(commands: _Subparsers) -> None:
    parser = _add_command(commands, "delete", "delete documents from an index", _run_delete)
    _add_index(parser)
    parser.add_argument(
        "ids",
        metavar="ID",
        type=decode_text,
        nargs="*",
        help="id of a document; an unknown id is ignored",
    )
    parser.add_argument(
        "--filter", metavar="JSON", type=decode_text, help="delete the documents that pass this filter instead"
    )
    _add_wait(parser)
    _add_json(parser, "one JSON object")


def _run_delete(args: argparse.Namespace) -> int:
    with engine.Engine.open(args.index, writable=True, wait=args.wait) as index:
        n_deleted = index.delete(args.ids or None, filter=parse_filter_option(args.filter))
        _print_fields({"n_deleted": n_deleted, "generation": index.commit()}, args.json)
    return 0


def _add_sync(commands: _Subparsers) -> None:
    parser = _add_command(commands, "sync", sync_command.SUMMARY, sync_command.run)
    sync_command.add_arguments(parser)
    _add_encoder(parser)
    _add_json(parser, "the report as one JSON object")


def _add_add_indexes(commands: _Subparsers) -> None:
    parser = _add_command(
        commands,
        "add-indexes",
        "take the documents of other indexes over, without encoding again",
        _run_add_indexes,
    )
    _add_index(parser)
    parser.add_argument("others", metavar="OTHER", type=parse_path, nargs="+", help="the folder of another index")
    _add_wait(parser)
    _add_json(parser, "the report as one JSON object")


def _run_add_indexes(args: argparse.Namespace) -> int:
    with engine.Engine.open(args.index, writable=True, wait=args.wait) as index:
        _print_fields(asdict(index.add_indexes(args.others)), args.json)
    return 0


def _add_eval(commands: _Subparsers) -> None:
    parser = _add_command(commands, "eval", evaluation_commands.EVAL_SUMMARY, evaluation_commands.run_eval)
    _add_index(parser)
    evaluation_commands.add_eval_arguments(parser)
    _add_encoder(parser)
    _add_json(parser, "one JSON object")


def _add_tune(commands: _Subparsers) -> None:
    parser = _add_command(commands, "tune", evaluation_commands.TUNE_SUMMARY, evaluation_commands.run_tune)
    _add_index(parser)
    evaluation_commands.add_tune_arguments(parser)
    _add_encoder(parser)
    _add_json(parser, "one JSON object")


def _add_export_docs(commands: _Subparsers) -> None:
    parser = _add_command(commands, "export-docs", export_docs_command.SUMMARY, export_docs_command.run)
    _add_index(parser)
    export_docs_command.add_arguments(parser)
    _add_json(parser, "a report as one JSON object, if FILE is not standard output")


def _add_merge(commands: _Subparsers) -> None:
    parser = _add_command(
        commands, "merge", "merge the segments of an index, which makes it smaller and faster", _run_merge
    )
    _add_index(parser)
    parser.add_argument("--retrain", action="store_true", help="retrain the quantizer on the current documents")
    parser.add_argument(
        "--graphs", action="store_true", help="write HNSW graphs, with which searches take more memory"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="number of threads (default: all processors)")
    _add_json(parser, "one JSON object")


def _run_merge(args: argparse.Namespace) -> int:
    with engine.Engine.open(args.index, writable=True, threads=args.threads) as index:
        generation = index.merge(retrain=args.retrain, progress=reported("merging"))
        n_graphs = index.optimize(progress=reported("writing graphs of")) if args.graphs else 0
        fields = {
            "generation": generation,
            "n_segments": index.stats()["n_segments"],
            "n_graphs_written": n_graphs,
        }
        _print_fields(fields, args.json)
    return 0


def _add_reencode(commands: _Subparsers) -> None:
    parser = _add_command(
        commands, "reencode", "encode all documents of an index with another encoder", _run_reencode
    )
    _add_index(parser)
    _add_encoder(parser)
    _add_wait(parser)
    _add_json(parser, "one JSON object")


def _run_reencode(args: argparse.Namespace) -> int:
    with engine.Engine.open(args.index, writable=True, wait=args.wait, threads=args.threads) as index:
        generation = index.reencode(args.encoder, progress=reported("reencoding"))
        _print_fields({"generation": generation, "encoder": index.stats()["encoder"]}, args.json)
    return 0


def _add_upgrade(commands: _Subparsers) -> None:
    parser = _add_command(
        commands, "upgrade", "divide the documents of an older index into passages, without encoding", _run_upgrade
    )
    _add_index(parser)
    _add_encoder(parser)
    _add_wait(parser)
    _add_json(parser, "one JSON object")


def _run_upgrade(args: argparse.Namespace) -> int:
    with engine.Engine.open(
        args.index, writable=True, wait=args.wait, encoder=args.encoder, threads=args.threads
    ) as index:
        generation = index.upgrade(progress=reported("dividing"))
        _print_fields({"generation": generation, "n_passages": index.stats()["n_passages"]}, args.json)
    return 0


def _add_info(commands: _Subparsers) -> None:
    parser = _add_command(commands, "info", "show the statistics of an index", _run_info)
    _add_index(parser)
    _add_json(parser, "one JSON object")


def _run_info(args: argparse.Namespace) -> int:
    with engine.Engine.open(args.index) as index:
        _print_fields(index.stats(), args.json)
    return 0


def _add_verify(commands: _Subparsers) -> None:
    parser = _add_command(commands, "verify", "read and check every byte of an index", _run_verify)
    _add_index(parser)
    _add_json(parser, "one JSON object")


def _run_verify(args: argparse.Namespace) -> int:
    from quarry.engine.index.verification import verify_index
    from quarry.formats.container.directory import Directory

    report = verify_index(Directory(Path(args.index)))  # opening it would stop at the first damage
    _print_fields(asdict(report), args.json)
    return 0


def _add_encoders(commands: _Subparsers) -> None:
    parser = _add_command(commands, "encoders", "list the encoders that are installed", _run_encoders)
    _add_json(parser, "one JSON object for each")


def _run_encoders(args: argparse.Namespace) -> int:
    from quarry.engine.bundled import BUNDLED, DEFAULT_NAME, INSTALLABLE
    from quarry.engine.extensions import distributions_of, registered_names

    registered = sorted(registered_names("encoder").difference(BUNDLED))
    found = dict.fromkeys(BUNDLED, "part of Quarry")
    found |= {name: distributions_of("encoder", name) for name in registered}
    found[DEFAULT_NAME] += ", the default"
    found |= {
        name: f"not installed: {each.distribution}" for name, each in INSTALLABLE.items() if name not in registered
    }
    for name, origin in found.items():
        if args.json:
            print_lines(json.dumps({"name": name, "origin": origin, "installed": name in {*BUNDLED, *registered}}))
        else:
            print_lines(f"{name}: {origin}")
    return 0


def _add_snapshot(commands: _Subparsers) -> None:
    parser = _add_command(
        commands, "snapshot", "copy an index to another folder, by hard links if possible", _run_snapshot
    )
    _add_index(parser)
    parser.add_argument("path", metavar="PATH", type=parse_path, help="the folder of the copy")
    _add_json(parser, "the report as one JSON object")


def _run_snapshot(args: argparse.Namespace) -> int:
    with engine.Engine.open(args.index) as index:
        _print_fields(asdict(index.snapshot(args.path)), args.json)
    return 0


def _add_completion(commands: _Subparsers) -> None:
    parser = _add_command(
        commands, "completion", "print a script that completes commands and options in a shell", _run_completion
    )
    parser.add_argument("shell", choices=SHELLS, help='such as: eval "$(quarry completion bash)"')


def _run_completion(args: argparse.Namespace) -> int:
    print(completion_script(args.shell, _parser_and_commands(())[1].choices))
    return 0


def _print_fields(fields: Mapping[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps(fields))
        return
    for name, value in _flatten(fields):
        print_lines(f"{name:<28} {value:.3f}" if isinstance(value, float) else f"{name:<28} {value}")


def _flatten(fields: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        elif isinstance(value, tuple):
            yield from ((prefix + name, each) for each in value)
        else:
            yield prefix + name, value
