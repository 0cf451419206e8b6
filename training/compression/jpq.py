"""JPQ: the query encoder and the codewords of scores are trained, the codes of documents stay."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch

from quarry.formats.errors import InvalidSetting
from quarry.training.compression.compressed import CompressedObjective
from quarry.training.compression.product_quantizer import ProductQuantizer
from quarry.training.compression.stored_codes import StoredCodes
from quarry.training.objectives.objective import StepTargets
from quarry.training.objectives.ranking import RankingObjective
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["Jpq"]

_DOCUMENTS_AT_ONCE = 8192  # whose codes are scored together


class Jpq(CompressedObjective):
    """The second stage of RepCONC (Zhan et al. 2022, section 3.6.2), and a method of its own on codes of OPQ (Zhan
    et al. 2021, "Jointly Optimizing Query Encoder and Product Quantization to Improve Retrieval Performance").

    Documents are stored as codes, made once with the quantizer's codebook for documents. At each step the codes of
    the whole source are searched with the queries and the codebook as they are; the documents that score best and
    are not known to be relevant are the query's negatives, besides those of the batch. The ranking loss (Eq. 6)
    then trains the query encoder and a second codebook, which decodes the codes for scores. New documents are
    still coded with the first one, so both belong to the result.

    Args:
        ranking: makes queries' vectors and the losses of scores; it has no parameters of its own.
        quantizer: made the codes. The trained codebook is initialized with its codebook for scores.
        codebook_rate: the codebook's learning rate as a multiple of the encoder's; 10 in the paper.
        codes: the codes of each source of the run by name.
        n_negatives: documents found for each query, 0 or more; 200 in the authors' code.
        n_at_once: documents that are scored at a time.

    Raises:
        InvalidSetting: a setting is out of range, or the rows have parameters of their own.
    """  # noqa: D205

    def __init__(
        self,
        ranking: RankingObjective,
        quantizer: ProductQuantizer,
        codebook_rate: float,
        codes: Mapping[str, StoredCodes],
        n_negatives: int,
        n_at_once: int = _DOCUMENTS_AT_ONCE,
    ) -> None:
        trained = torch.nn.Parameter(quantizer.score_codebook.detach().clone())
        encode = quantizer.encode_codebook.detach()
        super().__init__(ranking, ProductQuantizer(quantizer.rotation, encode, trained), codebook_rate)
        if n_negatives < 0:
            raise InvalidSetting("n_negatives is out of range", expected="0 or more", actual=n_negatives)
        if ranking.parameters():
            raise InvalidSetting(
                "jpq trains queries apart from documents, so their vectors can have no trained layers in common"
            )
        self._codes, self._n_negatives, self._n_at_once = codes, n_negatives, n_at_once

    @property
    def encodes_documents(self) -> bool:
        """False: the loss needs their codes alone."""
        return False

    def loss(
        self, queries: torch.Tensor, documents: DocumentRows | None, step: StepTargets
    ) -> dict[str, torch.Tensor]:
        """The ranking terms over the batch's documents and each query's own negatives; see `Objective.loss`."""
        del documents
        codes = self._codes[step.source]
        rotated = self.quantizer.rotate(queries)
        negatives = self._negatives(codes, rotated.detach(), step)
        others = torch.tensor(
            sorted(set(negatives.flatten().tolist()) - {-1, *step.documents.tolist()}), dtype=torch.long
        ).to(step.documents.device)
        columns = torch.cat([step.documents, others])
        scores = self.ranking.scores(rotated, codes.rows(columns, self.quantizer))
        column_of = columns.new_full((codes.n_documents + 1,), len(columns))  # the last for -1
        column_of[columns] = torch.arange(len(columns), device=columns.device)
        is_own = torch.zeros((len(rotated), len(columns) + 1), dtype=torch.bool, device=columns.device)
        is_own = is_own.scatter(1, column_of[negatives], True)[:, :-1]
        is_own[:, : len(step.documents)] = True
        is_relevant = torch.zeros_like(is_own)
        is_relevant[:, : len(step.documents)] = step.relevant
        return self.ranking.terms(scores, step.targets, is_relevant | ~is_own, step.teacher_scores)

    def _negatives(self, codes: StoredCodes, rotated: torch.Tensor, step: StepTargets) -> torch.Tensor:
        """The documents that score best and are not known to be relevant: (n_queries, at most n_negatives) int64.

        Where the known relevant documents leave fewer, a place holds -1.
        """
        n_kept = min(self._n_negatives, codes.n_documents)
        best = rotated.new_full((len(rotated), n_kept), -torch.inf)
        numbers = torch.full(best.shape, -1, device=rotated.device)
        if not n_kept:
            return numbers
        bounds = [*range(0, codes.n_documents, self._n_at_once), codes.n_documents]
        with torch.no_grad():
            for low, high in pairwise(bounds):
                block = torch.arange(low, high, device=rotated.device)
                scores = self.ranking.scores(rotated, codes.rows(block, self.quantizer))
                for row, positives in enumerate(step.positives):
                    within = positives[(positives >= low) & (positives < high)]
                    scores[row, within - low] = -torch.inf
                best, places = torch.cat([best, scores], 1).topk(n_kept, dim=1)
                seen = torch.cat([numbers, block.expand(len(scores), -1)], 1)
                numbers = seen.gather(1, places)
        return numbers.masked_fill(best == -torch.inf, -1)
