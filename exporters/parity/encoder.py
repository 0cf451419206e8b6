"""Compares an exported encoder with the fp32 graph of the same weights, or with vectors that were recorded.

Vectors of a few texts are recorded before the graph is converted, so that a bundle can be checked by itself.
``reference.json`` is a list of ``{"text", "query", "windows": [{"tokens", "pooled"}]}``: the vector of the text's
beginning as a query, and the token vectors (n_tokens, dim) and pooled vector (dim,) of each window of the text as
a document. Vectors are base64 of little-endian float16, scaled so that the largest element is 1: only directions
are compared.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.encoder import Encoder, TokenVectors, VectorKind
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.representation.single import Pooled
from quarry.exporters.parity.sample_texts import sample_questions
from quarry.formats.bundle.encoder import LEAST_MEAN_COSINE, ParityRecord, RetrievalRecord, load_bundle
from quarry.formats.bundle.folder import REFERENCE_NAME, BundleFolder
from quarry.formats.container.fields import read_json
from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = [
    "LEAST_MEAN_COSINES",
    "check_bundle",
    "check_parity",
    "compute_cosines",
    "cut_query",
    "find_recorded_file",
    "measure_parity",
    "measure_retrieval",
    "pool_vector",
    "record_reference",
]

LEAST_MEAN_COSINES: Mapping[str, float] = {"fp32": 0.9999, "fp16": 0.999, "int8-weights": 0.99}
"""A lower mean cosine is refused; other precisions: `quarry.formats.bundle.encoder.LEAST_MEAN_COSINE`."""

_QUERY_CHARACTERS = 64  # of a text, as a query

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class _Comparison:
    """The cosines of one text's token vectors and pooled vectors."""

    text: str
    tokens: Vectors
    pooled: Vectors


def measure_parity(exact: Encoder, variant: Encoder, texts: Iterable[str]) -> tuple[ParityRecord, str]:
    """Compare two encoders on texts: token and pooled vectors of documents, and the texts' beginnings as queries.

    Args:
        exact: the fp32 encoder.
        variant: the encoder to compare with it.
        texts: real texts; texts without tokens are ignored.

    Returns:
        The cosines, and the text whose token vectors differ most.

    Raises:
        InvalidSetting: no text has a token.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compared = [
            comparison
            for comparison in pool.map(partial(_compare, exact, variant), texts)
            if len(comparison.pooled)
        ]
    if not compared:
        raise InvalidSetting("parity needs at least one text with a token")
    tokens, pooled = (
        np.concatenate([getattr(comparison, kind) for comparison in compared]) for kind in ("tokens", "pooled")
    )
    values = (tokens.mean(), tokens.min(), pooled.mean(), pooled.min())
    record = ParityRecord(len(compared), *(round(float(value), 5) for value in values))
    return record, min(compared, key=lambda comparison: float(comparison.tokens.min())).text


def check_parity(record: ParityRecord, worst_text: str, precision: str) -> None:
    """Refuse a variant that differs too much from fp32.

    Raises:
        InvalidSetting: a mean cosine is below `LEAST_MEAN_COSINES`; the message has the largest difference and its
            text.
    """
    least = LEAST_MEAN_COSINES.get(precision, LEAST_MEAN_COSINE)
    if not min(record.token_mean, record.pooled_mean) >= least:
        raise InvalidSetting(
            f"the exported graph differs too much from fp32, most (cosine {record.token_min:.4f}) "
            f"in a token of {worst_text[:200]!r}",
            expected=f"mean cosines of at least {least}",
            actual=f"tokens {record.token_mean:.4f}, pooled {record.pooled_mean:.4f}",
        )


def cut_query(text: str) -> str:
    """Return the beginning of a text, which is used as a query."""
    return text.strip()[:_QUERY_CHARACTERS]


def pool_vector(window: TokenVectors) -> Vectors:
    """Return the pooled vector of a window, or the mean of its tokens if the encoder has no pooled vector."""
    return window.text_mean if window.pooled is None else window.pooled


def _compare(exact: Encoder, variant: Encoder, text: str) -> _Comparison:
    tokens: list[Vectors] = []
    pooled: list[Vectors] = []
    for one, other in zip(exact.windows(text), variant.windows(text), strict=True):
        pooled.append(compute_cosines(*(pool_vector(window)[np.newaxis] for window in (one, other))))
        tokens.append(
            compute_cosines(one.values, other.values) if one.values.size and other.values.size else pooled[-1]
        )
    if not pooled:
        return _Comparison(text, *([np.empty(0, np.float32)] * 2))
    queries = [encoder.encode_query(cut_query(text))[np.newaxis] for encoder in (exact, variant)]
    return _Comparison(text, np.concatenate(tokens), np.concatenate([*pooled, compute_cosines(*queries)]))


def compute_cosines(one: Vectors, other: Vectors) -> Vectors:
    """Return the cosines of the rows of two (n, dim) arrays: (n,) float32, NaN for rows that are not finite."""
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    cosines: Vectors = np.einsum("ij,ij->i", one, other) / np.maximum(norms, np.float32(1e-12))
    return cosines


_CHARACTERS = 200  # of a text that is recorded
_MAX_BYTES = 64 * 1024 * 1024  # of the file with recorded vectors
_NO_OFFSETS = np.empty(0, np.int64)


def record_reference(exact: Encoder, texts: Iterable[str], n_texts: int) -> bytes:
    """Encode the beginnings of a few texts and return the contents of ``reference.json``.

    Args:
        exact: the encoder before its conversion.
        texts: real texts; texts without tokens are skipped.
        n_texts: how many to record.
    """
    entries: list[dict[str, object]] = []
    for text in texts:
        short = text.strip()[:_CHARACTERS]
        windows = [
            {"tokens": _encode_base64(window.values), "pooled": _encode_base64(pool_vector(window))}
            for window in exact.windows(short)
        ]
        if windows:
            query = _encode_base64(exact.encode_query(cut_query(short)))
            entries.append({"text": short, "query": query, "windows": windows})
        if len(entries) == n_texts:
            break
    return json.dumps(entries, ensure_ascii=False, indent=0).encode("utf-8")


def check_bundle(path: str | Path, runtime: str = "auto") -> ParityRecord:
    """Run an encoder's bundle of any precision and compare it with the vectors that its export recorded.

    Args:
        path: folder of the bundle.
        runtime: that runs it, see `quarry.engine.encoding.opening.open_encoder`.

    Raises:
        InvalidSetting: there is no encoder's bundle, it has no recorded vectors, or its vectors differ; the
            message has the largest difference and its text.
        FormatError: the bundle is damaged.
    """
    bundle = load_bundle(path)
    recorded = _RecordedEncoder(find_recorded_file(bundle, "vectors"), bundle.settings.dim)
    try:
        record, worst = measure_parity(recorded, open_encoder(bundle.path, runtime=runtime), recorded.texts)
    except ValueError as error:
        raise CorruptFile(f"the recorded vectors do not match their texts: {error}", path=bundle.path) from error
    check_parity(record, worst, bundle.settings.precision)
    return record


def find_recorded_file(bundle: BundleFolder, what: str) -> Path:
    """Verify a bundle's files and return the path of the results that its export recorded.

    Args:
        bundle: an encoder's or a reranker's.
        what: what is recorded, for the message.

    Raises:
        InvalidSetting: the export recorded nothing.
        FormatError: the bundle is damaged.
    """
    if REFERENCE_NAME not in bundle.files:
        raise InvalidSetting(
            f"the bundle has no recorded {what}; it can only be exported again",
            path=bundle.path,
            expected=REFERENCE_NAME,
        )
    bundle.verify_files()
    return bundle.path / REFERENCE_NAME


@dataclass(frozen=True, eq=False)
class _Entry:
    """The recorded vectors of one text."""

    query: Vectors
    windows: Sequence[TokenVectors]


class _RecordedEncoder:
    """An encoder that returns the recorded vectors of a few texts."""

    name = "recorded"
    identity = "recorded"
    normalize = False
    vector_kinds: frozenset[VectorKind] = frozenset({"token", "pooled"})
    trained_representation = None
    beta = None

    def __init__(self, path: Path, dim: int) -> None:
        self.dim = dim
        try:
            entries = read_json(path, _MAX_BYTES)
            self._known = {str(each["text"]): self._read_entry(each) for each in entries}  # type: ignore[attr-defined]
        except (TypeError, KeyError, ValueError) as error:
            raise CorruptFile(f"not a list of recorded vectors: {error!r}", path=path) from error
        self._queries = {cut_query(text): entry.query for text, entry in self._known.items()}

    @property
    def texts(self) -> list[str]:
        """The texts that were recorded."""
        return list(self._known)

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Yield the recorded windows of a text."""
        return iter(self._known[text].windows)

    def encode_query(self, text: str) -> Vectors:
        """Return the recorded vector of a text's beginning."""
        return self._queries[text]

    def _read_entry(self, entry: dict[str, object]) -> _Entry:
        windows = entry["windows"]
        if not isinstance(windows, list):
            raise TypeError("windows are not a list")
        return _Entry(self._decode_base64(entry["query"])[0], [self._read_window(window) for window in windows])

    def _read_window(self, window: dict[str, object]) -> TokenVectors:
        tokens, (pooled,) = self._decode_base64(window["tokens"]), self._decode_base64(window["pooled"])
        return TokenVectors(tokens, _NO_OFFSETS, _NO_OFFSETS, pooled, pooled, pooled)

    def _decode_base64(self, coded: object) -> Vectors:
        content = base64.b64decode(str(coded), validate=True)
        return np.frombuffer(content, "<f2").astype(np.float32).reshape(-1, self.dim)


def _encode_base64(vectors: Vectors) -> str:
    rows = np.atleast_2d(vectors)
    scaled = rows / np.maximum(np.abs(rows).max(axis=1, initial=0, keepdims=True), np.float32(1e-30))
    return base64.b64encode(scaled.astype("<f2").tobytes()).decode("ascii")


_COLLECTION = "docstrings"
_DEPTH = 10  # ranks that count in nDCG


def measure_retrieval(exact: Encoder, variant: Encoder) -> RetrievalRecord:
    """Search docstrings of Python's library with both encoders; the queries are their first paragraphs.

    A document is one vector (`Pooled`), the search is exhaustive, and the only relevant document of a query is the
    rest of its docstring.

    Args:
        exact: the fp32 encoder.
        variant: the encoder to compare with it.
    """
    questions = sample_questions()
    ndcg, exact_ndcg = (round(_measure_ndcg(encoder, questions), 5) for encoder in (variant, exact))
    return RetrievalRecord(_COLLECTION, len(questions), ndcg, exact_ndcg)


def _measure_ndcg(encoder: Encoder, questions: list[tuple[str, str]]) -> float:
    """Return the mean nDCG@10 if the i-th text is the only relevant one for the i-th query."""
    queries, texts = zip(*questions, strict=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        documents = np.stack(list(pool.map(partial(_pool, encoder), texts)))
        query_vectors = np.stack(list(pool.map(encoder.encode_query, queries)))
    scores = query_vectors @ documents.T
    ranks = 1 + (scores > np.diagonal(scores)[:, np.newaxis]).sum(axis=1)
    return float(np.where(ranks <= _DEPTH, 1 / np.log2(1 + ranks), 0).mean())


def _pool(encoder: Encoder, text: str) -> Vectors:
    vector: Vectors = Pooled().represent(text, encoder.windows(text), encoder.normalize).values[0]
    return vector
