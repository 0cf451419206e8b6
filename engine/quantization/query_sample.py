"""Query-like texts extracted from documents, and their vectors, for the calibration of searches.

A quarter of the texts are titles, if there are any; the others are truncated sentences. With real queries on
squad, on paragraphs of Wikipedia and on medical abstracts, vectors of all-MiniLM-L6-v2, settings calibrated for
a recall of .991 of ten hits reached .991, .995 and .997; calibrated with titles only, .983, .997 and .987; with
whole sentences and titles, .987, .995 and .994.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from quarry.engine.encoding.batch_encoder import as_batch_encoder, encode_queries, valid_queries
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.windows import WORD, sentence_end_flags
from quarry.engine.scoring.query_vectors import MAX_MAGNITUDE, to_host_vectors
from quarry.formats.arrays import Float32Array
from quarry.formats.errors import InvalidQuery

__all__ = ["MAX_TEXTS", "QuerySample", "sample_vectors"]

MAX_TEXTS = 512  # in a sample
_MIN_QUERIES = 32  # fewer distinct texts do not represent other queries
_TITLES = 0.25  # probability of taking the title of a document that has one
_MAX_TITLE_WORDS = 30  # longer titles are texts
_SENTENCE_WORDS = (8, 16)  # least and most words kept of a sentence
_MIN_SENTENCE_WORDS = 3  # shorter sentences are taken only if there are no others
_READ_CHARS = 2000  # length of the part of a document that is read

_log = logging.getLogger(__name__)


class QuerySample:
    """Collects one text from each document of a uniform random sample of bounded size.

    Reservoir sampling (Vitter 1985, algorithm R).

    Args:
        seed: seed of the choice; the same documents in the same order give the same texts.
        n_texts: most texts.

    Attributes:
        texts: query-like texts.
    """

    def __init__(self, seed: int, n_texts: int = MAX_TEXTS) -> None:
        self._n_texts = n_texts
        self.texts: list[str] = []
        self._random = random.Random(seed)
        self._n_seen = 0

    @staticmethod
    def places(n_docs: int) -> list[int]:
        """Return the ordinals, evenly spaced and ascending, of the documents to add if they can be looked up."""
        n_texts = min(n_docs, MAX_TEXTS)
        return [place * n_docs // n_texts for place in range(n_texts)]

    def add_many(self, titles: Iterable[str], texts: Iterable[str]) -> None:
        """Offer documents to the sample; those without title and text are passed over."""
        for title, text in zip(titles, texts, strict=True):
            if title or text:
                self.add(title, text)

    def add(self, title: str, text: str) -> None:
        """Offer a document to the sample."""
        self._n_seen += 1
        if len(self.texts) < self._n_texts:
            self.texts.append(_query_like(title, text, self._random))
        elif (place := _below(self._random, self._n_seen)) < self._n_texts:
            self.texts[place] = _query_like(title, text, self._random)


def sample_vectors(
    encoder: Encoder | None, texts: list[str], threads: int, least: int = _MIN_QUERIES
) -> Float32Array:
    """Encode distinct texts as queries; texts without a usable vector are left out.

    Calibration is optional, so that a failing encoder is logged and does not fail the build.

    Returns:
        (n, dim) float32 with n >= 32, or no rows if fewer are usable or there is no encoder.
    """
    if encoder is None:
        return np.empty((0, 0), np.float32)
    try:
        vectors = _encode(encoder, list(dict.fromkeys(texts)), threads)
    except Exception as error:
        _log.warning("searches are not calibrated with queries, because the encoder failed on them: %r", error)
        return np.empty((0, encoder.dim), np.float32)
    usable = vectors[(np.abs(vectors) <= MAX_MAGNITUDE).all(axis=1)]
    return usable if len(usable) >= least else usable[:0]


def _encode(encoder: Encoder, texts: list[str], threads: int) -> Float32Array:
    try:
        return to_host_vectors(encode_queries(encoder, texts, threads))
    except InvalidQuery:  # of at least one text
        batched = as_batch_encoder(encoder)
        if batched is not None:
            return to_host_vectors(encode_queries(encoder, valid_queries(batched, texts), threads))
        return _encode_one_by_one(encoder, texts)


def _encode_one_by_one(encoder: Encoder, texts: list[str]) -> Float32Array:
    vectors = [np.empty((0, encoder.dim), np.float32)]
    for text in texts:
        try:
            vectors.append(to_host_vectors(encode_queries(encoder, [text], 1)))
        except InvalidQuery:
            continue
    return np.concatenate(vectors)


def _query_like(title: str, text: str, generator: random.Random) -> str:
    if title and generator.random() < _TITLES:
        words = [match.end() for match in WORD.finditer(title[:_READ_CHARS])]
        return title[: words[:_MAX_TITLE_WORDS][-1]] if words else title
    start = _below(generator, len(text) - _READ_CHARS) if len(text) > _READ_CHARS else 0
    return _truncated_sentence(text[start : start + _READ_CHARS], start > 0, generator)


def _truncated_sentence(part: str, is_inside: bool, generator: random.Random) -> str:
    """Return the first words of a random sentence; with `is_inside` the part may begin within a sentence."""
    words = [match.span() for match in WORD.finditer(part)]
    if not words:
        return part
    starts, ends = np.array(words, np.int64).T
    stops = np.flatnonzero(sentence_end_flags(part, starts, ends)) + 1
    bounds = [0, *stops.tolist(), len(words)]
    sentences = [(low, high) for low, high in pairwise(bounds) if low < high]
    whole = sentences[1:] if is_inside and len(sentences) > 1 else sentences
    long = [(low, high) for low, high in whole if high - low >= _MIN_SENTENCE_WORDS] or whole
    low, high = long[_below(generator, len(long))]
    n_words = _SENTENCE_WORDS[0] + _below(generator, _SENTENCE_WORDS[1] - _SENTENCE_WORDS[0] + 1)
    return part[words[low][0] : words[min(high, low + n_words) - 1][1]]


def _below(generator: random.Random, n: int) -> int:
    """Return a uniform integer from 0 to n - 1 that is the same in every version of Python."""
    return int(generator.random() * n)
