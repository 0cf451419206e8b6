"""Scores pairs of a query and a text with a cross-encoder, run by ONNX Runtime on the CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from quarry.engine.arguments import shown
from quarry.engine.documents.document import full_text
from quarry.engine.encoding.onnx_session import INPUT_NAMES, PerProcess, open_session, run_session
from quarry.engine.encoding.shared_models import bundle_key, shared_models
from quarry.engine.encoding.tokenizer import Ids, TextTokenizer, lone_surrogate
from quarry.engine.encoding.windows import window_bounds
from quarry.engine.process.worker_pool import map_on_threads
from quarry.engine.scoring.ranking import Exactness
from quarry.engine.search.hits import Hits
from quarry.formats.bundle.folder import MODEL_NAME, TOKENIZER_NAME
from quarry.formats.bundle.reranker import RerankerBundle, load_reranker_bundle
from quarry.formats.errors import CorruptFile, InvalidDocument, InvalidQuery, InvalidSetting
from quarry.formats.system_errors import checked_path

__all__ = ["OnnxReranker", "Reranker", "open_reranker", "reranked"]


Scores = npt.NDArray[np.float32]


@runtime_checkable
class Reranker(Protocol):
    """Scores texts for a query; safe to use from several threads at once.

    Attributes:
        name: for people.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    def scores(self, query: str, texts: Sequence[str]) -> Scores:
        """Score texts: (n_texts,) float32 in their order, larger is better.

        A text's score depends on the query and that text alone: not on the other texts, their order, or on how
        many threads. A text too long for the model is read in windows, none of it left out, and has the score of
        its best one.

        Raises:
            InvalidQuery: the query is no string, has no token, or holds a lone surrogate.
            InvalidDocument: a text is no string, has no token, or holds a lone surrogate; the message says which.
        """
        ...


def open_reranker(source: str | os.PathLike[str] | Reranker, threads: int = 1) -> Reranker:
    """Open a reranker; its model is loaded when it is first used.

    Args:
        source: the folder of a reranker bundle, or a reranker (returned as it is, with threads of its own).
        threads: how many texts of a call are scored at once, at least 1.

    Raises:
        InvalidSetting: there is no bundle at the path, it holds no reranker, or the source is none of the above.
        FormatError: the bundle is damaged or of a version that this one does not read.
        AccessFailed: the system refuses a file of the bundle.
    """
    if isinstance(source, Reranker):
        return source
    if not isinstance(source, str | os.PathLike):
        raise InvalidSetting(
            "not a reranker",
            expected="a bundle's folder or an object with Reranker's methods",
            actual=type(source),
        )
    return OnnxReranker(load_reranker_bundle(checked_path(source, "reranker")), threads)


class OnnxReranker:
    """A `Reranker` that runs a bundle's graph: a cross-encoder (Nogueira and Cho 2019).

    A pair is read as the bundle's tokenizer frames pairs, for BERT ``[CLS] query [SEP] text [SEP]`` with token
    types 0 and 1. A query takes at most half of the model's window and is cut behind that; the text has the rest.
    Of a text longer than that, windows cut at sentence ends (`quarry.engine.encoding.windows`) are scored, and
    the largest score is taken.

    One pair is run at a time, unpadded, each on one thread: int8 graphs quantise activations per tensor, so that
    in a batch a pair's score would change with its neighbours.

    Session and tokenizer are made at first use, once in each process for all rerankers of the same bundle. The
    digests of model and tokenizer are checked before.

    Args:
        bundle: where graph and tokenizer are.
        threads: how many texts of a call are scored at once, at least 1.

    Raises:
        InvalidSetting: fewer threads than one.
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

    def scores(self, query: str, texts: Sequence[str]) -> Scores:
        """Score texts into (n_texts,) float32, see `Reranker.scores`.

        Raises:
            InvalidQuery, InvalidDocument: as there.
            FormatError: the bundle's files are not what its manifest says, or cannot be run.
        """
        fault = _fault(query)
        if fault is not None:
            raise InvalidQuery(f"the query {fault}")
        _check_texts(texts)
        score = self._runtimes.get().scorer(query)
        scores = map_on_threads(score, list(enumerate(texts)), self._threads, "quarry-rerank")
        return np.array(scores, np.float32)


@dataclass(frozen=True, slots=True)
class _Frame:
    """What the tokenizer puts around the two texts of a pair.

    Attributes:
        ids: special tokens before the first text, between the two, after the second: (n_tokens,) int64 each.
        types: token types of these three, and of each text's tokens between them: five arrays in order, of the
            special tokens' lengths and of length 1.
    """

    ids: tuple[Ids, Ids, Ids]
    types: tuple[Ids, Ids, Ids, Ids, Ids]

    @property
    def n_tokens(self) -> int:
        """How many special tokens."""
        return sum(map(len, self.ids))

    def around(self, query: Ids, text: Ids) -> tuple[Ids, Ids]:
        """Return ids and types, (1, n_tokens) each, of a pair."""
        before, between, after = self.ids
        one, of_query, two, of_text, three = self.types
        ids = np.concatenate((before, query, between, text, after))
        types = np.concatenate((one, of_query.repeat(len(query)), two, of_text.repeat(len(text)), three))
        return ids[np.newaxis], types[np.newaxis]


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
        self._frame = self._find_frame()
        self._max_query = bundle.settings.window // 2
        self._check_window()

    def _check_interface(self) -> None:
        """Refuse a graph that does not turn token ids into one score a pair."""
        ranks = {node.name: len(node.shape) for node in self._session.get_outputs()}
        inputs = set(self._input_names)
        if "input_ids" not in inputs or not inputs <= INPUT_NAMES or ranks.get("scores") != 1:
            raise CorruptFile(
                "the graph has other inputs or outputs than a reranker's",
                path=self._bundle.model_path,
                expected=f"{sorted(INPUT_NAMES)} -> scores, of rank 1",
                actual=f"{sorted(inputs)} -> {ranks}",
            )

    def _find_frame(self) -> _Frame:
        """Have the tokenizer frame a pair, and see what it put where."""
        encoding = self._tokenizer.encode_with_special_tokens("a", "a")
        ids, types = np.array(encoding.ids, np.int64), np.array(encoding.type_ids, np.int64)
        owners = np.array([-1 if owner is None else owner for owner in encoding.sequence_ids])
        query, text = np.flatnonzero(owners == 0), np.flatnonzero(owners == 1)
        if not len(query) or not len(text) or text[0] < query[-1]:
            raise CorruptFile("the tokenizer does not frame pairs", path=self._bundle.tokenizer_path)
        cuts = [query[0], query[-1] + 1, text[0], text[-1] + 1]
        before, _, between, _, after = np.split(ids, cuts)
        one, of_query, two, of_text, three = np.split(types, cuts)
        return _Frame((before, between, after), (one, of_query[:1], two, of_text[:1], three))

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
        """Cut a text's token ids into what fits beside a query."""
        tokens = self._tokenizer.tokenize(text)
        room = self._bundle.settings.window - self._frame.n_tokens - n_query_tokens
        for first, stop in window_bounds(text, tokens.starts, tokens.ends, room):
            yield tokens.ids[first:stop]

    def score(self, query: Ids, text: Ids) -> float:
        """Run the graph over one pair of token ids."""
        ids, types = self._frame.around(query, text)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}
        chosen = {name: inputs[name] for name in self._input_names}
        scores = run_session(self._session, self._bundle.model_path, "scores", chosen)
        if scores.shape != (1,):
            raise CorruptFile(
                "the graph gives no score for a pair",
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
        """Score a text, given with its number."""
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
        fault = _fault(text)
        if fault is not None:
            raise InvalidDocument(f"text {number} {fault}")


def _fault(text: object) -> str | None:
    """Say what keeps a text from being tokenised, None where nothing does."""
    if not isinstance(text, str):
        return f"is no string but {type(text).__name__}"
    position = lone_surrogate(text)
    return None if position is None else f"holds a lone surrogate at character {position}"


def reranked(query: str, hits: Hits, reranker: Reranker, k: int) -> Hits:
    """The k best of `hits` by the reranker, best first; their scores are the reranker's.

    Equal scores keep their order.
    """
    if not hits:
        return hits
    scores = reranker.scores(query, [full_text(hit.title, hit.text) for hit in hits]).tolist()
    scored = [replace(hit, score=score) for hit, score in zip(hits, scores, strict=True)]
    is_partial = hits.exactness is Exactness.PARTIAL
    exactness = Exactness.PARTIAL if is_partial else Exactness.APPROXIMATE
    return Hits(sorted(scored, key=lambda hit: -hit.score)[:k], exactness, hits.coverage)
