"""Encoders that kill their process at certain words, every time or once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from support.indexes.word_encoder import WordEncoder

from quarry.engine.encoding.encoder import TokenVectors


@dataclass(frozen=True)
class StrikingEncoder(WordEncoder):
    """`WordEncoder` that ends the process with SIGKILL when it encodes a document with certain words.

    The word "deadly" kills every process, "dangerous" only the first, which creates the file `once`.
    """

    once: str = ""

    def windows(self, text: str) -> Iterator[TokenVectors]:
        if "deadly" in text or ("dangerous" in text and self._is_first()):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().windows(text)

    def _is_first(self) -> bool:
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


@dataclass(frozen=True)
class MomentEncoder(StrikingEncoder):
    """Kills the first process that uses it: while or after it writes a file."""

    moment: str = "during"

    def windows(self, text: str) -> Iterator[TokenVectors]:
        self._strike_at_files()
        return super().windows(text)

    def _strike_at_files(self) -> None:
        name = {"during": "write", "after": "fsync"}[self.moment]
        real = getattr(os, name)
        if real.__name__ == "struck":
            return

        def struck(*arguments: object) -> object:
            result = real(*arguments)
            if self._is_first():
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(os, name, struck)
