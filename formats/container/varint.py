"""Numbers as LEB128: 7 bits a byte, low bits first, the high bit set on all bytes but the last."""

from __future__ import annotations

__all__ = ["append_number"]


def append_number(packed: bytearray, number: int) -> None:
    """Append a number from 0."""
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
