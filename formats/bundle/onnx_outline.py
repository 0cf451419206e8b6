"""Replaces the weights in an ONNX graph by references to their positions in the file.

A runtime that parses a whole graph copies its weights at least once. Weights in an external file ("external data"
in ONNX) it maps; the outline of a graph names the graph's own file as that external file. Memory is measured in
``bench/results/export.jsonl``.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Final

from quarry.formats.bundle.protobuf import pack_bytes_field, pack_number_field, read_fields
from quarry.formats.system_errors import system_errors

__all__ = ["MAPPED_BYTES", "outline"]

MAPPED_BYTES: Final = 1 << 16
"""Size of the smallest tensor that is mapped; mapping smaller ones costs more than copying them."""

_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
_TENSOR_RAW, _TENSOR_EXTERNAL, _TENSOR_LOCATION = 9, 13, 14
_EXTERNAL: Final = 1  # data_location
_ENTRY_KEY, _ENTRY_VALUE = 1, 2


def outline(path: Path, mapped_bytes: int = MAPPED_BYTES) -> bytes:
    """Return a model whose large weights are references into the file.

    Weights are not aligned in the file. References to other files are kept.

    Args:
        path: the file, which `quarry.formats.bundle.onnx_check.check_graph` has accepted.
        mapped_bytes: size of the smallest tensor that is a reference.

    Raises:
        CorruptFile: the file is not an ONNX graph.
        AccessFailed: it cannot be read.
    """
    with system_errors("mapped", path), path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # closed with the last view of it
    return _Outline(path, mapped_bytes).outline_model(memoryview(mapped))


class _Outline:
    """Rewrites one file; methods take a message and its offset in the file."""

    def __init__(self, path: Path, mapped_bytes: int) -> None:
        self._path = path
        self._mapped_bytes = mapped_bytes

    def outline_model(self, message: memoryview) -> bytes:
        return self._replace(message, 0, _MODEL_GRAPH, self._outline_graph)

    def _outline_graph(self, message: memoryview, begin: int) -> bytes:
        return self._replace(message, begin, _GRAPH_INITIALIZER, self._outline_tensor)

    def _replace(
        self, message: memoryview, begin: int, number: int, outlined: Callable[[memoryview, int], bytes]
    ) -> bytes:
        """Return the message with the messages in its fields `number` replaced by their outlines."""
        parts = []
        for field in read_fields(message, self._path):
            if field.number == number and not isinstance(field.value, int):
                inner = outlined(field.value, begin + field.stop - len(field.value))
                parts.append(pack_bytes_field(number, inner))
            else:
                parts.append(bytes(message[field.first : field.stop]))
        return b"".join(parts)

    def _outline_tensor(self, message: memoryview, begin: int) -> bytes:
        if len(message) < self._mapped_bytes:
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
        return b"".join([*kept, *self._pack_reference(begin + numbers[0].stop - n_bytes, n_bytes)])

    def _pack_reference(self, offset: int, n_bytes: int) -> list[bytes]:
        """Return the fields of a tensor that refer to its data in the file."""
        entries = {"location": self._path.name, "offset": str(offset), "length": str(n_bytes)}
        return [
            *(pack_bytes_field(_TENSOR_EXTERNAL, _pack_entry(key, value)) for key, value in entries.items()),
            pack_number_field(_TENSOR_LOCATION, _EXTERNAL),
        ]


def _pack_entry(key: str, value: str) -> bytes:
    return pack_bytes_field(_ENTRY_KEY, key.encode("ascii")) + pack_bytes_field(
        _ENTRY_VALUE, value.encode("utf-8")
    )
