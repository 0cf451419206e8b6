"""Codes: Table 2 of RepCONC in small, and how its constraint balances them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cached_property

from bench.harness.records import Record
from bench.training.reproduction.coded_runs import METHODS, ONE_VECTOR, CodedRuns, CodeSettings
from bench.training.reproduction.experiment import Case, Experiment, cell, compare, mean_of, select
from bench.training.reproduction.ranks import pack_ranks

__all__ = ["Compression"]

_PAPER = {
    ("opq", 16): 0.234, ("dpq", 16): 0.244, ("jpq", 16): 0.273, ("clustering", 16): 0.275, ("repconc", 16): 0.284,
    ("repconc+jpq", 16): 0.294, ("opq", 48): 0.290, ("dpq", 48): 0.305, ("jpq", 48): 0.332,
    ("clustering", 48): 0.332, ("repconc", 48): 0.337, ("repconc+jpq", 48): 0.340,
}  # fmt: skip
"""MRR@10 on MS MARCO passages, Zhan et al. 2022, Table 2."""

_BEFORE = {
    "dpq": "opq",
    "clustering": "dpq",
    "repconc": "clustering",
    "jpq": "opq",
    "repconc+jpq": "repconc",
}


class Compression(Experiment):
    """RepCONC's Table 2 (Zhan et al. 2022): OPQ < DPQ < JPQ = clustering < clustering under the constraint.

    Encoders are trained with each method at several sizes of codes, and searched by codes alone.
    """

    summary = "codes: OPQ, DPQ, JPQ and RepCONC with and without its constraint"

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See `Experiment.add_arguments`."""
        settings = CodeSettings()
        parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
        parser.add_argument("--code-bytes", nargs="+", type=int, default=[16, 48])
        parser.add_argument("--bits", type=int, choices=(4, 8), default=settings.bits)
        parser.add_argument("--codebook-rate", type=float, default=settings.codebook_rate)
        parser.add_argument("--scoring-rate", type=float, default=settings.scoring_rate)
        parser.add_argument("--error-weight", type=float, default=settings.error_weight)
        parser.add_argument(
            "--first-steps", type=int, default=0, help="train the checkpoint for one vector before anything else"
        )
        parser.add_argument("--first-rate", type=float, default=3e-4, help="learning rate of these steps")
        parser.set_defaults(steps=50, batch_size=96, frozen_layers=3, train_documents=4000)

    @cached_property
    def _settings(self) -> CodeSettings:
        args = self.args
        return CodeSettings(
            bits=args.bits,
            codebook_rate=args.codebook_rate,
            scoring_rate=args.scoring_rate,
            error_weight=args.error_weight,
        )

    @cached_property
    def _runs(self) -> CodedRuns:
        run, args = self.run, self.args
        if args.first_steps:
            first = replace(run, steps=args.first_steps, learning_rate=args.first_rate, frozen_layers=None)
            run = replace(run, checkpoint=first.train(self.folder / "first", ONE_VECTOR))
        return CodedRuns(run, self._settings, self.evaluation, self.folder)

    def settings(self) -> dict[str, object]:
        """See `Experiment.settings`."""
        first = {"first_steps": self.args.first_steps, "first_rate": self.args.first_rate}
        return {**asdict(self._settings), **(first if self.args.first_steps else {"first_steps": 0})}

    def cases(self) -> Sequence[Case]:
        """See `Experiment.cases`."""
        return [
            {"code_bytes": code_bytes, "method": method}
            for code_bytes in self.args.code_bytes
            for method in METHODS
            if method in self.args.methods
        ]

    def measure(self, case: Case, seed: int) -> dict[str, object]:
        """See `Experiment.measure`."""
        found = self._runs.measure(str(case["method"]), int(str(case["code_bytes"])), seed)
        words, error = round(found.effective_words, 3), round(found.error, 5)
        return {"ranks": pack_ranks(found.ranks), "effective_codewords": words, "quantization_error": error}

    def table(self, records: Sequence[Record]) -> Iterator[str]:
        """Each method, and its difference from the one that it adds something to."""
        yield (
            "| bytes | method | seeds | RR@10 | above (95 %) | above OPQ (95 %) | codewords used "
            "| quantization error | MRR@10 in the paper |"
        )
        yield "| ---: | --- | ---: | ---: | --- | --- | ---: | ---: | ---: |"
        for case in self.cases():
            own = select(records, case)
            if not own:
                continue
            method, code_bytes = str(case["method"]), int(str(case["code_bytes"]))
            before = _BEFORE.get(method)
            above = "" if before is None else compare(own, select(records, {**case, "method": before}))
            opq = "" if before in (None, "opq") else compare(own, select(records, {**case, "method": "opq"}))
            paper = _PAPER.get((method, code_bytes))
            yield (
                f"| {code_bytes} | {method} | {len(own)} | {cell(mean_of(own, 'rr_10'))} "
                f"| {f'{before}: {above}' if above else ''} | {opq} | {mean_of(own, 'effective_codewords'):.1f} "
                f"| {cell(mean_of(own, 'quantization_error'))} | {'' if paper is None else cell(paper)} |"
            )
