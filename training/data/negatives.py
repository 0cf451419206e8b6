"""Hard negatives: documents that an index of Quarry finds for a query and that are not marked as relevant."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.engine.building.builder import build
from quarry.engine.choices import Mode
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.engine import Engine
from quarry.engine.search.hits.hits import Hit
from quarry.formats.errors import InvalidSetting
from quarry.training.data.example_store import ExampleStore

__all__ = ["NegativeSettings", "mine_negatives", "open_temporary_index"]

_MODES = ("dense", "lexical", "hybrid")
_QUERIES_AT_ONCE = 256  # in one search

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class NegativeSettings:
    """The ``[negatives]`` table of a recipe.

    Attributes:
        mode: how they are searched for: ``dense`` (the current checkpoint), ``lexical`` (BM25), ``hybrid``.
        every: steps between mining with the current checkpoint (ANCE, Xiong et al. 2021); 0: once, at the start.
        depth: hits that are examined.
        count: negatives kept of each query, drawn from the hits that pass.
        skip: the first hits, which are never taken: many of them are relevant although they are not marked.
        margin: a hit that scores at least this share of the relevant document's score is taken for relevant, too,
            and left out; above 1, hits that rank before the relevant document are negatives.
        encoder: a bundle, whose index is searched instead of one of the current checkpoint. A reranker, which
            makes no vectors, has the bundled encoder unless another one is named.
    """

    mode: Mode = "dense"
    every: int = 0
    depth: int = 50
    count: int = 8
    skip: int = 0
    margin: float = 0.95
    encoder: Path | None = None

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise InvalidSetting("unknown mode of mining", expected=" or ".join(_MODES), actual=repr(self.mode))
        in_order = 0 <= self.skip < self.depth and 1 <= self.count <= self.depth
        if not in_order or self.every < 0 or not self.margin > 0:
            raise InvalidSetting(
                "a setting of the mining is out of range",
                expected="0 <= skip < depth, 1 <= count <= depth, every >= 0, margin > 0",
                actual=self,
            )
        if self.encoder is not None and self.every:
            raise InvalidSetting(
                "an encoder that is not trained finds the same negatives again",
                expected="every = 0",
                actual=self.every,
            )


def mine_negatives(store: ExampleStore, encoder: Encoder, settings: NegativeSettings, seed: int) -> Numbers:
    """Search an index of the store's documents for every query and keep hits that are not relevant.

    False negatives are left out: known relevant documents, also those of other examples with the same query; the
    first `skip` hits; and hits whose score is at least `margin` times that of the query's best relevant document
    (positive-aware mining). A relevant document that is not among the hits scores below all of them, so then no
    hit is compared with it and all pass. Quotation marks and asterisks of queries are punctuation in every mode.

    Args:
        store: documents and queries.
        encoder: makes the vectors.
        settings: how to mine.
        seed: the seed of the draw.

    Returns:
        (n_examples, settings.count) int64 document numbers, -1 when a query has fewer.
    """
    mined = np.full((store.n_examples, settings.count), -1, np.int64)
    texts = ((str(number), store.document(number)) for number in range(store.n_documents))
    with open_temporary_index(texts, encoder) as engine:
        for low in range(0, store.n_examples, _QUERIES_AT_ONCE):
            examples = range(low, min(low + _QUERIES_AT_ONCE, store.n_examples))
            queries = [store.query(example) for example in examples]
            answers = engine.search(queries, settings.depth, mode=settings.mode, operators=False)
            for example, hits in zip(examples, answers, strict=True):
                negatives = np.fromiter(_passing(hits, set(store.relevant(example).tolist()), settings), np.int64)
                rng = np.random.default_rng([seed, example])
                kept = rng.permutation(negatives)[: settings.count]
                mined[example, : len(kept)] = np.sort(kept)
    return mined


@contextmanager
def open_temporary_index(texts: Iterable[tuple[str, str]], encoder: Encoder) -> Iterator[Engine]:
    """Build an index for the searches of a block, and delete it afterwards.

    Args:
        texts: id and text of each document.
        encoder: makes the vectors of documents and queries.
    """
    with tempfile.TemporaryDirectory() as temporary:
        index = Path(temporary) / "index"
        build(({"id": name, "text": text} for name, text in texts), index, encoder=encoder, progress=False)
        with Engine.open(index, encoder=encoder) as engine:
            yield engine


def _passing(hits: list[Hit], positives: set[int], settings: NegativeSettings) -> Iterator[int]:
    """The numbers of the hits that are taken for not relevant."""
    relevant = [hit.score for hit in hits if int(hit.id) in positives]
    best = max(relevant, default=np.inf)
    limit = best * (settings.margin if best >= 0 else 2 - settings.margin)  # as far from a negative score
    for rank, hit in enumerate(hits):
        if rank >= settings.skip and int(hit.id) not in positives and hit.score < limit:
            yield int(hit.id)
