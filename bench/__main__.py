"""Measurements by name: ``python -m bench NAME ...``; see ``python -m bench NAME --help`` and bench/README.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from bench.data.collections import CollectionNotFound
from quarry.engine import QuarryError

__all__ = ["COMMANDS", "Command", "main", "make_parser"]


_INSTALL = {
    **dict.fromkeys(("bm25s", "ir_measures", "matplotlib"), "'.[bench]'"),
    **dict.fromkeys(("prometheus_client", "starlette", "uvicorn"), "'.[server]'"),
}


class Command(NamedTuple):
    """A measurement.

    Attributes:
        module: module of `bench` with ``add_arguments(parser)`` and ``run(arguments)``, which returns a status.
        summary: what it measures.
        needs: modules that are not dependencies of Quarry.
    """

    module: str
    summary: str
    needs: tuple[str, ...] = ()


COMMANDS = {
    "collection": Command("data.collections", "print the folder of a collection, or copy it"),
    "prepare": Command("data.prepare", "encode a collection once for tradeoff and peers"),
    "figures": Command("system.figures", "the main figures, compared with their targets", ("ir_measures",)),
    "panel": Command(
        "panel.command", "many collections in one table, and the rule for ranking", ("ir_measures", "bm25s")
    ),
    "ensembles": Command(
        "panel.ensembles", "several encoders together, as teachers of another", ("ir_measures", "bm25s")
    ),
    "tradeoff": Command(
        "sweep.tradeoff", "quality, speed, memory and size by setting, with plots", ("ir_measures", "matplotlib")
    ),
    "peers": Command("peers.command", "Quarry and other libraries in one run", ("ir_measures",)),
    "report": Command("sweep.report", "tables and plots of raw results", ("matplotlib",)),
    "judge": Command("data.quality", "quality of a TREC run file", ("ir_measures",)),
    "relevance": Command(
        "training.relevance", "whether relevance tells queries that a collection answers from others"
    ),
    "between_languages": Command(
        "training.between_languages", "the relevance of hits in another language than the question"
    ),
    "trained_encoders": Command("training.encoders", "trained encoders and the bundled one", ("ir_measures",)),
    "durability": Command("system.durability", "commits, merges, updates, and searches during merges"),
    "ingest": Command("system.ingest", "documents with given vectors, and columns, beside FAISS"),
    "shards": Command(
        "system.shards", "builds with several processes, queries over shards, in process and served"
    ),
    "serve": Command(
        "system.serving",
        "requests a second of a server while documents are added",
        ("prometheus_client", "starlette", "uvicorn"),
    ),
    "small": Command("system.small", "memory of builds and searches within the limits of a control group"),
    "machine": Command("system.machine", "quality on this machine, such as an emulated one"),
    "gpu": Command("gpu.command", "all checks and timings of the GPU backend", ("torch",)),
}
"""Measurements by the name that runs them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one measurement.

    Args:
        arguments: the name and arguments of the measurement; None: those of the process.

    Returns:
        The exit status of the measurement; 1 if something it needs is missing; 2 for an unknown name.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in COMMANDS:
        lines = [f"  {name:<16} {command.summary}" for name, command in COMMANDS.items()]
        print("usage: python -m bench NAME ...", "", *lines, sep="\n", file=sys.stderr)
        return 0 if words in (["-h"], ["--help"]) else 2
    name, command = words[0], COMMANDS[words[0]]
    missing = [module for module in command.needs if find_spec(module) is None]
    if missing:
        return _fail(name, _suggest_install(missing))
    try:
        module = import_module(f"bench.{command.module}")
        return int(module.run(make_parser(name).parse_args(words[1:])))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("bench", "quarry"):
            raise
        return _fail(name, _suggest_install([error.name]))
    except (CollectionNotFound, QuarryError) as error:
        return _fail(name, str(error))


def make_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of a measurement's arguments."""
    module = import_module(f"bench.{COMMANDS[name].module}")
    parser = argparse.ArgumentParser(prog=f"python -m bench {name}", description=module.__doc__)
    module.add_arguments(parser)
    return parser


def _suggest_install(modules: list[str]) -> str:
    packages = dict.fromkeys(_INSTALL.get(module, module) for module in modules)
    return f"needs {', '.join(modules)}, not installed here: pip install {' '.join(packages)}"


def _fail(name: str, message: str) -> int:
    print(f"python -m bench {name}: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
