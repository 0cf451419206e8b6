"""Recognizes the texts of evaluation collections, which must not be used for training."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.formats.errors import CorruptFile

__all__ = [
    "FINGERPRINTS_PATH",
    "Refusal",
    "fingerprint",
    "load_fingerprints",
    "make_text_forms",
    "save_fingerprints",
]

FINGERPRINTS_PATH = Path(__file__).with_name("evaluation_texts.bin")
"""Fingerprints of the texts of evaluation collections; `quarry.training.data.evaluation_texts` makes them."""

_BYTES = 6  # of a fingerprint: among a million texts one is refused by chance with a probability of 1 in 2,000
_LEAST_WORDS = 4  # shorter texts are too common to identify their source
_WORD = re.compile(r"[^\W_]+")

Fingerprints = npt.NDArray[np.uint64]


class Refusal:
    """Knows the texts that are kept for evaluation, so that training leaves them out.

    Texts are compared by their words: letter case, punctuation and white space do not count. A text with a title
    before it is recognized too.

    Args:
        fingerprints: ascending, of the texts to refuse.
    """

    def __init__(self, fingerprints: Fingerprints) -> None:
        self._known = fingerprints

    @classmethod
    def shipped(cls) -> Refusal:
        """The refusal of what Quarry itself is evaluated on: see ``DATA.md``."""
        return cls(load_fingerprints(FINGERPRINTS_PATH))

    @classmethod
    def of_nothing(cls) -> Refusal:
        """Refuses no text: for validation data, which is not trained on."""
        return cls(np.empty(0, np.uint64))

    def is_kept_for_evaluation(self, text: str) -> bool:
        """Whether a query or document is a text of an evaluation collection."""
        for form in make_text_forms(text):
            mark = fingerprint(form)
            at = int(np.searchsorted(self._known, np.uint64(mark)))
            if at < len(self._known) and int(self._known[at]) == mark:
                return True
        return False


def make_text_forms(text: str) -> Iterator[str]:
    """The forms in which a text is compared: itself, and what follows its first line (a title before it).

    Forms of fewer than four words are left out.
    """
    for form in (text, text.partition("\n")[2]):
        words = _WORD.findall(form.casefold())
        if len(words) >= _LEAST_WORDS:
            yield " ".join(words)


def fingerprint(form: str) -> int:
    """48 bits of a digest of a form."""
    return int.from_bytes(blake2b(form.encode("utf-8", "replace"), digest_size=_BYTES).digest(), "big")


def save_fingerprints(texts: Iterable[str], path: Path) -> int:
    """Write the fingerprints of texts, ascending, 6 bytes each; return how many there are."""
    forms = (next(make_text_forms(text), None) for text in texts)
    marks = sorted({fingerprint(form) for form in forms if form is not None})
    path.write_bytes(b"".join(mark.to_bytes(_BYTES, "big") for mark in marks))
    return len(marks)


def load_fingerprints(path: Path) -> Fingerprints:
    """Read what `save_fingerprints` wrote.

    Raises:
        CorruptFile: the file holds something else.
    """
    content = path.read_bytes()
    if not content or len(content) % _BYTES:
        raise CorruptFile("not a file of fingerprints", path=path, expected=f"a multiple of {_BYTES} bytes")
    padded = np.zeros((len(content) // _BYTES, 8), np.uint8)
    padded[:, 8 - _BYTES :] = np.frombuffer(content, np.uint8).reshape(-1, _BYTES)
    known = padded.view(">u8").ravel().astype(np.uint64)
    if (known[1:] <= known[:-1]).any():
        raise CorruptFile("not a file of fingerprints", path=path, expected="ascending fingerprints")
    return known
