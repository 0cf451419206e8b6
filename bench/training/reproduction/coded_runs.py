"""Encoders whose vectors are codes: trained in small by each method, and searched exactly by their codes."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from bench.training.reproduction.evaluation import Evaluation
from bench.training.reproduction.ranks import Ranks
from bench.training.reproduction.small_run import SmallRun, Table
from quarry.training.compression.opq import train_opq
from quarry.training.compression.product_quantizer import (
    ProductQuantizer,
    read_checkpoint_quantizer,
    write_checkpoint_quantizer,
)
from quarry.training.compression.stored_codes import StoredCodes, document_rows
from quarry.training.model.network import EncoderNetwork, load_network
from quarry.training.model.tokens import TextBatcher
from quarry.training.objectives.ranking import RankingSettings
from quarry.training.objectives.single_vector import SingleVector

__all__ = ["METHODS", "ONE_VECTOR", "CodeSettings", "Coded", "CodedRuns"]

METHODS = ("opq", "dpq", "clustering", "repconc", "jpq", "repconc+jpq")
"""OPQ trains nothing; clustering is RepCONC without its constraint, repconc+jpq both of its stages."""

_SCALE = 20.0

ONE_VECTOR: Table = {"name": "single_vector", "scale": _SCALE}
"""The objective of every method, and the checkpoint before them."""


@dataclass(frozen=True, kw_only=True)
class CodeSettings:
    """The common parts of the methods.

    Attributes:
        bits: of a sub-quantizer.
        codebook_rate: of the codebook, times the encoder's, while documents are trained.
        scoring_rate: of the codebook of scores, times the encoder's, in JPQ.
        error_weight: of the quantization error.
        n_negatives: of JPQ, for each query and step.
    """

    bits: int = 4
    codebook_rate: float = 15.0
    scoring_rate: float = 6.0
    error_weight: float = 1.0
    n_negatives: int = 200


class Coded(NamedTuple):
    """Measurements of codes.

    Attributes:
        ranks: of the relevant documents.
        effective_words: how many codewords of a sub-quantizer are in effective use: exp of the entropy of their
            frequencies, averaged over sub-quantizers; K if all are used equally often.
        error: mean squared quantization error of the documents.
    """

    ranks: Ranks
    effective_words: float
    error: float


class CodedRuns:
    """Trains by each method from one checkpoint and searches a collection by codes.

    What several runs need is made once: the prepared data, the vectors of the untrained encoder, and for each
    size of codes and each seed the quantizer that all methods start from (OPQ).

    Args:
        run: the training of every method.
        settings: of the methods.
        evaluation: what is searched.
        folder: of the runs.
    """

    def __init__(self, run: SmallRun, settings: CodeSettings, evaluation: Evaluation, folder: Path) -> None:
        self._run, self._settings, self._evaluation, self._folder = run, settings, evaluation, folder
        self._objective = SingleVector(RankingSettings(scale=_SCALE))

    def measure(self, method: str, code_bytes: int, seed: int) -> Coded:
        """Train by a method, one of `METHODS`, and search by codes."""
        folder = self._folder / f"{code_bytes}-{seed}"
        prepared = self._prepare(folder / "prepared", code_bytes, seed)
        run = self._run.with_seed(seed)
        if method == "opq":
            return self._measure(*self._untrained, _read_quantizer(prepared / "start"))
        stage = method.partition("+")[0]
        final = run.train(
            folder / stage, ONE_VECTOR, prepared=prepared, compression=self._table(stage, code_bytes)
        )
        if "+" in method:
            second = replace(run, checkpoint=final)
            table = self._table("jpq", code_bytes)
            data = folder / "second-prepared"
            shutil.copytree(prepared / "data", data / "data", dirs_exist_ok=True)
            final = second.train(folder / "second", ONE_VECTOR, prepared=data, compression=table)
        return self._measure(*self._encoded(final, has_old_documents=method == "jpq"), _read_quantizer(final))

    def _table(self, method: str, code_bytes: int) -> Table:
        settings = self._settings
        shared: dict[str, object] = {
            "code_bytes": code_bytes,
            "bits": settings.bits,
            "codebook_rate": settings.scoring_rate if method == "jpq" else settings.codebook_rate,
        }
        if method == "jpq":
            return {**shared, "method": "jpq", "n_negatives": settings.n_negatives}
        if method == "dpq":
            return {**shared, "method": "dpq", "error_weight": settings.error_weight}
        is_constrained = method == "repconc"
        return {
            **shared,
            "method": "repconc",
            "error_weight": settings.error_weight,
            "constrained": is_constrained,
        }

    def _prepare(self, folder: Path, code_bytes: int, seed: int) -> Path:
        """The folder with the data, the quantizer to start from and the codes of the documents to train on."""
        start = folder / "start"
        codes = folder / "codes" / f"{self._run.data.name}.npz"
        if not codes.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            vectors = self._training_vectors
            shutil.copytree(self._folder / "data", folder / "data")
            start.mkdir()
            bits = self._settings.bits
            found = train_opq(vectors, 8 * code_bytes // bits, 1 << bits, vectors.shape[1], seed)
            name = write_checkpoint_quantizer(start, found.to_arrays())
            (start / "quarry.json").write_text(json.dumps({"quantizer": name}), "utf-8")
            quantizer = _read_quantizer(start)
            assigned = quantizer.nearest(quantizer.rotate(vectors)).to(torch.uint8)
            codes.parent.mkdir()
            StoredCodes(assigned, torch.arange(len(vectors) + 1)).save(codes)
        return folder

    @cached_property
    def _training_vectors(self) -> torch.Tensor:
        store = self._run.open_store(self._folder / "data")
        path = self._folder / "vectors.npy"
        if not path.is_file():
            network = self._load(self._run.checkpoint)
            batcher = TextBatcher(network.tokenizer_path, "", self._run.document_tokens)
            rows = document_rows(store, list(range(store.n_documents)), network, batcher, self._objective)
            partial = path.with_name("vectors.partial.npy")
            np.save(partial, rows.values.numpy())
            partial.rename(path)
        return torch.from_numpy(np.load(path))

    @cached_property
    def _untrained(self) -> tuple[torch.Tensor, torch.Tensor]:
        network = self._load(self._run.checkpoint)
        queries = self._evaluation.encode_queries(network, self._objective)
        return queries, self._evaluation.encode_documents(network, self._objective).values

    def _encoded(self, final: Path, *, has_old_documents: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The vectors of queries and documents by a trained checkpoint."""
        own = final / "query"
        queries = self._evaluation.encode_queries(self._load(own if own.is_dir() else final), self._objective)
        if has_old_documents:
            return queries, self._untrained[1]
        return queries, self._evaluation.encode_documents(self._load(final), self._objective).values

    def _load(self, folder: Path) -> EncoderNetwork:
        return load_network(folder, precision=self._run.precision)

    def _measure(self, queries: torch.Tensor, documents: torch.Tensor, quantizer: ProductQuantizer) -> Coded:
        rotated = quantizer.rotate(documents)
        codes = quantizer.nearest(rotated)
        stored = replace(quantizer, score_codebook=quantizer.encode_codebook).decode(codes)
        decoded = quantizer.decode(codes)
        ranks = self._evaluation.rank(lambda own: quantizer.rotate(queries[own]) @ decoded.T)
        error = float((rotated - stored).square().sum(1).mean())
        return Coded(ranks, _effective_words(codes, quantizer.encode_codebook.shape[1]), error)


def _read_quantizer(folder: Path) -> ProductQuantizer:
    arrays = read_checkpoint_quantizer(folder)
    assert arrays is not None
    return ProductQuantizer.from_arrays(arrays)


def _effective_words(codes: torch.Tensor, n_words: int) -> float:
    numbers = []
    for column in codes.T:
        shares = torch.bincount(column, minlength=n_words).double() / len(column)
        numbers.append(float(torch.exp(torch.special.entr(shares).sum())))
    return float(np.mean(numbers))
