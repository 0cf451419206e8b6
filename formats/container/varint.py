"""LEB128: non-negative integers in 7 bits a byte, low bits first, the high bit set on all bytes but the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # only functions on arrays load numpy, so that the command line starts without it
    from quarry.formats.arrays import Int64Array, UInt8Array

__all__ = ["MAX_VARINT_BYTES", "append_varint", "put_varints", "read_varint", "read_varints", "varint_sizes"]

MAX_VARINT_BYTES = 5  # 35 bits: enough for numbers of documents, sizes of records and positions in texts


def append_varint(buffer: bytearray, number: int) -> None:
    """Append a number to a buffer."""
    while number > 0x7F:
        buffer.append(number & 0x7F | 0x80)
        number >>= 7
    buffer.append(number)


def read_varint(data: bytes | memoryview, position: int, max_bytes: int = MAX_VARINT_BYTES) -> tuple[int, int]:
    """Read the number at a position.

    Returns:
        The number, and the position after it.

    Raises:
        ValueError: the data ends within the number, or it has more than `max_bytes`.
    """
    number = 0
    for shift, byte in enumerate(data[position : position + max_bytes]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, position + shift + 1
    raise ValueError("an integer that is cut off or too long")


def read_varints(data: UInt8Array, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Read the numbers at several positions.

    Args:
        data: the bytes; MAX_VARINT_BYTES must follow each position.
        positions: (n,) int64.

    Returns:
        (n,) int64 numbers, and (n,) int64 positions after them.

    Raises:
        ValueError: a number has more than MAX_VARINT_BYTES.
    """
    import numpy as np

    numbers = np.zeros(len(positions), np.int64)
    more = np.arange(len(positions))
    positions = positions.copy()
    for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
        digits = data[positions[more]].astype(np.int64)
        numbers[more] |= (digits & 0x7F) << shift
        positions[more] += 1
        more = more[digits > 0x7F]
        if not len(more):
            return numbers, positions
    raise ValueError("an integer that is too long")


def varint_sizes(numbers: Int64Array) -> Int64Array:
    """Return the number of bytes, 1 to MAX_VARINT_BYTES, that each number takes."""
    import numpy as np

    sizes = np.ones(len(numbers), np.int64)
    for shift in range(7, 7 * MAX_VARINT_BYTES, 7):
        sizes += numbers >= 1 << shift
    return sizes


def put_varints(data: UInt8Array, positions: Int64Array, numbers: Int64Array, sizes: Int64Array) -> None:
    """Write numbers of these sizes (see `varint_sizes`) at these positions of `data`."""
    import numpy as np

    for place in range(int(sizes.max(initial=0))):
        more = np.flatnonzero(sizes > place)
        low = numbers[more] >> 7 * place & 0x7F
        data[positions[more] + place] = low | (sizes[more] > place + 1) << 7
