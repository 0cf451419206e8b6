"""Write a collection into a folder, in BEIR's layout: `docstrings` is made from Python's standard library."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from bench.data.collections import add_collection, data_folder

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench collection``."""
    add_collection(parser, is_sized=False)
    parser.add_argument("--out", type=Path, help="a new folder to copy it to; without it, only print if it is")


def run(args: argparse.Namespace) -> int:
    """Print the folder of the collection, after it was copied if that was requested."""
    folder = data_folder(args.collection)
    if args.out is not None and not args.out.exists():
        shutil.copytree(folder, args.out)
    print(args.out or folder)
    return 0
