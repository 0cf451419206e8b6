"""The codes of a whole source of documents, which stay unchanged while JPQ trains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from quarry.formats.errors import CorruptFile
from quarry.training.compression.product_quantizer import ProductQuantizer
from quarry.training.data.example_store import ExampleStore
from quarry.training.model.network import EncoderNetwork
from quarry.training.model.tokens import TextBatcher
from quarry.training.objectives.objective import Objective
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["StoredCodes", "document_rows", "encode_documents"]

_TEXTS_AT_ONCE = 64  # encoded


@dataclass(frozen=True, eq=False)
class StoredCodes:
    """The Index Assignments of a source's documents (Eq. 4 of Zhan et al. 2022).

    Attributes:
        codes: (n_rows, M) uint8, row after row, document after document.
        offsets: (n_documents + 1,) int64; document d has rows offsets[d] to offsets[d + 1] - 1.
    """

    codes: torch.Tensor
    offsets: torch.Tensor

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.offsets) - 1

    def rows(self, documents: torch.Tensor, quantizer: ProductQuantizer) -> DocumentRows:
        """Decode the codes of some documents for scores, differentiable by the codebook.

        Args:
            documents: (n,) int64 numbers.
            quantizer: whose codes they are.
        """
        first = self.offsets[documents]
        counts = self.offsets[documents + 1] - first
        within = torch.arange(int(counts.sum()), device=counts.device)
        within = within - (counts.cumsum(0) - counts).repeat_interleave(counts)
        places = first.repeat_interleave(counts) + within
        return DocumentRows(quantizer.decode(self.codes[places].long()), tuple(counts.tolist()))

    def save(self, path: Path) -> None:
        """Write both arrays into a file, complete or not at all."""
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, codes=self.codes.cpu().numpy(), offsets=self.offsets.cpu().numpy())
        partial.rename(path)

    @staticmethod
    def load(path: Path, device: torch.device) -> StoredCodes:
        """Read what `save` wrote.

        Raises:
            CorruptFile: it cannot be read.
        """
        try:
            with path.open("rb") as file, np.load(file) as arrays:
                codes, offsets = (torch.from_numpy(arrays[name]).to(device) for name in ("codes", "offsets"))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise CorruptFile(f"stored codes cannot be read: {error}", path=path) from error
        return StoredCodes(codes, offsets)


def encode_documents(
    store: ExampleStore,
    network: EncoderNetwork,
    batcher: TextBatcher,
    objective: Objective,
    quantizer: ProductQuantizer,
) -> StoredCodes:
    """Code the rows of all documents of a store with the quantizer's codebook for documents."""
    codes: list[torch.Tensor] = []
    counts: list[int] = []
    for low in range(0, store.n_documents, _TEXTS_AT_ONCE):
        numbers = range(low, min(low + _TEXTS_AT_ONCE, store.n_documents))
        rows = document_rows(store, list(numbers), network, batcher, objective)
        codes.append(quantizer.nearest(quantizer.rotate(rows.values)).to(torch.uint8))
        counts += rows.counts
    offsets = torch.tensor([0, *np.cumsum(counts).tolist()], device=network.device)
    return StoredCodes(torch.cat(codes), offsets)


def document_rows(
    store: ExampleStore, numbers: list[int], network: EncoderNetwork, batcher: TextBatcher, objective: Objective
) -> DocumentRows:
    """The rows of some documents, as the objective makes them at its first step, without gradient.

    Args:
        store: the documents.
        numbers: the numbers of those that are wanted, one at least.
        network: is left in evaluation mode.
        batcher: cuts and tokenizes documents.
        objective: makes rows of their token vectors.
    """
    network.model.eval()
    parts = []
    with torch.no_grad():
        for low in range(0, len(numbers), _TEXTS_AT_ONCE):
            tokens = batcher.batch([store.document(number) for number in numbers[low : low + _TEXTS_AT_ONCE]])
            parts.append(objective.represent_documents(network.hidden(tokens), tokens, None))
    return DocumentRows.concatenate(parts)
