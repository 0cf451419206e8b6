"""Bounds how much longer than a text a tokenizer may make it, before the tokenizer sees a text.

A tokenizer.json is a program: thirty replacements of a letter by two of it make a thousand million letters of one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["MAX_GROWTH", "MAX_STEPS", "count_steps_and_growth"]

MAX_GROWTH = 4096
"""Characters that may become of one. Known tokenizers have up to about 1,300, counted as here."""

MAX_STEPS = 256
"""Normalizers and pre-tokenizers that may be run one after another. Known tokenizers have fewer than 40."""

_COMPATIBILITY = 18  # most characters that a compatibility decomposition makes of one (U+FDFA)


def count_steps_and_growth(tokenizer: Any) -> tuple[int, int]:  # noqa: ANN401 - a Tokenizer of the library
    """Return the number of normalizers and pre-tokenizers, and how many characters they make of one at most."""
    n_steps, growth = 0, 1
    for part in (tokenizer.normalizer, tokenizer.pre_tokenizer):
        for step in _list_steps(part):
            n_steps += 1
            growth *= _GROWTHS.get(str(step.get("type")), _keep)(step)
    return n_steps, growth


def _list_steps(part: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 - classes of the library without types
    """Yield the settings of a part of a tokenizer and of all parts inside it."""
    left = [] if part is None else [json.loads(part.__getstate__())]
    while left:
        step = left.pop()
        yield step
        left += step.get("normalizers") or step.get("pretokenizers") or []


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
