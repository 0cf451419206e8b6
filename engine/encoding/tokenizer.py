"""Tokenizers of bundles: texts to token ids with offsets, and the special tokens around them; checks of texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from quarry.engine.arguments import lone_surrogate
from quarry.engine.process.libraries import loading
from quarry.formats.arrays import Int64Array
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.bundle.folder import TOKENIZER_NAME
from quarry.formats.errors import CorruptFile, InvalidDocument, InvalidQuery

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

__all__ = [
    "BundleTokenizer",
    "Ids",
    "TextTokenizer",
    "TokenFrame",
    "Tokens",
    "check_document",
    "check_query",
    "token_frame",
]


Ids = Int64Array


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a text, without special tokens.

    Attributes:
        ids: (n_tokens,) int64.
        starts: (n_tokens,) int64, first character of each in the text.
        ends: (n_tokens,) int64, one past the last.
    """

    ids: Ids
    starts: Ids
    ends: Ids


class TextTokenizer:
    """The tokenizer of a tokenizer.json, without its padding and truncation.

    A call uses one core.

    Raises:
        CorruptFile: the file is not a valid tokenizer; methods raise it too, when the tokenizer fails on a text.
    """

    def __init__(self, path: Path) -> None:
        with loading("tokenizers"):
            from tokenizers import Tokenizer

        self._path = path
        with _named(path, "the tokenizer cannot be read"):
            self._library: Tokenizer = Tokenizer.from_file(str(path))
            self._library.no_padding()
            self._library.no_truncation()

    def tokenize(self, text: str) -> Tokens:
        """Return the tokens of a text."""
        with _named(self._path, "the tokenizer fails"):
            encoding = self._library.encode(text, add_special_tokens=False)
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        starts, ends = np.ascontiguousarray(offsets.T)
        return Tokens(np.array(encoding.ids, np.int64), starts, ends)

    def encode_with_special_tokens(self, text: str, second: str | None = None) -> Encoding:
        """Return the library's encoding of a text, or of a pair of texts, with special tokens."""
        with _named(self._path, "the tokenizer fails"):
            return self._library.encode(text, second)


@contextmanager
def _named(path: Path, what: str) -> Iterator[None]:
    """Translate the library's errors into one that names the file."""
    try:
        yield
    except BaseException as error:
        # The library raises bare Exception, and PanicException, which is not an Exception, when it panics.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise CorruptFile(f"{what}: {error}", path=path) from error


@dataclass(frozen=True, slots=True)
class TokenFrame:
    """The tokens that a model expects before and after those of a text: special tokens and a prefix.

    Attributes:
        before: (n,) int64.
        after: (n,) int64.
    """

    before: Ids
    after: Ids

    @property
    def n_tokens(self) -> int:
        """Number of tokens of the frame."""
        return len(self.before) + len(self.after)

    def around(self, ids: Ids) -> Ids:
        """Return the (n_tokens,) input for the tokens of a text."""
        return np.concatenate((self.before, ids, self.after))


def token_frame(tokenizer: TextTokenizer, prefix: str, window: int, path: Path) -> TokenFrame:
    """Return the special tokens before and after a text, with the tokens of a prefix after those before.

    Args:
        tokenizer: of the model.
        prefix: text put before every text.
        window: tokens that the model reads at once.
        path: of the bundle, for the error.

    Raises:
        CorruptFile: the frame leaves no room for text in the window, or the tokenizer has no token for a letter.
    """
    marked = tokenizer.encode_with_special_tokens("a")
    ids = np.array(marked.ids, np.int64)
    inside = np.flatnonzero(np.array(marked.special_tokens_mask) == 0)
    if not len(inside):
        raise CorruptFile(
            "the tokenizer has no token for a letter", path=path / TOKENIZER_NAME, actual=marked.tokens
        )
    before = np.concatenate((ids[: inside[0]], tokenizer.tokenize(prefix).ids))
    frame = TokenFrame(before, ids[inside[-1] + 1 :])
    if frame.n_tokens >= window:
        raise CorruptFile(
            "the bundle's window has no room for text beside prefix and special tokens",
            path=path,
            expected=f"more than {frame.n_tokens} tokens",
            actual=window,
        )
    return frame


class BundleTokenizer:
    """The tokenizer of a bundle; its digest is verified.

    Attributes:
        document_frame: the tokens around a window of a document.
        query_frame: the tokens around a query.

    Raises:
        ChecksumMismatch: the file is not the one that was exported.
        CorruptFile: the file is not a valid tokenizer, or the window has no room for text.
    """

    def __init__(self, bundle: EncoderBundle) -> None:
        bundle.verify_files([TOKENIZER_NAME])
        self._tokenizer = TextTokenizer(bundle.tokenizer_path)
        settings = bundle.settings
        self.document_frame = token_frame(self._tokenizer, settings.document_prefix, settings.window, bundle.path)
        self.query_frame = token_frame(self._tokenizer, settings.query_prefix, settings.window, bundle.path)

    def tokenize(self, text: str) -> Tokens:
        """Return the tokens of a text, without special tokens."""
        return self._tokenizer.tokenize(text)


def check_document(text: str) -> None:
    """Raise if a document cannot be encoded as UTF-8."""
    position = lone_surrogate(text)
    if position is not None:
        raise InvalidDocument("the text holds a lone surrogate", actual=f"one at character {position}")


def check_query(text: str) -> None:
    """Raise if a query cannot be encoded as UTF-8."""
    position = lone_surrogate(text)
    if position is not None:
        raise InvalidQuery("the query holds a lone surrogate", actual=f"one at character {position}")
