"""How a text becomes the tokens of a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from formats.errors import CorruptFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Ids", "Tokens", "lone_surrogate", "open_tokenizer", "tokenise"]

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


def open_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer.json; it neither pads nor truncates, whatever the file says.

    Raises:
        CorruptFile: the file is no tokenizer.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise CorruptFile(f"the tokenizer cannot be read: {error}", path=path) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def tokenise(tokenizer: Tokenizer, text: str) -> Tokens:
    """Return the tokens of a text; one call takes one core, whatever the tokenizer's own thread pool."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    starts, ends = np.ascontiguousarray(offsets.T)
    return Tokens(np.array(encoding.ids, np.int64), starts, ends)


def lone_surrogate(text: str) -> int | None:
    """Return the position of the first character that UTF-8 cannot hold, None where there is none."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None
