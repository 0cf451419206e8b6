"""Checks an untrusted ONNX graph before a runtime loads it, without any library.

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
_MAX_MESSAGES: Final = 2**17  # of networks with hundreds of layers; beyond, a runtime takes minutes
_FOREIGN: Final = {
    "EPContext": "names a compiled model in another file",
    "PythonOp": "calls Python functions by name",
    "PythonOpGrad": "calls Python functions by name",
    "Snpe": "holds a compiled model for another runtime",
    "TritonOp": "calls Python functions by name",
}  # of ONNX Runtime's own operators
_REPEATING: Final = frozenset({"Loop", "Scan", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"})

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
            another file or beyond its end; it has functions, training, or graphs nested too deep; an operator
            repeats a graph, perhaps for ever; or it has more parts than any network.
        AccessFailed: the system does not let the file be read.
    """
    with system_errors("mapped", path), path.open("rb") as file:
        size = file.seek(0, 2)
        if not 0 < size <= MAX_GRAPH_BYTES:
            raise CorruptFile("a graph has 1 byte to 2 GiB", path=path, actual=f"{size} bytes")
        # Closed with the last view of it: frames of a traceback may have views.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _Scan(path, dict(data_sizes)).model(memoryview(mapped))


@dataclass
class _Scan:
    """One pass over a model."""

    path: Path
    data_sizes: dict[str, int]
    n_messages: int = 0

    def model(self, message: memoryview) -> None:
        n_graphs = 0
        for number, value, _, _ in self._fields(message):
            if number in (_MODEL_FUNCTIONS, _MODEL_TRAINING):
                self._refuse("the graph has functions or training", "operators only", number)
            if number == _MODEL_GRAPH:
                self._graph(self._bytes(value), 0)
                n_graphs += 1
        if n_graphs != 1:
            self._refuse("the file is not an ONNX model", "one graph", n_graphs)

    def _graph(self, message: memoryview, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self._refuse("graphs are nested too deep", f"at most {_MAX_DEPTH}", depth)
        for number, value, _, _ in self._fields(message):
            if number == _GRAPH_NODE:
                self._node(self._bytes(value), depth)
            elif number == _GRAPH_INITIALIZER:
                self._tensor(self._bytes(value))
            elif number == _GRAPH_SPARSE:
                self._sparse(self._bytes(value))

    def _node(self, message: memoryview, depth: int) -> None:
        operator = domain = ""
        for number, value, _, _ in self._fields(message):
            if number == _NODE_ATTRIBUTE:
                self._attribute(self._bytes(value), depth)
            elif number == _NODE_DOMAIN:
                domain = self._text(value)
            elif number == _NODE_OPERATOR:
                operator = self._text(value)
        if operator in _FOREIGN:
            what = f"the operator {operator} {_FOREIGN[operator]}"
            self._refuse(what, "operators that are whole in the graph", f"{domain}.{operator}"[:200])
        if operator in _REPEATING:
            self._refuse("an operator that may never end", "none that repeats a graph", operator)
        if domain not in OPERATOR_DOMAINS:
            self._refuse("an operator of a domain that is not run", " or ".join(filter(None, OPERATOR_DOMAINS)),
                         f"{domain}.{operator}"[:200])  # fmt: skip

    def _attribute(self, message: memoryview, depth: int) -> None:
        for number, value, _, _ in self._fields(message):
            if number in _ATTRIBUTE_GRAPHS:
                self._graph(self._bytes(value), depth + 1)
            elif number in _ATTRIBUTE_TENSORS:
                self._tensor(self._bytes(value))
            elif number in _ATTRIBUTE_SPARSE:
                self._sparse(self._bytes(value))

    def _sparse(self, message: memoryview) -> None:
        for number, value, _, _ in self._fields(message):
            if number in _SPARSE_TENSORS:
                self._tensor(self._bytes(value))

    def _tensor(self, message: memoryview) -> None:
        entries: dict[str, str] = {}
        external = False
        for number, value, _, _ in self._fields(message):
            if number == _TENSOR_LOCATION:
                external = value != 0
            elif number == _TENSOR_EXTERNAL:
                parts = {field.number: field.value for field in self._fields(self._bytes(value))}
                entries[self._text(parts.get(_ENTRY_KEY, 0))] = self._text(parts.get(_ENTRY_VALUE, 0))
        if external or entries:
            self._external(entries)

    def _external(self, entries: Mapping[str, str]) -> None:
        """Refuse a tensor that is not within a known file."""
        size = self.data_sizes.get(entries.get("location", ""))
        if size is None:
            known = " or ".join(self.data_sizes) or "no data outside the graph"
            self._refuse("a tensor is in another file", known, repr(entries.get("location", ""))[:200])
        numbers = [entries.get(key, "0") for key in ("offset", "length")]
        fits = all(number.isascii() and number.isdigit() and len(number) < 20 for number in numbers)
        if not fits or sum(map(int, numbers)) > size:
            self._refuse("a tensor is beyond the end of its file", f"within {size} bytes", "+".join(numbers)[:200])

    def _fields(self, message: memoryview) -> Iterator[Field]:
        """The fields of a message."""
        self.n_messages += 1
        if self.n_messages > _MAX_MESSAGES:
            self._refuse("the graph has too many parts", f"at most {_MAX_MESSAGES}", self.n_messages)
        return read_fields(message, self.path)

    def _bytes(self, value: int | memoryview) -> memoryview:
        if isinstance(value, int):
            self._refuse("the file is not an ONNX model", "a message", value)
        return value

    def _text(self, value: int | memoryview) -> str:
        return bytes(self._bytes(value)).decode("utf-8", "replace")

    def _refuse(self, message: str, expected: object, actual: object) -> NoReturn:
        raise CorruptFile(message, path=self.path, expected=expected, actual=actual)
