"""Takes the numbers out of an ONNX graph: what is left says where in the file they lie.

A runtime that reads a whole graph copies its weights at least once. Given the outline it maps them, as it maps
weights in a file of their own ("external data" in ONNX): the graph's own file is that file.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Final

from quarry.formats.bundle.protobuf import field_bytes, number_field, read_fields

__all__ = ["outline"]

_LEAST_BYTES: Final = 1 << 16  # a mapping of its own costs more than copying less

_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
_TENSOR_RAW, _TENSOR_EXTERNAL, _TENSOR_LOCATION = 9, 13, 14
_EXTERNAL: Final = 1  # data_location
_ENTRY_KEY, _ENTRY_VALUE = 1, 2


def outline(path: Path) -> bytes:
    """Return a model whose weights of 64 KiB and more are references into the file.

    Their place in the file may be any: it is not aligned. What the graph keeps elsewhere already, stays there.

    Args:
        path: the file, which `quarry.formats.bundle.onnx_check.check_graph` has found to be a graph.

    Raises:
        CorruptFile: it is no longer.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # closed with the last view of it
    return _Outline(path).model(memoryview(mapped))


class _Outline:
    """One file; every method is given a message and where in the file it begins."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def model(self, message: memoryview) -> bytes:
        return self._replaced(message, 0, _MODEL_GRAPH, self._graph)

    def _graph(self, message: memoryview, begin: int) -> bytes:
        return self._replaced(message, begin, _GRAPH_INITIALIZER, self._tensor)

    def _replaced(
        self, message: memoryview, begin: int, number: int, outlined: Callable[[memoryview, int], bytes]
    ) -> bytes:
        """The message with the outlines of the messages in its fields of a number."""
        parts = []
        for field in read_fields(message, self._path):
            if field.number == number and not isinstance(field.value, int):
                inner = outlined(field.value, begin + field.stop - len(field.value))
                parts.append(field_bytes(number, inner))
            else:
                parts.append(bytes(message[field.first : field.stop]))
        return b"".join(parts)

    def _tensor(self, message: memoryview, begin: int) -> bytes:
        if len(message) < _LEAST_BYTES:
            return bytes(message)
        fields = list(read_fields(message, self._path))
        numbers = [field for field in fields if field.number == _TENSOR_RAW]
        elsewhere = any(
            field.number == _TENSOR_EXTERNAL or (field.number, field.value) == (_TENSOR_LOCATION, _EXTERNAL)
            for field in fields
        )
        if len(numbers) != 1 or elsewhere or isinstance(numbers[0].value, int):
            return bytes(message)
        replaced = (_TENSOR_RAW, _TENSOR_LOCATION)
        kept = [bytes(message[field.first : field.stop]) for field in fields if field.number not in replaced]
        n_bytes = len(numbers[0].value)
        return b"".join([*kept, *self._reference(begin + numbers[0].stop - n_bytes, n_bytes)])

    def _reference(self, offset: int, n_bytes: int) -> list[bytes]:
        """What a tensor says about its numbers instead of having them."""
        entries = {"location": self._path.name, "offset": str(offset), "length": str(n_bytes)}
        return [
            *(field_bytes(_TENSOR_EXTERNAL, _entry(key, value)) for key, value in entries.items()),
            number_field(_TENSOR_LOCATION, _EXTERNAL),
        ]


def _entry(key: str, value: str) -> bytes:
    return field_bytes(_ENTRY_KEY, key.encode("ascii")) + field_bytes(_ENTRY_VALUE, value.encode("utf-8"))
