"""Builds the compressed objective that a recipe names, with the quantizer and the codes it starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from quarry.formats.errors import InvalidSetting
from quarry.training.compression.compressed import CompressedObjective
from quarry.training.compression.jpq import Jpq
from quarry.training.compression.product_quantizer import (
    ProductQuantizer,
    read_checkpoint_quantizer,
    train_opq,
    write_checkpoint_quantizer,
)
from quarry.training.compression.repconc import Constraint, Dpq, RepConc
from quarry.training.compression.stored_codes import StoredCodes, document_rows, encode_documents
from quarry.training.data.example_store import ExampleStore
from quarry.training.model.network import EncoderNetwork
from quarry.training.model.tokens import TextBatcher
from quarry.training.objectives.ranking import RankingObjective
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["CompressionSettings", "Preparation"]

_METHODS = ("repconc", "dpq", "jpq")
_START = "start"
_CODES = "codes"


@dataclass(frozen=True, kw_only=True)
class CompressionSettings:
    """The ``[compression]`` table of a recipe: documents are scored by codes.

    Attributes:
        method: ``repconc``, ``dpq``, or ``jpq``, which trains the encoder of queries alone.
        code_bytes: the size of a vector's code in bytes.
        bits: the number of bits of one sub-quantizer, 4 or 8.
        dim: the length of the rotated vectors, a multiple of the sub-quantizers; 0: that of the vectors.
        codebook_rate: the codebook's learning rate as a multiple of the encoder's.
        error_weight: the weight of the quantization error, in ``repconc`` and ``dpq``.
        constrained: for ``repconc``, whether codewords are used equally often.
        epsilon: the epsilon of the constraint, see `Constraint`.
        iterations: the number of iterations of the constraint.
        n_negatives: for ``jpq``, the documents found for each query at each step.
        n_sampled: documents that the quantizer to start from is trained on, when the checkpoint has none.
    """

    method: str
    code_bytes: int
    bits: int = 4
    dim: int = 0
    codebook_rate: float = 40.0
    error_weight: float = 0.05
    constrained: bool = True
    epsilon: float = 0.003
    iterations: int = 100
    n_negatives: int = 200
    n_sampled: int = 10_000

    def __post_init__(self) -> None:
        if self.method not in _METHODS:
            raise InvalidSetting(
                "unknown method of compression", expected=" or ".join(_METHODS), actual=repr(self.method)
            )
        if self.bits not in (4, 8) or self.code_bytes < 1 or self.dim < 0 or self.n_sampled < 1:
            raise InvalidSetting(
                "a setting of the compression is out of range",
                expected="bits 4 or 8, code_bytes and n_sampled 1 or more, dim 0 or more",
                actual=self,
            )

    @property
    def n_sub(self) -> int:
        """M, the number of sub-quantizers."""
        return 8 * self.code_bytes // self.bits


@dataclass(frozen=True)
class Preparation:
    """Parts that a compressed objective is made from.

    Attributes:
        settings: the recipe's.
        ranking: makes rows and ranking losses.
        documents: the encoder of documents, as it is before training.
        batcher: cuts and tokenizes documents.
        stores: the sources of the run by name.
        folder: the folder of the run; the quantizer and the codes that it starts from are kept there, so that a
            run that is resumed starts from the same ones.
        seed: the seed of the quantizer.
    """

    settings: CompressionSettings
    ranking: RankingObjective
    documents: EncoderNetwork
    batcher: TextBatcher
    stores: Mapping[str, ExampleStore]
    folder: Path
    seed: int

    def objective(self) -> CompressedObjective:
        """Make the objective.

        Raises:
            InvalidSetting: the codes do not fit the vectors, or the checkpoint's quantizer has others.
            FormatError: a quantizer that is there is damaged.
        """
        settings, quantizer = self.settings, self._quantizer()
        shared = (self.ranking, quantizer, settings.codebook_rate)
        if settings.method == "jpq":
            return Jpq(*shared, self._codes(quantizer), settings.n_negatives)
        if settings.method == "dpq":
            return Dpq(*shared, settings.error_weight)
        constraint = Constraint(settings.epsilon, settings.iterations) if settings.constrained else None
        return RepConc(*shared, settings.error_weight, constraint)

    def _quantizer(self) -> ProductQuantizer:
        """The quantizer to start from: the checkpoint's, or OPQ of a sample."""
        quantizer = read_checkpoint_quantizer(self.documents.folder)
        if quantizer is None:
            start = self.folder / _START
            quantizer = read_checkpoint_quantizer(start)
            if quantizer is None:
                start.mkdir(parents=True, exist_ok=True)
                quantizer = self._trained().to_arrays()
                name = write_checkpoint_quantizer(start, quantizer)
                partial = start / "quarry.partial"
                partial.write_text(f'{{"quantizer": "{name}"}}', "utf-8")
                partial.rename(start / "quarry.json")
        wanted = (self.settings.n_sub, 1 << self.settings.bits)
        if quantizer.encode_codebook.shape[:2] != wanted:
            raise InvalidSetting(
                "the quantizer to start from has codes of another size",
                path=self.documents.folder,
                expected=f"{wanted[0]} sub-quantizers of {wanted[1]} codewords",
                actual=quantizer.encode_codebook.shape[:2],
            )
        n_sub, _, n_within = quantizer.encode_codebook.shape
        if self.settings.dim not in (0, n_sub * n_within):
            raise InvalidSetting(
                "the quantizer to start from rotates to vectors of another length",
                path=self.documents.folder,
                expected=f"dim of {n_sub * n_within}, or 0",
                actual=self.settings.dim,
            )
        return ProductQuantizer.from_arrays(quantizer, self.documents.device)

    def _trained(self) -> ProductQuantizer:
        """OPQ of documents drawn from all sources, as many of each as its share of the documents."""
        total = sum(store.n_documents for store in self.stores.values())
        share = min(1.0, self.settings.n_sampled / total)
        rng = np.random.default_rng([self.seed, 2])
        parts = []
        for store in self.stores.values():
            count = max(1, round(share * store.n_documents))
            chosen = np.sort(rng.choice(store.n_documents, count, replace=False)).tolist()
            parts.append(document_rows(store, chosen, self.documents, self.batcher, self.ranking))
        values = DocumentRows.concatenate(parts).values
        settings = self.settings
        dim = settings.dim or values.shape[1]
        return train_opq(values, settings.n_sub, 1 << settings.bits, dim, self.seed)

    def _codes(self, quantizer: ProductQuantizer) -> dict[str, StoredCodes]:
        folder = self.folder / _CODES
        folder.mkdir(parents=True, exist_ok=True)
        codes: dict[str, StoredCodes] = {}
        for name, store in self.stores.items():
            path = folder / f"{name}.npz"
            if not path.is_file():
                encode_documents(store, self.documents, self.batcher, self.ranking, quantizer).save(path)
            codes[name] = StoredCodes.load(path, torch.device(self.documents.device))
        return codes
