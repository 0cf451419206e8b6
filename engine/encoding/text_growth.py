"""Bounds how much longer than a text a tokenizer may make it, before the tokenizer sees a text.

A tokenizer.json is a program: thirty replacements of a letter by two of it make a thousand million letters of one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = [
    "MAX_GROWTH",
    "MAX_STEPS",
    "MAX_TEMPLATE",
    "MAX_WORD",
    "count_steps_and_growth",
    "count_template",
    "count_word",
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
