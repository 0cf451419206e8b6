"""Serve indexes to clients of language models, by the Model Context Protocol over standard input and output."""

from __future__ import annotations

import argparse
import contextlib
import reprlib
import threading
from collections.abc import Sequence
from pathlib import Path

from quarry.engine.cli.words import name_indexes, parse_path
from quarry.engine.process.libraries import requiring
from quarry.formats.errors import InvalidSetting

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``quarry mcp``."""
    parser.add_argument(
        "index", metavar="INDEX", nargs="+", help="the folder of an index, or NAME=FOLDER to name it for clients"
    )
    parser.add_argument("--writable", action="store_true", help="let clients add and delete documents")
    parser.add_argument(
        "--sync",
        metavar="NAME=FOLDER",
        action="append",
        default=[],
        help="with --writable, let clients bring the index NAME up to date with the files of FOLDER, one for each",
    )
    parser.add_argument("--encoder", type=parse_path, metavar="FOLDER", help="encoder bundle of all indexes")


def run(args: argparse.Namespace) -> int:
    """Run ``quarry mcp`` until the client closes standard input; return the exit status.

    Raises:
        QuarryError: an index cannot be opened, or a setting is not valid; BackendUnavailable if the library of the
            protocol is not installed.
    """
    with requiring("the library of the Model Context Protocol is not installed", "'quarry-search[mcp]'"):
        from quarry.integrations.mcp_server import make_server
    from quarry.engine import open_encoder
    from quarry.integrations.open_index import OpenIndex

    encoder = None if args.encoder is None else open_encoder(args.encoder)
    synced = _followed_folders(args.sync)
    with contextlib.ExitStack() as stack:
        indexes = {
            name: stack.enter_context(contextlib.closing(OpenIndex(path, encoder, create=False)))
            for name, path in name_indexes(args.index).items()
        }
        for index in indexes.values():
            index.check_encoder()
        encoders = {id(each): each for each in (index.encoder for index in indexes.values())}
        for each in encoders.values():
            threading.Thread(target=each.encode_query, args=("load the model",), daemon=True).start()
        make_server(indexes, is_writable=args.writable, synced=synced).run("stdio")
    return 0


def _followed_folders(words: Sequence[str]) -> dict[str, Path]:
    """Return the folders of NAME=FOLDER by the names of the indexes that follow them.

    Raises:
        InvalidSetting: a word is not of this form, there is no such folder, or an index would follow two.
    """
    folders: dict[str, Path] = {}
    for word in words:
        name, _, folder = word.partition("=")
        if not name or not folder:
            raise InvalidSetting(
                "--sync needs an index and a folder", expected="NAME=FOLDER", actual=reprlib.repr(word)
            )
        if not Path(folder).is_dir():
            raise InvalidSetting(
                "there is no such folder to follow", path=folder, expected="NAME=FOLDER", actual=reprlib.repr(word)
            )
        if name in folders:
            raise InvalidSetting(
                "clients can bring an index up to date with only one folder",
                expected="one --sync of it",
                actual=name,
            )
        folders[name] = Path(folder)
    return folders
