"""Builds the objective of a recipe whose documents have fixed vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.representation.registry import representation_from
from quarry.formats.errors import InvalidSetting
from quarry.training.compression.product_quantizer import ProductQuantizer, train_opq
from quarry.training.data.example_store import ExampleStore
from quarry.training.fixed_documents.objective import (
    Bm25Scores,
    FixedDocuments,
    FixedDocumentsSettings,
    FixedSource,
)
from quarry.training.fixed_documents.stored_rows import StoredRows, encode_rows
from quarry.training.objectives.ranking import RankingObjective

__all__ = ["FixedPreparation", "open_document_encoder"]

_N_COMPARED = 16  # documents
# Of token vectors: those of an int8 graph and of the float32 weights it was made of have .989, those of an encoder
# and of the weights that 900 steps of training started from .984.
_LEAST_COSINE = 0.986


def open_document_encoder(path: Path, checkpoint: Encoder, store: ExampleStore) -> Encoder:
    """Open the bundle that documents are encoded with, if its weights are those that queries are trained from.

    The bundle of the run encodes documents with the weights of the checkpoint, so queries have to be trained for
    vectors of these.

    Args:
        path: the path of the bundle.
        checkpoint: the encoder before training.
        store: documents that both encode.

    Raises:
        InvalidSetting: the encoders have vectors of different lengths, read texts differently, or have token
            vectors whose mean cosine is below that of two graphs of the same weights.
    """
    encoder = open_encoder(path)
    if encoder.dim != checkpoint.dim:
        raise InvalidSetting(
            "the encoder of the documents has vectors of another length",
            path=path,
            expected=checkpoint.dim,
            actual=encoder.dim,
        )
    cosines = []
    for number in range(min(_N_COMPARED, store.n_documents)):
        text = store.document(number)
        vectors, wanted = (
            np.concatenate([each.values for each in one.windows(text)]) for one in (encoder, checkpoint)
        )
        if vectors.shape != wanted.shape:
            raise InvalidSetting(
                "the encoder of the documents reads texts otherwise than the recipe says",
                path=path,
                expected="the window and prefixes of [model]",
                actual=f"{len(vectors)} token vectors of a document, not {len(wanted)}",
            )
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(wanted, axis=1)
        cosines.append(np.einsum("ij,ij->i", vectors, wanted) / np.maximum(lengths, 1e-12))
    mean = float(np.concatenate(cosines).mean()) if cosines else 1.0
    if mean < _LEAST_COSINE:
        raise InvalidSetting(
            "the encoder of the documents has other weights, or prefixes, than [model]",
            path=path,
            expected=f"token vectors with a mean cosine of at least {_LEAST_COSINE} to the checkpoint's",
            actual=round(mean, 4),
        )
    return encoder


_FOLDER = "rows"
_N_SAMPLED = 30_000  # rows that the codes are trained on
_N_WORDS = 16  # of a codebook: 4 bits
_ROWS_AT_ONCE = 1 << 14  # coded


@dataclass(frozen=True)
class FixedPreparation:
    """Parts that the objective is made from.

    Attributes:
        settings: the recipe's.
        ranking: makes queries' vectors; its representation makes those of documents.
        documents: the encoder of documents.
        n_threads: that encode documents at once.
        stores: the sources of the run by name.
        folder: the folder of the run; the rows are kept there.
        device: the device of the training.
        seed: the seed of the codes.
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
                Bm25Scores(store, analyzer) if settings.hybrid_weight else None,
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
