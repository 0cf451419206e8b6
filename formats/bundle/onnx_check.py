"""Checks an untrusted ONNX graph before a runtime loads it.

A runtime opens other files that a graph refers to, and runs operators of every domain it knows. Here every node
and every tensor is visited, and a graph with a feature that bundles do not allow is refused. The data of tensors
is not read.

The format is Protocol Buffers (`quarry.formats.bundle.protobuf`); messages and field numbers are those of
onnx.proto (IR version 10).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from quarry.formats.bundle.protobuf import Field, read_fields
from quarry.formats.errors import CorruptFile
from quarry.formats.system_errors import system_errors

__all__ = ["MAX_GRAPH_BYTES", "OPERATOR_DOMAINS", "check_graph"]

MAX_GRAPH_BYTES: Final = 2**31 - 1
"""Maximum size of a graph; larger weights are in an external file."""

OPERATOR_DOMAINS: Final = frozenset({"", "ai.onnx", "com.microsoft"})
"""The domain of standard operators under both names, and that of ONNX Runtime."""

_MAX_DEPTH: Final = 8  # graphs within nodes of graphs
_MAX_MESSAGES: Final = 2**17  # enough for hundreds of layers; a runtime takes minutes to load more
_UNSAFE_OPERATORS: Final = {
    "EPContext": "names a compiled model in another file",
    "PythonOp": "calls Python functions by name",
    "PythonOpGrad": "calls Python functions by name",
    "Snpe": "holds a compiled model for another runtime",
    "TritonOp": "calls Python functions by name",
}  # of ONNX Runtime's own operators
_LOOP_OPERATORS: Final = frozenset({"Loop", "Scan", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"})

_MODEL_GRAPH, _MODEL_TRAINING, _MODEL_FUNCTIONS = 7, 20, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_SPARSE = 1, 5, 15
_NODE_OPERATOR, _NODE_ATTRIBUTE, _NODE_DOMAIN = 4, 5, 7
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS, _ATTRIBUTE_SPARSE = (5, 10), (6, 11), (22, 23)
_TENSOR_EXTERNAL, _TENSOR_LOCATION = 13, 14
_SPARSE_TENSORS = (1, 2)
_ENTRY_KEY, _ENTRY_VALUE = 1, 2


def check_graph(path: Path, data_sizes: Mapping[str, int]) -> None:
    """Raise CorruptFile if a file is not an ONNX graph or has features that bundles do not allow.

    Args:
        path: the file; it is mapped, not read.
        data_sizes: names of the files that its tensors may be in, with their sizes in bytes.

    Raises:
        CorruptFile: the file is not an ONNX model or larger than 2 GiB; a node's operator is of a domain not in
            `OPERATOR_DOMAINS`, or the operator itself refers to files or code outside the graph; a tensor is in
            another file or beyond its end; it has functions, training, loops, or graphs nested too deep; or it has
            too many parts.
        AccessFailed: the file cannot be read.
    """
    with system_errors("mapped", path), path.open("rb") as file:
        size = file.seek(0, 2)
        if not 0 < size <= MAX_GRAPH_BYTES:
            raise CorruptFile("a graph has 1 byte to 2 GiB", path=path, actual=f"{size} bytes")
        # Closed with the last view of it: frames of a traceback may have views.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _GraphCheck(path, dict(data_sizes)).check_model(memoryview(mapped))


@dataclass
class _GraphCheck:
    """One pass over a model."""

    path: Path
    data_sizes: dict[str, int]
    n_messages: int = 0

    def check_model(self, message: memoryview) -> None:
        n_graphs = 0
        for number, value, _, _ in self._read_fields(message):
            if number in (_MODEL_FUNCTIONS, _MODEL_TRAINING):
                self._refuse("the graph has functions or training", "operators only", number)
            if number == _MODEL_GRAPH:
                self._check_graph(self._expect_bytes(value), 0)
                n_graphs += 1
        if n_graphs != 1:
            self._refuse("the file is not an ONNX model", "one graph", n_graphs)

    def _check_graph(self, message: memoryview, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self._refuse("graphs are nested too deep", f"at most {_MAX_DEPTH}", depth)
        for number, value, _, _ in self._read_fields(message):
            if number == _GRAPH_NODE:
                self._check_node(self._expect_bytes(value), depth)
            elif number == _GRAPH_INITIALIZER:
                self._check_tensor(self._expect_bytes(value))
            elif number == _GRAPH_SPARSE:
                self._check_sparse_tensor(self._expect_bytes(value))

    def _check_node(self, message: memoryview, depth: int) -> None:
        operator = domain = ""
        for number, value, _, _ in self._read_fields(message):
            if number == _NODE_ATTRIBUTE:
                self._check_attribute(self._expect_bytes(value), depth)
            elif number == _NODE_DOMAIN:
                domain = self._expect_text(value)
            elif number == _NODE_OPERATOR:
                operator = self._expect_text(value)
        if operator in _UNSAFE_OPERATORS:
            what = f"the operator {operator} {_UNSAFE_OPERATORS[operator]}"
            self._refuse(what, "operators that are defined by the graph alone", f"{domain}.{operator}"[:200])
        if operator in _LOOP_OPERATORS:
            self._refuse("an operator that may never end", "no loops", operator)
        if domain not in OPERATOR_DOMAINS:
            allowed = " or ".join(filter(None, OPERATOR_DOMAINS))
            self._refuse("an operator of a domain that is not allowed", allowed, f"{domain}.{operator}"[:200])

    def _check_attribute(self, message: memoryview, depth: int) -> None:
        for number, value, _, _ in self._read_fields(message):
            if number in _ATTRIBUTE_GRAPHS:
                self._check_graph(self._expect_bytes(value), depth + 1)
            elif number in _ATTRIBUTE_TENSORS:
                self._check_tensor(self._expect_bytes(value))
            elif number in _ATTRIBUTE_SPARSE:
                self._check_sparse_tensor(self._expect_bytes(value))

    def _check_sparse_tensor(self, message: memoryview) -> None:
        for number, value, _, _ in self._read_fields(message):
            if number in _SPARSE_TENSORS:
                self._check_tensor(self._expect_bytes(value))

    def _check_tensor(self, message: memoryview) -> None:
        entries: dict[str, str] = {}
        external = False
        for number, value, _, _ in self._read_fields(message):
            if number == _TENSOR_LOCATION:
                external = value != 0
            elif number == _TENSOR_EXTERNAL:
                parts = {field.number: field.value for field in self._read_fields(self._expect_bytes(value))}
                entries[self._expect_text(parts.get(_ENTRY_KEY, 0))] = self._expect_text(
                    parts.get(_ENTRY_VALUE, 0)
                )
        if external or entries:
            self._check_external_data(entries)

    def _check_external_data(self, entries: Mapping[str, str]) -> None:
        """Refuse external data outside the files of the bundle."""
        size = self.data_sizes.get(entries.get("location", ""))
        if size is None:
            known = " or ".join(self.data_sizes) or "no data outside the graph"
            self._refuse("a tensor is in another file", known, repr(entries.get("location", ""))[:200])
        numbers = [entries.get(key, "0") for key in ("offset", "length")]
        fits = all(number.isascii() and number.isdigit() and len(number) < 20 for number in numbers)
        if not fits or sum(map(int, numbers)) > size:
            self._refuse("a tensor is beyond the end of its file", f"within {size} bytes", "+".join(numbers)[:200])

    def _read_fields(self, message: memoryview) -> Iterator[Field]:
        """Iterate over the fields of a message."""
        self.n_messages += 1
        if self.n_messages > _MAX_MESSAGES:
            self._refuse("the graph has too many parts", f"at most {_MAX_MESSAGES}", self.n_messages)
        return read_fields(message, self.path)

    def _expect_bytes(self, value: int | memoryview) -> memoryview:
        if isinstance(value, int):
            self._refuse("the file is not an ONNX model", "a message", value)
        return value

    def _expect_text(self, value: int | memoryview) -> str:
        return bytes(self._expect_bytes(value)).decode("utf-8", "replace")

    def _refuse(self, message: str, expected: object, actual: object) -> NoReturn:
        raise CorruptFile(message, path=self.path, expected=expected, actual=actual)
