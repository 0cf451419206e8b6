"""Scores pairs of a query and a text with a cross-encoder, run by ONNX Runtime on the CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from quarry.engine.arguments import lone_surrogate, shown
from quarry.engine.documents.document import full_text
from quarry.engine.encoding.runtimes.onnx_session import INPUT_NAMES, open_session, run_session
from quarry.engine.encoding.tokenizer import Ids, TextTokenizer, find_pair_frame
from quarry.engine.encoding.windows import window_bounds
from quarry.engine.extensions import make_extension
from quarry.engine.process.per_process import PerProcess, bundle_key, shared_models
from quarry.engine.process.worker_pool import map_on_threads
from quarry.engine.scoring.ranking import Exactness
from quarry.engine.search.hits.hits import Hits
from quarry.formats.arrays import Float32Array
from quarry.formats.bundle.folder import MODEL_NAME, TOKENIZER_NAME
from quarry.formats.bundle.reranker import RerankerBundle, load_reranker_bundle
from quarry.formats.errors import CorruptFile, InvalidDocument, InvalidQuery, InvalidSetting
from quarry.formats.system_errors import checked_path

__all__ = ["OnnxReranker", "Reranker", "open_reranker", "rerank"]


@runtime_checkable
class Reranker(Protocol):
    """Scores texts for a query; safe to use from several threads at once.

    Attributes:
        name: name for messages.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    def scores(self, query: str, texts: Sequence[str]) -> Float32Array:
        """Score texts: (n_texts,) float32 in their order, larger is better.

        A text's score depends on the query and that text only: not on the other texts, their order, or the number
        of threads. A text too long for the model is cut into windows, and has the score of its best window.

        Raises:
            InvalidQuery: the query is not a str, has no token, or holds a lone surrogate.
            InvalidDocument: a text is not a str, has no token, or holds a lone surrogate; the message has its
                number.
        """
        ...


def open_reranker(source: str | os.PathLike[str] | Reranker, threads: int = 1) -> Reranker:
    """Open a reranker; its model is loaded when it is first used.

    Args:
        source: the folder of a reranker bundle, the name of a reranker that an installed package has registered,
            or a reranker (returned unchanged).
        threads: number of threads that score the texts of a call, at least 1; for bundles.

    Raises:
        ExtensionFailed: what is registered under the name cannot be used.
        InvalidSetting: there is no bundle at the path, it is not a reranker's, or the source is of another type.
        FormatError: the bundle is damaged, or of an unknown version.
        AccessFailed: the operating system refuses access to a file of the bundle.
    """
    made: object = source
    if isinstance(source, str | os.PathLike):
        made = make_extension("reranker", checked_path(source, "reranker"))
    if isinstance(made, Reranker):
        return made
    if made is not None or not isinstance(source, str | os.PathLike):
        raise InvalidSetting(
            "not a reranker",
            expected="a bundle's folder or an object with Reranker's methods",
            actual=type(made),
        )
    return OnnxReranker(load_reranker_bundle(checked_path(source, "reranker")), threads)


class OnnxReranker:
    """A `Reranker` that runs a bundle's graph: a cross-encoder (Nogueira and Cho 2019).

    The bundle's tokenizer adds special tokens to a pair, for BERT ``[CLS] query [SEP] text [SEP]`` with token
    types 0 and 1. A query is truncated to half of the model's window. A text longer than the rest is cut into
    windows at sentence ends (`quarry.engine.encoding.windows`), and has the largest of their scores.

    One pair is run at a time, without padding, on one thread: int8 graphs quantize most activations per tensor, so
    in a batch a pair's score would depend on its neighbors.

    Session and tokenizer are created at first use, once in each process for all rerankers of the same bundle. The
    digests of model and tokenizer are verified first.

    Args:
        bundle: the bundle, with graph and tokenizer.
        threads: number of threads that score the texts of a call, at least 1.

    Raises:
        InvalidSetting: `threads` is out of range.
    """

    def __init__(self, bundle: RerankerBundle, threads: int = 1) -> None:
        if type(threads) is not int or threads < 1:
            raise InvalidSetting("threads is out of range", expected="an integer from 1", actual=shown(threads))
        self._bundle = bundle
        self._threads = threads
        self._runtimes = shared_models.get(bundle_key(bundle), partial(PerProcess, partial(_Runtime, bundle)))

    @property
    def name(self) -> str:
        """The bundle's name."""
        return self._bundle.settings.name

    def __repr__(self) -> str:
        return f"OnnxReranker({self.name!r}, {self._bundle.settings.precision}, identity={self._bundle.identity})"

    def scores(self, query: str, texts: Sequence[str]) -> Float32Array:
        """Score texts into (n_texts,) float32, see `Reranker.scores`.

        Raises:
            InvalidQuery, InvalidDocument: see `Reranker.scores`.
            FormatError: a file of the bundle is damaged, or the graph cannot be run.
        """
        problem = _find_problem(query)
        if problem is not None:
            raise InvalidQuery(f"the query {problem}")
        _check_texts(texts)
        score = self._runtimes.get().scorer(query)
        scores = map_on_threads(score, list(enumerate(texts)), self._threads, "quarry-rerank")
        return np.array(scores, np.float32)


class _Runtime:
    """Session and tokenizer of one process."""

    def __init__(self, bundle: RerankerBundle) -> None:
        bundle.verify_files([TOKENIZER_NAME])
        bundle.verify_graph(MODEL_NAME)
        self._bundle = bundle
        self._tokenizer = TextTokenizer(bundle.tokenizer_path)
        self._session = open_session(bundle.model_path)
        self._input_names = [node.name for node in self._session.get_inputs()]
        self._check_interface()
        self._frame = find_pair_frame(self._tokenizer, bundle.tokenizer_path)
        self._max_query = bundle.settings.window // 2
        self._check_window()

    def _check_interface(self) -> None:
        """Raise unless the graph takes token ids and returns one score for each pair."""
        ranks = {node.name: len(node.shape) for node in self._session.get_outputs()}
        inputs = set(self._input_names)
        if "input_ids" not in inputs or not inputs <= INPUT_NAMES or ranks.get("scores") != 1:
            raise CorruptFile(
                "the graph has other inputs or outputs than a reranker's",
                path=self._bundle.model_path,
                expected=f"{sorted(INPUT_NAMES)} -> scores, of rank 1",
                actual=f"{sorted(inputs)} -> {ranks}",
            )

    def _check_window(self) -> None:
        least = self._frame.n_tokens + self._max_query + 1
        if self._bundle.settings.window < least:
            raise CorruptFile(
                "the bundle's window has no room for text beside query and special tokens",
                path=self._bundle.path,
                expected=f"at least {least} tokens",
                actual=self._bundle.settings.window,
            )

    def scorer(self, query: str) -> _Scorer:
        """Prepare a query."""
        ids = self._tokenizer.tokenize(query).ids[: self._max_query]
        if not len(ids):
            raise InvalidQuery("the query has no token", actual=repr(query[:80]))
        return _Scorer(self, ids)

    def windows(self, text: str, n_query_tokens: int) -> Iterator[Ids]:
        """Yield the token ids of a text in windows that fit beside a query."""
        tokens = self._tokenizer.tokenize(text)
        room = self._bundle.settings.window - self._frame.n_tokens - n_query_tokens
        for first, stop in window_bounds(text, tokens.starts, tokens.ends, room):
            yield tokens.ids[first:stop]

    def score(self, query: Ids, text: Ids) -> float:
        """Run the graph for one pair of token ids."""
        ids, types = (row[np.newaxis] for row in self._frame.around(query, text))
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}
        chosen = {name: inputs[name] for name in self._input_names}
        scores = run_session(self._session, self._bundle.model_path, "scores", chosen)
        if scores.shape != (1,):
            raise CorruptFile(
                "the graph returns no score for a pair",
                path=self._bundle.model_path,
                expected=(1,),
                actual=scores.shape,
            )
        return float(scores[0])


@dataclass(frozen=True, slots=True)
class _Scorer:
    """Scores texts for one query."""

    runtime: _Runtime
    query: Ids

    def __call__(self, numbered: tuple[int, str]) -> float:
        """Return the score of a text, given with its number."""
        number, text = numbered
        windows = self.runtime.windows(text, len(self.query))
        scores = [self.runtime.score(self.query, window) for window in windows]
        if not scores:
            raise InvalidDocument(f"text {number} has no token", actual=repr(text[:80]))
        return max(scores)


def _check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise InvalidDocument("one string instead of a sequence of texts", actual=repr(texts[:80]))
    for number, text in enumerate(texts):
        problem = _find_problem(text)
        if problem is not None:
            raise InvalidDocument(f"text {number} {problem}")


def _find_problem(text: object) -> str | None:
    """Return why a text cannot be tokenized, None if it can."""
    if not isinstance(text, str):
        return f"is not a str but {type(text).__name__}"
    position = lone_surrogate(text)
    return None if position is None else f"holds a lone surrogate at character {position}"


def rerank(query: str, hits: Hits, reranker: Reranker, k: int, offset: int = 0) -> Hits:
    """Return the k best of `hits` by the reranker's scores after the first `offset`, best first.

    Hits with equal scores keep their order.
    """
    if not hits:
        return hits
    scores = reranker.scores(query, [full_text(hit.title, hit.text) for hit in hits]).tolist()
    scored = [copy(hit) for hit in hits]
    for hit, score in zip(scored, scores, strict=True):
        hit.score = score
    is_partial = hits.exactness is Exactness.PARTIAL
    exactness = Exactness.PARTIAL if is_partial else Exactness.APPROXIMATE
    return Hits(
        sorted(scored, key=lambda hit: -hit.score)[offset : offset + k], exactness, hits.coverage, hits.total
    )
