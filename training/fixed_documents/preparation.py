"""Builds the objective of a recipe whose documents have fixed vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.representation.registry import representation_from
from quarry.training.compression.opq import train_opq
from quarry.training.compression.product_quantizer import ProductQuantizer
from quarry.training.data.example_store import ExampleStore
from quarry.training.fixed_documents.objective import FixedDocuments, FixedDocumentsSettings, FixedSource
from quarry.training.fixed_documents.stored_rows import StoredRows, encode_rows
from quarry.training.fixed_documents.term_scores import TermScores
from quarry.training.objectives.ranking import RankingObjective

__all__ = ["FixedPreparation"]

_FOLDER = "rows"
_N_SAMPLED = 30_000  # rows that the codes are trained on
_N_WORDS = 16
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class FixedPreparation:
    """Parts that the objective is made from.

    Attributes:
        settings: the recipe's.
        ranking: makes queries' vectors; its representation makes those of documents.
        documents: the encoder of documents.
        n_threads: that encode documents at once.
        stores: the sources of the run by name.
        folder: of the run; the rows are kept there.
        device: of the training.
        seed: of the codes.
    """

    settings: FixedDocumentsSettings
    ranking: RankingObjective
    documents: Encoder
    n_threads: int
    stores: Mapping[str, ExampleStore]
    folder: Path
    device: torch.device
    seed: int

    def objective(self) -> FixedDocuments:
        """Encode the documents of all sources, unless that was done before, and make the objective.

        Raises:
            CorruptFile: rows that were kept cannot be read.
            InvalidSetting: rows that were kept are of another encoder, or the settings of the codes do not fit the
                vectors.
        """
        rows = {name: self._rows(name, store) for name, store in self.stores.items()}
        settings = self.settings
        quantizer = self._quantizer(list(rows.values())) if settings.code_weight else None
        analyzer = Analyzer()
        sources = {
            name: FixedSource(
                rows[name],
                TermScores(store, analyzer) if settings.hybrid_weight else None,
                None if quantizer is None else _codes(rows[name], quantizer),
            )
            for name, store in self.stores.items()
        }
        return FixedDocuments(self.ranking, settings, sources, quantizer)

    def _rows(self, name: str, store: ExampleStore) -> StoredRows:
        path, encoder = self.folder / _FOLDER / f"{name}.npz", self.documents
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            use = self.ranking.use()
            representation = representation_from(use.representation, use.representation_settings)
            made = encode_rows(store, encoder, representation, self.n_threads)
            made.save(path, encoder.identity)
        return StoredRows.load(path, store.n_documents, encoder.dim, encoder.identity, self.device)

    def _quantizer(self, rows: list[StoredRows]) -> ProductQuantizer:
        """OPQ of rows drawn from all sources, as many of each as its share."""
        share = min(1.0, _N_SAMPLED / sum(len(each.values) for each in rows))
        rng = np.random.default_rng([self.seed, 3])
        sampled = []
        for each in rows:
            count = max(1, round(share * len(each.values)))
            chosen = np.sort(rng.choice(len(each.values), count, replace=False))
            sampled.append(each.values[torch.from_numpy(chosen).to(each.values.device)])
        settings = self.settings
        return train_opq(torch.cat(sampled), settings.n_sub, _N_WORDS, settings.code_dim, self.seed)


def _codes(rows: StoredRows, quantizer: ProductQuantizer) -> torch.Tensor:
    parts = rows.values.split(_ROWS_AT_ONCE)
    return torch.cat([quantizer.nearest(quantizer.rotate(part)).to(torch.uint8) for part in parts])
