"""Tokenizers of bundles: texts to token ids with offsets, and the special tokens around them; checks of texts.

A tokenizer.json is a program: thirty replacements of a letter by two of it make a thousand million letters of one.
So it is bounded how much longer than a text its tokens may be, before the tokenizer sees a text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quarry.engine.arguments import lone_surrogate
from quarry.engine.process.libraries import loading
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.bundle.encoder import EncoderBundle
from quarry.formats.bundle.folder import TOKENIZER_NAME
from quarry.formats.errors import CorruptFile, InvalidDocument, InvalidQuery

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


__all__ = [
    "MAX_GROWTH",
    "MAX_STEPS",
    "MAX_TEMPLATE",
    "MAX_WORD",
    "BundleTokenizer",
    "Ids",
    "PairFrame",
    "TextTokenizer",
    "TokenFrame",
    "Tokens",
    "check_document",
    "check_query",
    "count_steps_and_growth",
    "count_template",
    "count_word",
    "find_pair_frame",
    "token_frame",
]

MAX_GROWTH = 4096
"""Characters that may become of one. Known tokenizers have up to about 1,300, counted as here."""

MAX_STEPS = 256
"""Normalizers and pre-tokenizers that may be run one after another. Known tokenizers have fewer than 40."""

MAX_TEMPLATE = 256
"""Special tokens and texts in the template of an input. Known tokenizers have fewer than ten."""

MAX_WORD = 1000
"""Characters of a word that WordPiece divides, in quadratic time. Known tokenizers have 100 or 200."""

_COMPATIBILITY = 18  # most characters that a compatibility decomposition makes of one (U+FDFA)


def count_steps_and_growth(tokenizer: Any) -> tuple[int, int]:  # noqa: ANN401 - a Tokenizer of the library
    """Return the number of normalizers and pre-tokenizers, and how many characters they make of one at most."""
    n_steps, growth = 0, 1
    for part in (tokenizer.normalizer, tokenizer.pre_tokenizer):
        for step in _list_steps(part):
            n_steps += 1
            growth *= _GROWTHS.get(str(step.get("type")), _keep)(step)
    return n_steps, growth


def count_template(tokenizer: Any) -> int:  # noqa: ANN401
    """Return how many special tokens and texts the templates of an input have."""
    n_items = 0
    for step in _list_steps(tokenizer.post_processor):
        n_ids = {name: len(each["ids"]) for name, each in (step.get("special_tokens") or {}).items()}
        for item in (*(step.get("single") or ()), *(step.get("pair") or ())):
            n_items += n_ids.get(item["SpecialToken"]["id"], 1) if "SpecialToken" in item else 1
    return n_items


def count_word(tokenizer: Any) -> int:  # noqa: ANN401
    """Return the most characters of a word that WordPiece divides; 0 for other models."""
    return getattr(tokenizer.model, "max_input_chars_per_word", 0)


def _list_steps(part: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 - classes of the library without types
    """Yield the settings of a part of a tokenizer and of all parts inside it."""
    left = [] if part is None else [json.loads(part.__getstate__())]
    while left:
        step = left.pop()
        yield step
        left += step.get("normalizers") or step.get("pretokenizers") or step.get("processors") or []


def _keep(step: Mapping[str, Any]) -> int:
    del step
    return 1


def _of_replacement(step: Mapping[str, Any]) -> int:
    content, pattern = len(step["content"]), step["pattern"].get("String")
    if pattern:
        return max(1, -(-content // len(pattern)))
    return 1 + content  # an expression may match between all characters


def _of_charsmap(step: Mapping[str, Any]) -> int:
    """Return the length of the longest of the zero-terminated texts behind the trie of a compiled map."""
    compiled = base64.b64decode(step["precompiled_charsmap"] or "")
    texts = compiled[4 + int.from_bytes(compiled[:4], "little") :].split(b"\0")
    return max(1, *(len(text.decode("utf-8", "replace")) for text in texts))


_GROWTHS: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "Replace": _of_replacement,
    "Prepend": lambda step: 1 + len(step["prepend"]),
    "Precompiled": _of_charsmap,
    "NFKD": lambda _: _COMPATIBILITY,
    "NFKC": lambda _: _COMPATIBILITY,
    "NFD": lambda _: 4,
    "NFC": lambda _: 3,
    "Lowercase": lambda _: 2,
    "BertNormalizer": lambda _: 4,
    "ByteLevel": lambda _: 4,
    "Metaspace": lambda _: 2,
}


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
        CorruptFile: the file is not a valid tokenizer, or one that makes texts much longer or takes too long;
            methods raise it too, when the tokenizer fails on a text.
    """

    def __init__(self, path: Path) -> None:
        with loading("tokenizers"):
            from tokenizers import Tokenizer

        self._path = path
        with _named(path, "the tokenizer cannot be read"):
            self._library: Tokenizer = Tokenizer.from_file(str(path))
            self._library.no_padding()
            self._library.no_truncation()
            n_steps, growth = count_steps_and_growth(self._library)
            n_in_template, n_in_word = count_template(self._library), count_word(self._library)
        if n_steps > MAX_STEPS or growth > MAX_GROWTH:
            raise CorruptFile(
                "the tokenizer could make texts too long",
                path=path,
                expected=f"at most {MAX_STEPS} normalizers and pre-tokenizers, {MAX_GROWTH} characters of one",
                actual=f"{n_steps}, {growth if growth < 10**12 else 'more than 10^12'}",
            )
        if n_in_template > MAX_TEMPLATE or n_in_word > MAX_WORD:
            raise CorruptFile(
                "the tokenizer could take too long",
                path=path,
                expected=f"at most {MAX_TEMPLATE} items of its templates, {MAX_WORD} characters of a word",
                actual=f"{n_in_template}, {n_in_word}",
            )

    def tokenize(self, text: str, prefix: str = "") -> Tokens:
        """Return the tokens of a text that follows a prefix; tokens of the prefix are left out.

        A blank at the prefix's end belongs to the text: some tokenizers join it with the word that follows.
        """
        with _named(self._path, "the tokenizer fails"):
            encoding = self._library.encode(prefix + text, add_special_tokens=False)
        ids, offsets = np.array(encoding.ids, np.int64), np.array(encoding.offsets, np.int64).reshape(-1, 2)
        if prefix:
            kept = offsets[:, 1] > len(prefix.rstrip())
            kept &= (offsets[:, 1] > len(prefix)).any()  # a text without tokens has none of the blank's either
            ids, offsets = ids[kept], np.maximum(offsets[kept] - len(prefix), 0)
        starts, ends = np.ascontiguousarray(offsets.T)
        return Tokens(ids, starts, ends)

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
        prefix: text that was put before the text.
        n_unpooled: number of the first tokens that the pooling leaves out.
    """

    before: Ids
    after: Ids
    prefix: str = ""
    n_unpooled: int = 0

    @property
    def n_tokens(self) -> int:
        """Number of tokens of the frame."""
        return len(self.before) + len(self.after)

    def pooled_part(self, vectors: Float32Array) -> Float32Array:
        """Return those of the vectors of a window, (n_tokens, dim), that are pooled; at least one."""
        return vectors[min(self.n_unpooled, len(vectors) - 1) :]

    def around(self, ids: Ids) -> Ids:
        """Return the (n_tokens,) input for the tokens of a text."""
        return np.concatenate((self.before, ids, self.after))


def token_frame(
    tokenizer: TextTokenizer, prefix: str, window: int, path: Path, include_prompt: bool = True
) -> TokenFrame:
    """Return the special tokens before and after a text, with the tokens of a prefix after those before.

    Args:
        tokenizer: the tokenizer of the model.
        prefix: text put before every text.
        window: tokens that the model reads at once.
        path: the path of the bundle, for the error.
        include_prompt: whether the pooling includes the prefix and what is before it.

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
    prefix_ids = np.empty(0, np.int64)
    if prefix:
        joined = tokenizer.tokenize(f"{prefix}a")
        prefix_ids = joined.ids[joined.ends <= len(prefix.rstrip())]
    before = np.concatenate((ids[: inside[0]], prefix_ids))
    # As sentence-transformers counts them: in the prefix alone.
    n_unpooled = 0 if include_prompt or not prefix else int(inside[0]) + len(tokenizer.tokenize(prefix).ids)
    frame = TokenFrame(before, ids[inside[-1] + 1 :], prefix, n_unpooled)
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
        self.document_frame, self.query_frame = (
            token_frame(self._tokenizer, prefix, settings.window, bundle.path, settings.include_prompt)
            for prefix in (settings.document_prefix, settings.query_prefix)
        )

    def tokenize(self, text: str, frame: TokenFrame) -> Tokens:
        """Return the tokens of a text, tokenized together with the prefix of its frame, but without the frame."""
        return self._tokenizer.tokenize(text, frame.prefix)


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


@dataclass(frozen=True, slots=True)
class PairFrame:
    """Special tokens that a tokenizer adds to a pair.

    Attributes:
        ids: special tokens before the first text, between the two, after the second: (n_tokens,) int64 each.
        types: token types of special tokens, first text, special tokens, second text, special tokens; arrays of
            length 1 for the texts.
    """

    ids: tuple[Ids, Ids, Ids]
    types: tuple[Ids, ...]

    @property
    def n_tokens(self) -> int:
        """Number of special tokens."""
        return sum(map(len, self.ids))

    def around(self, query: Ids, text: Ids) -> tuple[Ids, Ids]:
        """Return token ids and token types of a pair: (n_tokens,) int64 each."""
        before, between, after = self.ids
        before_type, query_type, between_type, text_type, after_type = self.types
        ids = np.concatenate((before, query, between, text, after))
        types = np.concatenate(
            (before_type, query_type.repeat(len(query)), between_type, text_type.repeat(len(text)), after_type)
        )
        return ids, types


def find_pair_frame(tokenizer: TextTokenizer, path: Path) -> PairFrame:
    """Tokenize a pair to find the special tokens around its texts.

    Args:
        tokenizer: the tokenizer of the model.
        path: the path of its file, for the error.

    Raises:
        CorruptFile: the tokenizer does not put two texts after each other.
    """
    encoding = tokenizer.encode_with_special_tokens("a", "a")
    ids, types = np.array(encoding.ids, np.int64), np.array(encoding.type_ids, np.int64)
    owners = np.array([-1 if owner is None else owner for owner in encoding.sequence_ids])
    query, text = np.flatnonzero(owners == 0), np.flatnonzero(owners == 1)
    if not len(query) or not len(text) or text[0] < query[-1]:
        raise CorruptFile("the tokenizer does not combine pairs", path=path)
    cuts = [query[0], query[-1] + 1, text[0], text[-1] + 1]
    before, _, between, _, after = np.split(ids, cuts)
    types_of_parts = np.split(types, cuts)
    types_of_parts[1], types_of_parts[3] = types_of_parts[1][:1], types_of_parts[3][:1]
    return PairFrame((before, between, after), tuple(types_of_parts))
