"""An objective whose documents are scored by their codes: what all methods of compression have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import torch

from quarry.formats.errors import InvalidSetting
from quarry.training.compression.product_quantizer import ProductQuantizer, write_checkpoint_quantizer
from quarry.training.model.tokens import TokenBatch
from quarry.training.objectives.objective import StepTargets, Use
from quarry.training.objectives.ranking import RankingObjective
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["CodedDocumentsObjective", "CompressedObjective"]


class CompressedObjective(ABC):
    """An `Objective` around another one: the rows of documents are coded, queries stay unchanged.

    Args:
        ranking: makes the rows and the losses of scores.
        quantizer: codes the rows.
        codebook_rate: the codebook's learning rate as a multiple of the encoder's, above 0.

    Attributes:
        ranking: as given.
        quantizer: with the codebook under training.

    Raises:
        InvalidSetting: the rate is out of range.
    """

    def __init__(self, ranking: RankingObjective, quantizer: ProductQuantizer, codebook_rate: float) -> None:
        if not codebook_rate > 0:
            raise InvalidSetting("codebook_rate is out of range", expected="above 0", actual=codebook_rate)
        self.ranking, self.quantizer = ranking, quantizer
        self._codebook_rate = codebook_rate

    @property
    def encodes_documents(self) -> bool:
        """Whether the loss needs the rows of documents."""
        return True

    def represent_queries(self, hidden: torch.Tensor, tokens: TokenBatch) -> torch.Tensor:
        """Pool queries; see `Objective.represent_queries`."""
        return self.ranking.represent_queries(hidden, tokens)

    def represent_documents(self, hidden: torch.Tensor, tokens: TokenBatch, step: int | None) -> DocumentRows:
        """The rows before they are coded; see `Objective.represent_documents`."""
        return self.ranking.represent_documents(hidden, tokens, step)

    def scores(self, queries: torch.Tensor, documents: DocumentRows) -> torch.Tensor:
        """Score documents by the codes of their rows, as an index does: nearest codewords, no constraint."""
        codes = self.quantizer.nearest(self.quantizer.rotate(documents.values))
        decoded = DocumentRows(self.quantizer.decode(codes), documents.counts)
        return self.ranking.scores(self.quantizer.rotate(queries), decoded)

    @abstractmethod
    def loss(
        self, queries: torch.Tensor, documents: DocumentRows | None, step: StepTargets
    ) -> dict[str, torch.Tensor]:
        """The terms of the loss; see `Objective.loss`."""

    def parameters(self) -> dict[str, tuple[torch.nn.Parameter, float]]:
        """The codebook that scores are made with, and what the rows are made with."""
        codebook = self.quantizer.score_codebook
        assert isinstance(codebook, torch.nn.Parameter)
        return {**self.ranking.parameters(), "codebook": (codebook, self._codebook_rate)}

    def use(self) -> Use:
        """As the rows; see `Objective.use`."""
        return self.ranking.use()

    def save(self, folder: Path) -> dict[str, object]:
        """Write the quantizer; see `Objective.save`."""
        name = write_checkpoint_quantizer(folder, self.quantizer.to_arrays())
        return {**self.ranking.save(folder), "quantizer": name}


class CodedDocumentsObjective(CompressedObjective):
    """Documents are encoded and coded at every step; a subclass says how gradients pass the codes.

    Args:
        ranking: see `CompressedObjective`.
        quantizer: whose codebook becomes the parameter that is trained, for codes and scores alike.
        codebook_rate: see `CompressedObjective`.
        error_weight: lambda of Eq. 8 of Zhan et al. 2022, the weight of the quantization error, 0 or more.

    Raises:
        InvalidSetting: a setting is out of range.
    """

    def __init__(
        self, ranking: RankingObjective, quantizer: ProductQuantizer, codebook_rate: float, error_weight: float
    ) -> None:
        codebook = torch.nn.Parameter(quantizer.encode_codebook.detach().clone())
        super().__init__(ranking, ProductQuantizer(quantizer.rotation, codebook, codebook), codebook_rate)
        if not error_weight >= 0:
            raise InvalidSetting("error_weight is out of range", expected="0 or more", actual=error_weight)
        self._error_weight = error_weight

    def loss(
        self, queries: torch.Tensor, documents: DocumentRows | None, step: StepTargets
    ) -> dict[str, torch.Tensor]:
        """The ranking terms (L_r, Eq. 6) of the coded rows and the quantization error (L_m, Eq. 7), Eq. 8."""
        if documents is None:
            raise InvalidSetting("this objective needs the rows of documents")
        rotated = self.quantizer.rotate(documents.values)
        decoded = self.quantizer.decode(self.assign(rotated))
        coded = DocumentRows(self.pass_through(rotated, decoded), documents.counts)
        terms = self.ranking.loss(self.quantizer.rotate(queries), coded, step)
        terms["quantization error"] = self._error_weight * self.error(rotated, decoded)
        return terms

    @abstractmethod
    def assign(self, rotated: torch.Tensor) -> torch.Tensor:
        """The codes of a batch in training: (n, M) int64 for (n, dim) rows, without gradient."""

    @abstractmethod
    def pass_through(self, rotated: torch.Tensor, decoded: torch.Tensor) -> torch.Tensor:
        """`decoded`, (n, dim), with the gradient that it passes on."""

    @abstractmethod
    def error(self, rotated: torch.Tensor, decoded: torch.Tensor) -> torch.Tensor:
        """The mean squared quantization error of rows, summed over dimensions: a scalar."""
