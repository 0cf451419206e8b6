"""Byte strings of any length, one after the other in one section, and where each starts in another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from formats.envelope import Envelope
from formats.errors import CorruptFile

__all__ = ["ByteStrings"]


class ByteStrings:
    """The strings of a section ``name``, whose starts are in the uint64 section ``offsets_name``.

    Args:
        envelope: the file.
        name: section of the bytes.
        offsets_name: section of the (n + 1,) offsets.
        n: number of strings.
    """

    def __init__(self, envelope: Envelope, name: str, offsets_name: str, n: int) -> None:
        self._path = envelope.path
        self._bytes = envelope.section(name, np.uint8, (None,))
        self._offsets = envelope.section(offsets_name, np.uint64, (n + 1,))

    def __getitem__(self, ordinal: int) -> bytes:
        """The string `ordinal`; see `many`."""
        return self.many(np.array([ordinal]))[0]

    def many(self, ordinals: npt.NDArray[np.int64]) -> list[bytes]:
        """Copies of the strings (n,) `ordinals`, in their order, verified.

        Raises:
            CorruptFile: a string lies outside its section.
            ChecksumMismatch: its bytes are damaged.
        """
        starts = self._offsets.rows(ordinals).view(np.int64)
        ends = self._offsets.rows(ordinals + 1).view(np.int64)
        wrong = np.flatnonzero((starts < 0) | (starts > ends) | (ends > self._bytes.n_bytes))
        if len(wrong):
            raise CorruptFile(
                f"number {ordinals[wrong[0]]} of section {self._bytes.name} lies outside it", path=self._path
            )
        return self._bytes.stretches(starts, ends)
