"""How a text becomes the tokens of a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from quarry.formats.errors import CorruptFile

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

__all__ = ["Ids", "TextTokenizer", "Tokens", "lone_surrogate"]

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text's tokens, special ones left out.

    Attributes:
        ids: (n_tokens,) int64.
        starts: (n_tokens,) int64, first character of each in the text.
        ends: (n_tokens,) int64, one past the last.
    """

    ids: Ids
    starts: Ids
    ends: Ids


class TextTokenizer:
    """A tokenizer.json; it neither pads nor truncates, whatever the file says.

    One call takes one core, whatever the library's own thread pool.

    Args:
        path: the file.

    Raises:
        CorruptFile: the file is no tokenizer; of the methods too, where it is one that fails.
    """

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        self._path = path
        with _named(path, "the tokenizer cannot be read"):
            self._library: Tokenizer = Tokenizer.from_file(str(path))
            self._library.no_padding()
            self._library.no_truncation()

    def tokenise(self, text: str) -> Tokens:
        """Return the tokens of a text."""
        with _named(self._path, "the tokenizer fails"):
            encoding = self._library.encode(text, add_special_tokens=False)
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        starts, ends = np.ascontiguousarray(offsets.T)
        return Tokens(np.array(encoding.ids, np.int64), starts, ends)

    def framed(self, text: str, second: str | None = None) -> Encoding:
        """Return what the library says of a text, or of a pair of texts, with special tokens."""
        with _named(self._path, "the tokenizer fails"):
            return self._library.encode(text, second)


@contextmanager
def _named(path: Path, what: str) -> Iterator[None]:
    """Turn the library's errors into one that names the file."""
    try:
        yield
    except BaseException as error:
        # The library raises bare Exception, and where it panics what is none.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise CorruptFile(f"{what}: {error}", path=path) from error


def lone_surrogate(text: str) -> int | None:
    """Return the position of the first character that UTF-8 cannot hold, None where there is none."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None
