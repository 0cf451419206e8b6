"""The batch of a step, of one source or of several mixed by weights, drawn from seed and step number alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from quarry.formats.errors import InvalidSetting
from quarry.training.data.example_store import ExampleStore

__all__ = ["Batch", "BatchSource", "Mixture"]

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """The texts of one step.

    Attributes:
        source: name of the source they come from.
        queries: the queries' texts.
        documents: the candidates' texts, each once: the queries' relevant documents, then hard negatives.
        numbers: (n_documents,) int64, the documents' numbers in the source.
        targets: (n_queries,) int64, the column of each query's relevant document.
        relevant: (n_queries, n_documents) bool, all known relevant documents.
        positives: for each query (n,) int64, the numbers of all known relevant documents, in the batch or not.
        negatives: for each query (n,) int64, the columns of its own hard negatives.
        examples: (n_queries,) int64, the queries' numbers in the source.
    """

    source: str
    queries: tuple[str, ...]
    documents: tuple[str, ...]
    numbers: Numbers
    targets: Numbers
    relevant: npt.NDArray[np.bool_]
    positives: tuple[Numbers, ...] = ()
    negatives: tuple[Numbers, ...] = ()
    examples: Numbers = field(default_factory=lambda: np.empty(0, np.int64))


class BatchSource:
    """Draws batches from a store.

    In an epoch every example is taken once, but for the last ones that do not fill a batch. The examples of a
    group (an article, a cluster) are shuffled and cut into runs of `group_size`; the runs are shuffled and laid
    end to end, and a batch is the next `batch_size` of them: with 32 and 8 it has passages of about four groups,
    so that in-batch negatives are hard ones (Hofstätter et al. 2021 group by clusters in this way).

    Where documents have several queries each, `by_document` shuffles the documents of a group and keeps the
    queries of each together. A batch then has fewer documents than queries, and encoding documents, which are
    longer, is most of the work of a step.

    Args:
        name: the name of the source.
        store: its examples.
        batch_size: queries in a batch.
        group_size: examples of one group in a run; 1 shuffles all examples.
        by_document: whether the examples of a document follow each other; an example with several relevant
            documents counts to the first.
        n_negatives: hard negatives of each query; as many as there are if fewer.
        seed: the seed of every draw.

    Raises:
        InvalidSetting: a size is out of range, or the source has fewer examples than a batch.
    """

    def __init__(
        self,
        name: str,
        store: ExampleStore,
        *,
        batch_size: int,
        group_size: int,
        n_negatives: int,
        seed: int,
        by_document: bool = False,
    ) -> None:
        if not 1 <= group_size <= batch_size <= store.n_examples:
            raise InvalidSetting(
                f"sizes of the batches of {name!r} are out of range",
                expected=f"1 <= group_size <= batch_size <= {store.n_examples} examples",
                actual=f"group_size {group_size}, batch_size {batch_size}",
            )
        self.name, self.store = name, store
        self._batch_size, self._group_size, self._n_negatives = batch_size, group_size, n_negatives
        self._seed, self._by_document = seed, by_document
        self._groups = store.example_groups()
        self._mined: Numbers | None = None
        self._epoch: tuple[int, Numbers] = (-1, np.empty(0, np.int64))

    def use_negatives(self, mined: Numbers) -> None:
        """Take mined negatives from now on.

        Args:
            mined: (n_examples, n) int64 document numbers, -1 when there is none.
        """
        self._mined = mined

    def batch(self, number: int) -> Batch:
        """The batch with a number, from 0: the same one every time."""
        per_epoch = len(self._groups) // self._batch_size
        epoch, place = divmod(number, per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = epoch, self._order(epoch)
        examples = self._epoch[1][place * self._batch_size : (place + 1) * self._batch_size]
        return self._batch_of(examples, np.random.default_rng([self._seed, 1, number]))

    def _order(self, epoch: int) -> Numbers:
        rng = np.random.default_rng([self._seed, 0, epoch])
        shuffled = rng.permutation(len(self._groups))
        keys = [self._groups[shuffled]]
        if self._by_document:
            places = rng.permutation(self.store.n_documents)
            keys.insert(0, places[self.store.first_documents()[shuffled]])
        by_group = shuffled[np.lexsort(keys)]
        is_first = np.diff(self._groups[by_group], prepend=-1) != 0
        first_of_group = np.maximum.accumulate(np.where(is_first, np.arange(len(by_group)), 0))
        within_group = np.arange(len(by_group)) - first_of_group
        run_of = np.cumsum(within_group % self._group_size == 0) - 1
        place_of_run = rng.permutation(int(run_of[-1]) + 1)
        order: Numbers = by_group[np.argsort(place_of_run[run_of], kind="stable")]
        return order

    def _batch_of(self, examples: Numbers, rng: np.random.Generator) -> Batch:
        chosen = [int(rng.choice(self.store.positives(example))) for example in examples.tolist()]
        columns = {document: column for column, document in enumerate(dict.fromkeys(chosen))}
        negatives = [self._negatives(example, rng) for example in examples.tolist()]
        for document in (document for own in negatives for document in own):
            columns.setdefault(document, len(columns))
        relevant = np.zeros((len(examples), len(columns)), np.bool_)
        known = [self.store.relevant(example) for example in examples.tolist()]
        for row, each in enumerate(known):
            relevant[row, [columns[number] for number in each.tolist() if number in columns]] = True
        return Batch(
            source=self.name,
            queries=tuple(self.store.query(example) for example in examples.tolist()),
            documents=tuple(self.store.document(number) for number in columns),
            numbers=np.array(list(columns), np.int64),
            targets=np.array([columns[document] for document in chosen], np.int64),
            relevant=relevant,
            positives=tuple(known),
            negatives=tuple(np.array([columns[document] for document in own], np.int64) for own in negatives),
            examples=examples,
        )

    def _negatives(self, example: int, rng: np.random.Generator) -> list[int]:
        """Hard negatives of an example: those it came with, then mined ones."""
        own = self.store.negatives(example)
        mined = np.empty(0, np.int64) if self._mined is None else self._mined[example]
        pool = np.unique(np.concatenate([own, mined[mined >= 0]]))
        pool = pool[~np.isin(pool, self.store.relevant(example))]
        count = min(self._n_negatives, len(pool))
        return sorted(rng.choice(pool, count, replace=False).tolist()) if count else []


class Mixture:
    """Chooses the source of every step, so that after any number of steps each had its share.

    A step goes to the source that is furthest behind its share of the steps so far, the earlier of equals: no
    randomness, and the choice depends on the number of the step alone.

    Args:
        sources: what to draw batches from.
        weights: the share of each, above 0; they need not add up to 1.

    Raises:
        InvalidSetting: no source, or a weight that is not above 0.
    """

    def __init__(self, sources: Sequence[BatchSource], weights: Sequence[float]) -> None:
        if not sources or len(sources) != len(weights) or not min(weights) > 0:
            raise InvalidSetting(
                "sources cannot be mixed", expected="one at least, weights above 0", actual=list(weights)
            )
        self._sources = list(sources)
        self._shares = np.array(weights, np.float64) / sum(weights)
        self._counts = np.zeros(len(sources), np.int64)
        self._chosen: list[tuple[int, int]] = []

    @property
    def sources(self) -> list[BatchSource]:
        """The sources that are mixed."""
        return self._sources

    def batch(self, step: int) -> Batch:
        """The batch of a step, from 0: the same one every time."""
        while len(self._chosen) <= step:
            behind = self._shares * (len(self._chosen) + 1) - self._counts
            source = int(behind.argmax())
            self._chosen.append((source, int(self._counts[source])))
            self._counts[source] += 1
        source, number = self._chosen[step]
        return self._sources[source].batch(number)
