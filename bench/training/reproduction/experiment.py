"""Common parts of the experiments of the reproductions, and the comparisons of their tables."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from bench.harness.records import Record
from bench.training.reproduction.bootstrap import paired_difference, seed_means
from bench.training.reproduction.evaluation import Evaluation
from bench.training.reproduction.ranks import reciprocals, unpack_ranks
from bench.training.reproduction.small_run import SmallRun

__all__ = ["Case", "Experiment", "cell", "compare", "mean_of", "rr_10", "select"]

Case = Mapping[str, object]
"""Parameters of one way to train or to search; with a seed, one line of the results."""


class Experiment(ABC):
    """Ways to train and to search that a paper compares.

    Args:
        run: what all trainings have in common.
        evaluation: what is searched.
        args: the arguments that `add_arguments` declared, and others.

    Attributes:
        folder: of the runs; results with other settings have another one.
    """

    summary: ClassVar[str]
    """The comparison in words, for the help of the command."""

    def __init__(self, run: SmallRun, evaluation: Evaluation, args: argparse.Namespace) -> None:
        self.run, self.evaluation, self.args = run, evaluation, args
        self.folder = Path()

    @classmethod
    @abstractmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Declare arguments of its own, and its defaults of those that all have."""

    @abstractmethod
    def settings(self) -> dict[str, object]:
        """Values that distinguish its results from those with other arguments, seeds and cases aside."""

    @abstractmethod
    def cases(self) -> Sequence[Case]:
        """The cases that are measured for each seed, in this order."""

    @abstractmethod
    def measure(self, case: Case, seed: int) -> Mapping[str, object]:
        """Train if it was not done before, and search; ``ranks`` among what is returned are packed."""

    @abstractmethod
    def table(self, records: Sequence[Record]) -> Iterator[str]:
        """The lines of a table beside the paper's."""


def select(records: Sequence[Record], case: Case) -> list[Record]:
    """The records of a case, by seed."""
    found = [record for record in records if case.items() <= record.items()]
    return sorted(found, key=lambda record: int(str(record["seed"])))


def mean_of(records: Sequence[Record], member: str) -> float:
    """The mean of a number over records."""
    return float(np.mean([float(str(record[member])) for record in records]))


def rr_10(records: Sequence[Record]) -> np.ndarray:
    """RR@10 of each query, averaged over seeds: (n_queries,) float64."""
    return seed_means([reciprocals(unpack_ranks(record["ranks"])).tolist() for record in records])


def compare(records: Sequence[Record], others: Sequence[Record]) -> str:
    """Compute how far records are above others in the seeds that both have, with the interval that holds 95 %.

    Args:
        records: of one case.
        others: of another one.
    """
    seeds = {record["seed"] for record in records} & {record["seed"] for record in others}
    if not seeds:
        return ""
    first, second = (rr_10([record for record in each if record["seed"] in seeds]) for each in (records, others))
    found = paired_difference(first, second)
    return f"{cell(found.mean, sign=True)} ({cell(found.low, sign=True)} to {cell(found.high, sign=True)})"


def cell(value: float, *, sign: bool = False) -> str:
    """A number of a table: .510, or with its sign +.012."""
    text = f"{value:+.3f}" if sign else f"{value:.3f}"
    return text.replace("0.", ".", 1)
