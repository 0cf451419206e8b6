"""Aggretriever: [CLS], aggregated words and both, with and without the MLM head, in small (Lin et al. 2022)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import lru_cache

from bench.harness.records import Record
from bench.training.reproduction.evaluation import Scorer
from bench.training.reproduction.experiment import Case, Experiment, cell, compare, mean_of, select
from bench.training.reproduction.ranks import pack_ranks
from bench.training.reproduction.small_run import Table
from bench.training.reproduction.trained_representation import Encoded, train_representation

__all__ = ["Aggregation"]

_N_CLS, _N_DIMS = 128, 640
_PARTS = {"both": slice(None), "[CLS]": slice(0, _N_CLS), "aggregated": slice(_N_CLS, None)}
_TABLES: dict[str, Table] = {
    "cls": {"name": "single_vector", "pooling": "cls", "normalize": False, "scale": 1.0},
    "mean": {"name": "single_vector", "pooling": "mean", "normalize": False, "scale": 1.0},
    "agg": {"signed": True, "mlm": True},
    "agg-plus": {"signed": False, "mlm": True},
    "agg-no-mlm": {"signed": True, "mlm": False},
}
"""``[objective]`` of each model, of those that aggregate without what they have in common."""
_PAPER = {
    ("cls", "both"): ".308",
    ("mean", "both"): ".300 (with [CLS])",
    ("agg", "aggregated"): ".307 (768, alone)",
    ("agg", "both"): ".341",
    ("agg-plus", "both"): ".341",
    ("agg-no-mlm", "both"): ".332",
}
"""RR@10 on MS MARCO passages, Lin et al. 2022, Tables 5 and 6, DistilBERT."""


class Aggregation(Experiment):
    """Lin et al. 2022: [CLS] and aggregated words < both (Table 5), a little less without the MLM head (Table 6).

    The parts are searched alone with the vectors of the model that has both, which also has a loss of its own for
    either part. [CLS] and the mean of all tokens are trained alone, too.
    """

    summary = "Aggretriever: [CLS], aggregated words and both, with and without the MLM head"

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See `Experiment.add_arguments`."""
        parser.add_argument(
            "--models",
            nargs="+",
            choices=_TABLES,
            default=list(_TABLES),
            help="agg: agg* of the paper, agg-plus: agg+, agg-no-mlm: agg* of the tokens themselves",
        )
        parser.set_defaults(steps=200, batch_size=32, frozen_layers=-1, train_documents=4000)
        parser.set_defaults(learning_rate=3e-4, tokens=48, search_tokens=64, precision="fp32")

    def settings(self) -> dict[str, object]:
        """See `Experiment.settings`."""
        return {"n_cls": _N_CLS, "n_dims": _N_DIMS}

    def cases(self) -> Sequence[Case]:
        """See `Experiment.cases`."""
        return [
            {"model": model, "part": part}
            for model in self.args.models
            for part in (_PARTS if model.startswith("agg") else ("both",))
        ]

    def measure(self, case: Case, seed: int) -> dict[str, object]:
        """See `Experiment.measure`."""
        encoded = self._encoded(str(case["model"]), seed)
        return {"ranks": pack_ranks(self.evaluation.rank(_scorer(encoded, _PARTS[str(case["part"])])))}

    @lru_cache(maxsize=1)  # noqa: B019
    def _encoded(self, model: str, seed: int) -> Encoded:
        name = f"{list(_TABLES).index(model)}-{seed}"
        return train_representation(self.run.with_seed(seed), _table(model), self.folder, name).encode(
            self.evaluation
        )

    def table(self, records: Sequence[Record]) -> Iterator[str]:
        """Every model and part, above [CLS] alone and above the other models."""
        yield (
            "| model | part | seeds | RR@10 | above cls (95 %) | above its own aggregated part (95 %) "
            "| above agg (95 %) | RR@10 in the paper |"
        )
        yield "| --- | --- | ---: | ---: | --- | --- | --- | --- |"
        cls = select(records, {"model": "cls"})
        for case in self.cases():
            own = select(records, case)
            if not own:
                continue
            model, part = str(case["model"]), str(case["part"])
            above, aggregated, other, shown = "" if model == "cls" else compare(own, cls), "", "", ""
            if model.startswith("agg"):
                shown = part
                if part == "both":
                    aggregated = compare(own, select(records, {**case, "part": "aggregated"}))
                if model != "agg":
                    other = compare(own, select(records, {**case, "model": "agg"}))
            yield (
                f"| {model} | {shown} | {len(own)} | {cell(mean_of(own, 'rr_10'))} | {above} | {aggregated} "
                f"| {other} | {_PAPER.get((model, part), '')} |"
            )


def _table(model: str) -> Table:
    table = _TABLES[model]
    if "name" in table:
        return table
    shared = {"name": "aggretriever", "normalize": False, "scale": 1.0, "n_cls": _N_CLS, "n_dims": _N_DIMS}
    return {**shared, **table}


def _scorer(encoded: Encoded, part: slice) -> Scorer:
    documents = encoded.documents.values[:, part].T
    return lambda own: encoded.queries[own, part] @ documents
