"""The objective of an encoder of queries whose documents have fixed vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.options import DEFAULT_B, DEFAULT_K1
from quarry.formats.errors import InvalidSetting
from quarry.training.compression.product_quantizer import ProductQuantizer
from quarry.training.data.example_store import ExampleStore
from quarry.training.fixed_documents.stored_rows import StoredRows
from quarry.training.model.tokens import TokenBatch
from quarry.training.objectives.losses import distillation_loss
from quarry.training.objectives.objective import StepTargets, Use
from quarry.training.objectives.ranking import RankingObjective
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["Bm25Scores", "FixedDocuments", "FixedDocumentsSettings", "FixedSource"]

Floats = npt.NDArray[np.float32]


class Bm25Scores:
    """Scores documents by BM25 as `quarry.engine.lexical.bm25` defines it, and divides by the query's best score.

    Memory: 12 bytes for each different term of a document.

    Args:
        store: documents and queries.
        analyzer: makes terms of both.
    """

    def __init__(self, store: ExampleStore, analyzer: Analyzer) -> None:
        self._store, self._analyzer, self._n_documents = store, analyzer, store.n_documents
        self._terms: dict[str, int] = {}
        terms: list[int] = []
        documents: list[int] = []
        frequencies: list[int] = []
        lengths = np.zeros(store.n_documents, np.float64)
        for document in range(store.n_documents):
            counts = Counter(analyzer.terms(store.document(document)))
            lengths[document] = counts.total()
            terms += [self._terms.setdefault(term, len(self._terms)) for term in counts]
            frequencies += counts.values()
            documents += [document] * len(counts)
        order = np.argsort(np.array(terms, np.int64), kind="stable")
        self._documents = np.array(documents, np.int32)[order]
        term_counts = np.array(frequencies, np.float64)[order]
        n_with_term = np.bincount(np.array(terms, np.int64), minlength=len(self._terms))
        self._starts = np.concatenate([[0], np.cumsum(n_with_term)])
        idf = np.log1p((store.n_documents - n_with_term + 0.5) / (n_with_term + 0.5))
        norms = DEFAULT_K1 * (1 - DEFAULT_B + DEFAULT_B * lengths / max(lengths.mean(), 1e-9))
        weights = np.repeat(idf, n_with_term) * term_counts / (term_counts + norms[self._documents])
        self._weights: Floats = weights.astype(np.float32)

    def scores(self, examples: npt.NDArray[np.int64]) -> Floats:
        """Score all documents for the queries of some examples.

        Args:
            examples: (n,) int64, their numbers.

        Returns:
            (n, n_documents) float32 from 0 to 1; all 0 for a query without a term of any document.
        """
        totals = np.zeros((len(examples), self._n_documents), np.float32)
        for row, example in zip(totals, examples.tolist(), strict=True):
            found_terms = {self._terms.get(term, -1) for term in self._analyzer.terms(self._store.query(example))}
            for term in sorted(found_terms - {-1}):  # sums of one order are the same in every process
                low, high = self._starts[term : term + 2]
                row[self._documents[low:high]] += self._weights[low:high]
        best: Floats = totals.max(axis=1, keepdims=True)
        totals /= np.maximum(best, np.finfo(np.float32).tiny)
        return totals


@dataclass(frozen=True, kw_only=True)
class FixedDocumentsSettings:
    """The ``[fixed_documents]`` table of a recipe: the encoder of queries is trained alone.

    Attributes:
        encoder: folder of the bundle that documents are encoded with; None: the checkpoint, in float32.
        n_negatives: documents found for each query at each step.
        hybrid_weight: the weight of the contrastive loss of dense and BM25 scores together; above 0 half as many
            documents are found by their sum, too.
        lexical_scale: the scale of BM25 scores in that sum, which are 1 at most; dense scores have the objective's
            scale.
        mean_weight: the weight of the contrastive loss of documents by their last row alone.
        code_weight: the weight of the contrastive loss of documents by the codes of their rows.
        code_bytes: the size of such a code in bytes, half a byte for each of its sub-quantizers.
        code_dim: the length of the rotated vectors that are coded, a multiple of the sub-quantizers.
        original_weight: the weight of the distillation from queries' vectors before training.
    """

    encoder: Path | None = None
    n_negatives: int = 48
    hybrid_weight: float = 0.0
    lexical_scale: float = 8.0
    mean_weight: float = 0.0
    code_weight: float = 0.0
    code_bytes: int = 8
    code_dim: int = 128
    original_weight: float = 0.0

    def __post_init__(self) -> None:
        if self.n_negatives < 1:
            raise InvalidSetting("n_negatives is out of range", expected="1 or more", actual=self.n_negatives)
        for name in ("hybrid_weight", "lexical_scale", "mean_weight", "code_weight", "original_weight"):
            if not 0 <= getattr(self, name) <= 1e6:
                raise InvalidSetting(f"{name} is out of range", expected="0 to 1e6", actual=getattr(self, name))
        if self.code_bytes < 1 or self.code_dim < 1 or self.code_dim % self.n_sub:
            raise InvalidSetting(
                "code_bytes or code_dim is out of range",
                expected="code_dim a multiple of twice code_bytes, both from 1",
                actual=f"code_bytes {self.code_bytes}, code_dim {self.code_dim}",
            )

    @property
    def n_sub(self) -> int:
        """M, the number of sub-quantizers of 4 bits."""
        return 2 * self.code_bytes


@dataclass(frozen=True, eq=False)
class FixedSource:
    """The documents of a source.

    Attributes:
        rows: their vectors.
        terms: their BM25 scores, None unless a loss needs them.
        codes: (n_rows, M) uint8, the rows' codes, or None likewise.
    """

    rows: StoredRows
    terms: Bm25Scores | None = None
    codes: torch.Tensor | None = None


class FixedDocuments:
    """An `Objective` of queries alone.

    At each step all documents of the batch's source are searched with the queries as they are now, as in ADORE
    (Zhan et al. 2021, "Optimizing Dense Retrieval Model Training with Hard Negatives", section 4.2): those that
    score best and are not known to be relevant are a query's negatives. A document counts by its best row. An
    index of the documents stays as it is, and the trained encoder searches it.

    Losses beside the contrastive one of dense scores, of the same candidates: of dense and BM25 scores together,
    so that the encoder learns what words leave open (Gao et al. 2021, CLEAR, learn a residual of BM25 by the
    margin of a hinge loss); of the documents' last rows; of their codes; and the distillation of the scores that
    the queries' vectors before training give.

    Args:
        ranking: makes queries' vectors; it has no parameters of its own.
        settings: weights of the losses.
        sources: documents of each source of the run by name.
        quantizer: the quantizer of the codes, or None.

    Raises:
        InvalidSetting: the ranking has parameters of its own or aggregates rows by a softmax.
    """

    encodes_documents = False

    def __init__(
        self,
        ranking: RankingObjective,
        settings: FixedDocumentsSettings,
        sources: Mapping[str, FixedSource],
        quantizer: ProductQuantizer | None = None,
    ) -> None:
        if ranking.parameters() or ranking.settings.beta is not None:
            raise InvalidSetting(
                "with [fixed_documents] queries are trained alone, and documents count by their best row",
                expected="an objective without layers of its own and without beta",
            )
        self.ranking, self._settings = ranking, settings
        self._sources, self._quantizer = sources, quantizer

    def represent_queries(self, hidden: torch.Tensor, tokens: TokenBatch) -> torch.Tensor:
        """Pool queries; see `Objective.represent_queries`."""
        return self.ranking.represent_queries(hidden, tokens)

    def represent_documents(self, hidden: torch.Tensor, tokens: TokenBatch, step: int | None) -> DocumentRows:
        """The rows of documents that validation searches; see `Objective.represent_documents`."""
        return self.ranking.represent_documents(hidden, tokens, step)

    def scores(self, queries: torch.Tensor, documents: DocumentRows) -> torch.Tensor:
        """Score documents in validation; see `Objective.scores`."""
        return self.ranking.scores(queries, documents)

    def loss(
        self, queries: torch.Tensor, documents: DocumentRows | None, step: StepTargets
    ) -> dict[str, torch.Tensor]:
        """The terms over each query's own document and negatives; see `Objective.loss`."""
        del documents
        settings, scale = self._settings, self.ranking.settings.scale
        source, fixed = self._sources[step.source], queries.detach()
        lexical = None
        if source.terms is not None:
            lexical = torch.from_numpy(source.terms.scores(step.examples.cpu().numpy())).to(fixed.device)
        chosen, is_absent = self._candidates(source.rows.scores(fixed), lexical, step)
        best = source.rows.best_rows(fixed, chosen)
        values = source.rows.values

        def loss(logits: torch.Tensor) -> torch.Tensor:
            """The mean of -log softmax at the first candidate, the query's own document."""
            own = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
            return torch.nn.functional.cross_entropy(logits.masked_fill(is_absent, -torch.inf), own)

        scores = _inner_products(queries, values[best])
        terms = {"contrastive": loss(scale * scores)}
        if lexical is not None:
            prior = settings.lexical_scale * lexical.gather(1, chosen)
            terms["hybrid"] = settings.hybrid_weight * loss(scale * scores + prior)
        if settings.mean_weight:
            wholes = values[source.rows.last_rows(chosen)]
            terms["mean"] = settings.mean_weight * loss(scale * _inner_products(queries, wholes))
        if source.codes is not None and self._quantizer is not None:
            decoded = self._quantizer.decode(source.codes[best.flatten()].long()).unflatten(0, best.shape)
            decoded = torch.nn.functional.normalize(decoded, dim=-1)
            coded = _inner_products(self._quantizer.rotate(queries), decoded)
            terms["codes"] = settings.code_weight * loss(scale * coded)
        if step.original_queries is not None:
            hidden = torch.where(is_absent, -1e4, 0.0)
            before = _inner_products(step.original_queries, values[best])
            distilled = distillation_loss(scores + hidden, before + hidden, scale, scale)
            terms["distillation from before"] = settings.original_weight * distilled
        return terms

    def parameters(self) -> dict[str, tuple[torch.nn.Parameter, float]]:
        """None: everything trained is in the network."""
        return {}

    def use(self) -> Use:
        """As the rows; see `Objective.use`."""
        return self.ranking.use()

    def save(self, folder: Path) -> dict[str, object]:
        """Write nothing of its own; see `Objective.save`."""
        return self.ranking.save(folder)

    def _candidates(
        self, scores: torch.Tensor, lexical: torch.Tensor | None, step: StepTargets
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The documents that a query is compared with.

        Args:
            scores: (n_queries, n_documents) float32, of all documents of the source.
            lexical: the same shape, or None.
            step: which documents are relevant.

        Returns:
            documents: (n_queries, n) int64, first the query's own one, then negatives.
            is_absent: (n_queries, n) bool, where there is no document, or one that is there already.
        """
        n_kept = min(self._settings.n_negatives, scores.shape[1])
        allowed = scores.clone()
        for row, relevant in enumerate(step.positives):
            allowed[row, relevant] = -torch.inf
        best = [allowed.topk(n_kept, dim=1)]
        if lexical is not None:
            both = self.ranking.settings.scale * allowed + self._settings.lexical_scale * lexical
            best.append(both.topk(max(1, n_kept // 2), dim=1))
        own = step.documents[step.targets][:, None]
        documents = torch.cat([own, *(each.indices for each in best)], 1)
        is_absent = torch.cat(
            [torch.zeros_like(own, dtype=torch.bool), *(each.values.isinf() for each in best)], 1
        )
        ordered, places = documents.sort(dim=1, stable=True)
        is_repeated = torch.zeros_like(is_absent)
        is_repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
        return documents, is_absent | torch.zeros_like(is_absent).scatter(1, places, is_repeated)


def _inner_products(queries: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The inner products of (n, dim) queries with the (n, m, dim) rows of each: (n, m)."""
    return (rows @ queries[:, :, None])[:, :, 0]
