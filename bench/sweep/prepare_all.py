"""Encode a collection for all that the sweep, the comparison with other libraries and the paper's table need."""

from __future__ import annotations

import argparse

from bench.data.collections import add_collection, load_collection
from bench.data.prepare import prepare
from bench.data.prepared import cache_folder
from bench.sweep.grid import representations
from quarry.engine.encoding.encoder import open_encoder

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench prepare``."""
    add_collection(parser, queries=1000)


def run(args: argparse.Namespace) -> int:
    """Encode the collection with the bundled encoder and print the folder in the cache."""
    print(prepare(load_collection(args), open_encoder(), representations(quick=False), cache_folder()).folder)
    return 0
