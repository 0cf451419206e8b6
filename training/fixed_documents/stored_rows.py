"""The vectors of a whole source of documents, which stay unchanged while the encoder of queries trains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.representation.base import Representation
from quarry.engine.representation.registry import encoder_of_documents
from quarry.formats.container.directory import sync_folder
from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.training.data.example_store import ExampleStore

__all__ = ["StoredRows", "encode_rows"]

_DOCUMENTS_AT_ONCE = 256  # encoded


@dataclass(frozen=True, eq=False)
class StoredRows:
    """The rows of documents, one document after another.

    Attributes:
        values: (n_rows, dim) float32.
        offsets: (n_documents + 1,) int64; document d has rows offsets[d] to offsets[d + 1] - 1, one at least. The
            last row of a passage document is the mean of the whole.
        rows_at_once: about so many are scored at a time.
    """

    values: torch.Tensor
    offsets: torch.Tensor
    rows_at_once: int = 1 << 16

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.offsets) - 1

    def scores(self, queries: torch.Tensor) -> torch.Tensor:
        """Score all documents by the largest inner product of their rows: (n_queries, n_documents) float32.

        Args:
            queries: (n_queries, dim) float32, without gradient.
        """
        parts = []
        for low, high in self._blocks():
            first, last = int(self.offsets[low]), int(self.offsets[high])
            of_rows = self.values[first:last] @ queries.T
            bounds = self.offsets[low : high + 1] - first
            parts.append(torch.segment_reduce(of_rows, "max", offsets=bounds, axis=0))
        return torch.cat(parts).T

    def best_rows(self, queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        """Find the row of each document that scores best for a query, the first of equals.

        Args:
            queries: (n_queries, dim) float32, without gradient.
            documents: (n_queries, n) int64, the documents of each query.

        Returns:
            (n_queries, n) int64 numbers of rows.
        """
        first = self.offsets[documents]
        last = self.offsets[documents + 1] - 1
        steps = torch.arange(int((last - first).max()) + 1, device=first.device)
        best = torch.empty_like(documents)
        for number, query in enumerate(queries):  # all at once would copy the rows of all candidates
            rows = torch.minimum(first[number, :, None] + steps, last[number, :, None])
            of_rows = self.values[rows] @ query
            best[number] = rows.gather(1, of_rows.argmax(1, keepdim=True))[:, 0]
        return best

    def last_rows(self, documents: torch.Tensor) -> torch.Tensor:
        """The number of each document's last row: the shape of `documents`, int64."""
        return self.offsets[documents + 1] - 1

    def save(self, path: Path, encoder: str) -> None:
        """Write both arrays into a file, complete or not at all; values in half precision.

        Args:
            path: the path of the file.
            encoder: identity of the encoder that the rows are of.
        """
        partial_path = path.with_suffix(".partial.npz")
        values = self.values.cpu().numpy().astype(np.float16)
        with partial_path.open("wb") as file:
            np.savez(file, rows=values, offsets=self.offsets.cpu().numpy(), encoder=np.array(encoder))
            file.flush()
            os.fsync(file.fileno())
        partial_path.rename(path)
        sync_folder(path.parent)

    @staticmethod
    def load(path: Path, n_documents: int, dim: int, encoder: str, device: torch.device) -> StoredRows:
        """Read what `save` wrote.

        Args:
            path: the path of the file.
            n_documents: the number of documents of the source.
            dim: length of the rows.
            encoder: identity of the encoder that the rows have to be of.
            device: the device of both arrays.

        Raises:
            CorruptFile: it cannot be read, or is not of so many documents or of vectors of this length.
            InvalidSetting: the rows are of another encoder.
        """
        try:
            with path.open("rb") as file, np.load(file) as arrays:
                rows, offsets = arrays["rows"], arrays["offsets"]
                recorded = str(arrays["encoder"]) if "encoder" in arrays else "not recorded"
        except (OSError, ValueError, KeyError, EOFError, BadZipFile, RuntimeError, TypeError) as error:
            raise CorruptFile(f"stored vectors cannot be read: {error}", path=path) from error
        if recorded != encoder:
            raise InvalidSetting(
                "the stored vectors are of another encoder than the recipe names now; train in a new folder",
                path=path,
                expected=encoder,
                actual=recorded,
            )
        has_shape = rows.shape[1:] == (dim,) and rows.dtype == np.float16
        has_shape = has_shape and offsets.shape == (n_documents + 1,) and offsets.dtype == np.int64
        if not has_shape or offsets[0] != 0 or offsets[-1] != len(rows) or np.diff(offsets).min() < 1:
            raise CorruptFile(
                "the stored vectors are not those of the source",
                path=path,
                expected=f"rows of {dim} numbers for {n_documents} documents",
                actual=f"rows of shape {rows.shape} with offsets of shape {offsets.shape}",
            )
        if not np.isfinite(rows).all():
            raise CorruptFile("stored vectors are not finite", path=path)
        values = torch.from_numpy(rows.astype(np.float32))
        return StoredRows(values.to(device), torch.from_numpy(offsets).to(device))

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of documents with about `rows_at_once` rows."""
        wanted = torch.arange(0, int(self.offsets[-1]), self.rows_at_once, device=self.offsets.device)
        lows = torch.searchsorted(self.offsets, wanted, right=True) - 1
        yield from pairwise(sorted({*lows.tolist(), self.n_documents}))


def encode_rows(
    store: ExampleStore, encoder: Encoder, representation: Representation, n_threads: int
) -> StoredRows:
    """Make the rows of all documents of a store as the engine makes those of an index.

    Args:
        store: the documents.
        encoder: the encoder of documents.
        representation: makes rows of token vectors.
        n_threads: that encode documents at once.
    """
    one = partial(_rows_of, store, encoder_of_documents(encoder, representation), representation)
    parts: list[np.ndarray] = []
    with ThreadPoolExecutor(n_threads) as pool:
        for low in range(0, store.n_documents, _DOCUMENTS_AT_ONCE):
            parts += pool.map(one, range(low, min(low + _DOCUMENTS_AT_ONCE, store.n_documents)))
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return StoredRows(torch.from_numpy(np.concatenate(parts)), torch.from_numpy(offsets))


def _rows_of(store: ExampleStore, encoder: Encoder, representation: Representation, number: int) -> np.ndarray:
    text = store.document(number)
    values: np.ndarray = representation.represent(text, encoder.windows(text), encoder.normalize).values
    return values
