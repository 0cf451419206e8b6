"""The measurements by name: ``python -m bench NAME ...``; ``python -m bench NAME --help`` says more."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "readme": "everything the README quotes, one after another",
    "figures": "the figures of the README, set against their targets",
    "prepare": "encode a collection for all that follows",
    "tradeoff": "quality, speed, memory and bytes of Quarry's settings: a sweep with plots",
    "peers": "Quarry beside other libraries, in one run",
    "encode": "encoders: tokens a second, time of a query, time to start, quality",
    "paper_table": "the times of the pseudo-query paper's Table 4",
    "report": "tables and plots of raw results",
    "judge": "judge a TREC run file",
    "backends": "stage-1 backends side by side on one index",
    "graph_library": "hnswlib and FAISS, searching graphs of the same vectors",
    "two_stage": "two-stage search against bare FAISS, hnswlib and USearch on the same vectors",
    "untrained_codes": "codes that need no training against a scan of small segments",
    "representation": "which representation finds best, for how many vectors",
    "hybrid": "the weight of meaning against words",
    "hybrid_latency": "how long a query takes at size, by mode",
    "export": "what exporting an encoder takes, and starting what was exported",
    "filters": "what a filter costs, by the share of documents that pass",
    "ivf_switch": "from how many centroids on inverted lists pay",
    "durability": "what changing an index takes: commits, merges, what they leave behind",
    "gpu": "all checks and timings of the GPU backend",
    "lexical": "lexical search against bm25s",
}
"""Name of a module of this package -> what it measures."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one measurement.

    Args:
        arguments: its name and its own arguments; None: the process's own.

    Returns:
        The exit status: that of the measurement, or 2 where there is no such one.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in COMMANDS:
        lines = [f"  {name:<16} {what}" for name, what in COMMANDS.items()]
        print("usage: python -m bench NAME ...", "", *lines, sep="\n", file=sys.stderr)
        return 0 if words in (["-h"], ["--help"]) else 2
    module = import_module(f"bench.{'peers.command' if words[0] == 'peers' else words[0]}")
    parser = argparse.ArgumentParser(prog=f"python -m bench {words[0]}", description=module.__doc__)
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(words[1:])))


if __name__ == "__main__":
    raise SystemExit(main())
