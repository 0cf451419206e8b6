"""Measures how long an index of documents takes to build when a slow function encodes them.

The function waits, as for a service, and returns vectors that take no time to compute. It is called with batches
of passages of many documents, one batch after another and several at once; for comparison, an encoder that is
called with one document at a time. All are built in turn, so that other load on the machine affects all of them.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.harness.latency import time_in_turn
from bench.harness.records import Record, add_out, append_result
from quarry.engine.builder import build
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.functions.function_encoder import FunctionEncoder
from quarry.engine.encoding.token_vectors import TokenVectors, VectorKind

__all__ = ["add_arguments", "run"]

_DIM = 384
_ONE_BY_ONE = "one document a call"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--documents", type=int, default=400, help="of 40 words, one passage each")
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 4], help="calls at once")
    parser.add_argument("--delay-ms", type=float, default=50.0, help="of a call")
    parser.add_argument("--runs", type=int, default=5)
    add_out(parser, "functions")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and record a median of each way."""
    for record in _measure(arguments):
        append_result(arguments.out, record)
        times = f"{record['build_s']:.3f} s, CPU {record['cpu_s']:.3f} s"
        print(f"{record['way']:<20} {record['calls']} calls, {times}")
    return 0


def _measure(arguments: argparse.Namespace) -> Iterator[Record]:
    service = _Service(arguments.delay_ms / 1e3)
    encoders: dict[str, Encoder] = {_ONE_BY_ONE: _OneByOne(service)}
    for in_flight in arguments.in_flight:
        encoders[f"{in_flight} calls at once"] = FunctionEncoder(
            service, dim=_DIM, name="slow", batch_size=arguments.batch_size, max_in_flight=in_flight
        )
    documents = [f"{'word ' * 39}number{number}." for number in range(arguments.documents)]
    n_calls: dict[str, int] = {}

    def build_with(name: str, path: Path) -> None:
        service.n_calls = 0
        build(documents, path / name, encoder=encoders[name], progress=False)
        n_calls[name] = service.n_calls

    with tempfile.TemporaryDirectory() as folder:
        ways = {name: partial(build_with, name) for name in encoders}
        timings = time_in_turn(ways, [Path(folder) / str(number) for number in range(arguments.runs)])
    for name, timing in timings.items():
        yield {
            "measurement": "functions",
            "way": name,
            "documents": arguments.documents,
            "batch_size": 1 if name == _ONE_BY_ONE else arguments.batch_size,
            "delay_ms": arguments.delay_ms,
            "runs": arguments.runs,
            "calls": n_calls[name],
            "build_s": statistics.median(timing.wall_ms.tolist()) / 1e3,
            "cpu_s": statistics.median(timing.cpu_ms.tolist()) / 1e3,
        }


class _Service:
    """An embedding function that takes the same time for any number of texts.

    Args:
        delay_s: of a call.

    Attributes:
        n_calls: number of calls so far.
    """

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._vectors = np.random.default_rng(0).standard_normal((4096, _DIM)).astype(np.float32)
        self._lock = threading.Lock()
        self.n_calls = 0

    def __call__(self, texts: list[str]) -> npt.NDArray[np.float32]:
        """Return (n, 384) float32: a vector for each length of a text."""
        with self._lock:
            self.n_calls += 1
        time.sleep(self._delay_s)
        return self._vectors[[len(text) for text in texts]]


class _OneByOne:
    """An `Encoder` that calls the function for each document; a document is one passage."""

    name = identity = "one by one"
    dim, normalize, beta = _DIM, True, None
    vector_kinds: frozenset[VectorKind] = frozenset({"token"})
    trained_representation = None

    def __init__(self, service: _Service) -> None:
        self._service = service

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Yield the document as one window of one token."""
        vectors = self._service([text])
        ends = np.array([len(text)], np.int64)
        yield TokenVectors(vectors, np.zeros(1, np.int64), ends, vectors[0], vectors[0])

    def encode_query(self, text: str) -> npt.NDArray[np.float32]:
        """Return the vector of a query."""
        vector: npt.NDArray[np.float32] = self._service([text])[0]
        return vector
