"""The measurements by name: ``python -m bench NAME ...``; ``python -m bench NAME --help`` says more."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

__all__ = ["COMMANDS", "Command", "main"]


class Command(NamedTuple):
    """A measurement.

    Attributes:
        module: below `bench`; has ``add_arguments(parser)`` and ``run(arguments) -> exit status``.
        summary: what it measures.
    """

    module: str
    summary: str


COMMANDS = {
    "readme": Command("readme.everything", "everything the README quotes, one after another"),
    "figures": Command("readme.figures", "the figures of the README, set against their targets"),
    "prepare": Command("data.prepare", "encode a collection for all that follows"),
    "tradeoff": Command(
        "sweep.tradeoff", "quality, speed, memory and bytes of Quarry's settings: a sweep with plots"
    ),
    "peers": Command("peers.command", "Quarry beside other libraries, in one run"),
    "encode": Command("system.encode", "encoders: tokens a second, time of a query, time to start, quality"),
    "paper_table": Command("system.paper_table", "the times of the pseudo-query paper's Table 4"),
    "report": Command("sweep.report", "tables and plots of raw results"),
    "judge": Command("data.judge", "judge a TREC run file"),
    "backends": Command("decisions.backends", "stage-1 backends side by side on one index"),
    "graph_library": Command("decisions.graph_library", "hnswlib and FAISS, searching graphs of the same vectors"),
    "two_stage": Command(
        "decisions.two_stage", "two-stage search against bare FAISS, hnswlib and USearch on the same vectors"
    ),
    "untrained_codes": Command(
        "decisions.untrained_codes", "codes that need no training against a scan of small segments"
    ),
    "representation": Command("decisions.representation", "which representation finds best, for how many vectors"),
    "hybrid": Command("decisions.hybrid", "the weight of meaning against words"),
    "hybrid_latency": Command("decisions.hybrid_latency", "how long a query takes at size, by mode"),
    "export": Command("system.export", "what exporting an encoder takes, and starting what was exported"),
    "filters": Command("decisions.filters", "what a filter costs, by the share of documents that pass"),
    "ivf_switch": Command("decisions.ivf_switch", "from how many centroids on inverted lists pay"),
    "durability": Command(
        "system.durability", "what changing an index takes: commits, merges, what they leave behind"
    ),
    "gpu": Command("gpu.command", "all checks and timings of the GPU backend"),
    "trained_encoders": Command("training.encoders", "trained encoders beside the bundled one: nDCG@10"),
    "lexical": Command("decisions.lexical", "lexical search against bm25s"),
}
"""Measurements by the name that runs them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one measurement.

    Args:
        arguments: its name and its own arguments; None: the process's own.

    Returns:
        The exit status: that of the measurement, or 2 where there is no such one.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in COMMANDS:
        lines = [f"  {name:<16} {command.summary}" for name, command in COMMANDS.items()]
        print("usage: python -m bench NAME ...", "", *lines, sep="\n", file=sys.stderr)
        return 0 if words in (["-h"], ["--help"]) else 2
    module = import_module(f"bench.{COMMANDS[words[0]].module}")
    parser = argparse.ArgumentParser(prog=f"python -m bench {words[0]}", description=module.__doc__)
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(words[1:])))


if __name__ == "__main__":
    raise SystemExit(main())
