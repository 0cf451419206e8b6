"""Encoders whose vectors are codes: trained in small by a recipe, and searched exactly by their codes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bench.data.collections import Collection
from quarry.training.compression.product_quantizer import ProductQuantizer, read_checkpoint_quantizer
from quarry.training.loop.validation import ValidationSet, search
from quarry.training.model.network import EncoderNetwork, load_network
from quarry.training.model.tokens import TextBatcher
from quarry.training.objectives.ranking import RankingSettings
from quarry.training.objectives.scoring import DocumentRows
from quarry.training.objectives.single_vector import SingleVector
from quarry.training.run import train

__all__ = ["METHODS", "CodedEncoder", "Experiment", "measure_coded", "train_method"]

METHODS = ("opq", "dpq", "clustering", "repconc", "jpq", "repconc+jpq")
"""OPQ trains nothing; clustering is RepCONC without its constraint, repconc+jpq both of its stages."""

_TABLES = {
    "opq": 'method = "dpq"',
    "dpq": 'method = "dpq"',
    "clustering": 'method = "repconc"\nconstrained = false',
    "repconc": 'method = "repconc"',
    "jpq": 'method = "jpq"\nn_negatives = {n_negatives}',
}
_RECIPE = """\
[model]
checkpoint = {checkpoint}
frozen = ["embeddings."]
precision = "{precision}"
query_tokens = 32
document_tokens = 128

[objective]
name = "single_vector"
scale = {scale}

[[data]]
name = "{collection}"
kind = "beir"
path = {path}
exclude_titles = ["Egypt", "London", "Melbourne"]
held_out = {held_out}
group_size = {group_size}

[compression]
{table}
code_bytes = {code_bytes}
bits = {bits}
codebook_rate = {codebook_rate}
error_weight = {error_weight}
n_sampled = {n_sampled}

[training]
steps = {steps}
batch_size = {batch_size}
chunk_size = 64
seed = {seed}
checkpoint_every = 50

[optimizer]
learning_rate = {learning_rate}
warmup_steps = {warmup_steps}

[output]
name = "reproduction"
licence = "unknown"
"""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What all methods have in common.

    Attributes:
        checkpoint: to start from.
        data: folder of the training collection.
        code_bytes: of a vector.
        seed: of the run.
        steps: of training; both stages of repconc+jpq take as many.
        bits: of a sub-quantizer.
        batch_size: queries in a batch.
        group_size: of one article in a batch.
        held_out: articles that are not trained on.
        learning_rate: of the encoder.
        codebook_rate: times that: of the codebook.
        error_weight: of the quantization error.
        n_negatives: of JPQ, for each query and step.
        n_sampled: documents that OPQ is trained on.
        scale: inverse temperature of the ranking loss.
        precision: of matrix products.
    """

    checkpoint: Path
    data: Path
    code_bytes: int
    seed: int
    steps: int
    bits: int = 4
    batch_size: int = 64
    group_size: int = 8
    held_out: int = 40
    learning_rate: float = 2e-5
    codebook_rate: float = 40.0
    error_weight: float = 0.05
    n_negatives: int = 200
    n_sampled: int = 4000
    scale: float = 20.0
    precision: str = "bf16"

    def recipe(self, method: str) -> str:
        """The recipe of one method, the first stage of two."""
        stage = method.partition("+")[0]
        table = _TABLES[stage].format(n_negatives=self.n_negatives)
        settings = {name: value for name, value in vars(self).items() if name not in ("checkpoint", "data")}
        settings |= {"steps": 1} if method == "opq" else {}
        return _RECIPE.format(
            checkpoint=json.dumps(str(self.checkpoint.resolve())),
            collection=self.data.name,
            path=json.dumps(str(self.data.resolve())),
            table=table,
            warmup_steps=self.steps // 10,
            **settings,
        )


@dataclass(frozen=True)
class CodedEncoder:
    """An encoder with its codes, the encoders of queries and of documents perhaps two.

    Attributes:
        queries: encodes queries.
        documents: encodes documents.
        quantizer: codes them.
    """

    queries: EncoderNetwork
    documents: EncoderNetwork
    quantizer: ProductQuantizer


def train_method(experiment: Experiment, method: str, folder: Path) -> CodedEncoder:
    """Train by a method, or resume from the last checkpoint.

    Args:
        experiment: the settings.
        method: one of `METHODS`; for ``opq`` the encoder is as it was, with the quantizer that others start from.
        folder: of the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = _train(experiment.recipe(method), folder / method.partition("+")[0])
    if method == "opq":
        return _opened(experiment, experiment.checkpoint, folder / "opq" / "start")
    if "+" in method:
        second = Experiment(**{**vars(experiment), "checkpoint": final, "codebook_rate": 10.0})
        final = _train(second.recipe("jpq"), folder / "second")
    return _opened(experiment, final, final)


def _train(recipe: str, out: Path) -> Path:
    path = out.with_suffix(".toml")
    path.write_text(recipe, "utf-8")
    return train(path, out)


def _opened(experiment: Experiment, final: Path, quantizer: Path) -> CodedEncoder:
    documents = load_network(final, precision=experiment.precision)
    queries = final / "query"
    arrays = read_checkpoint_quantizer(quantizer)
    assert arrays is not None
    return CodedEncoder(
        load_network(queries, precision=experiment.precision) if queries.is_dir() else documents,
        documents,
        ProductQuantizer.from_arrays(arrays),
    )


class _Codes(SingleVector):
    """Scores documents by codes, and counts how often each codeword is used."""

    def __init__(self, quantizer: ProductQuantizer) -> None:
        super().__init__(RankingSettings())
        self._quantizer = quantizer
        self.effective_words = 0.0

    def scores(self, queries: torch.Tensor, documents: DocumentRows) -> torch.Tensor:
        codes = self._quantizer.nearest(self._quantizer.rotate(documents.values))
        self.effective_words = _effective_words(codes, self._quantizer.encode_codebook.shape[1])
        return self._quantizer.rotate(queries) @ self._quantizer.decode(codes).T


def measure_coded(encoder: CodedEncoder, collection: Collection) -> tuple[dict[str, float], float]:
    """Search a collection by codes.

    Returns:
        RR@10 of each query, and how many codewords are in effective use: exp of the entropy of their frequencies,
        averaged over sub-quantizers; K if all are used equally often.
    """
    path = encoder.documents.tokenizer_path
    queries, documents = TextBatcher(path, "", 32), TextBatcher(path, "", 256)
    objective = _Codes(encoder.quantizer)
    data = ValidationSet(collection.documents, collection.queries, collection.qrels)
    run = search(data, (encoder.queries, encoder.documents), objective, queries, documents)
    found = {}
    for query, judged in collection.qrels.items():
        ranked = sorted(run[query], key=lambda name: (-run[query][name], name))
        ranks = [rank for rank, name in enumerate(ranked[:10], 1) if judged.get(name, 0) > 0]
        found[query] = 1 / ranks[0] if ranks else 0.0
    return found, objective.effective_words


def _effective_words(codes: torch.Tensor, n_words: int) -> float:
    numbers = []
    for column in codes.T:
        shares = torch.bincount(column, minlength=n_words).double() / len(column)
        numbers.append(float(torch.exp(torch.special.entr(shares).sum())))
    return float(np.mean(numbers))
