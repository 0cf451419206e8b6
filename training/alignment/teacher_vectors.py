"""A teacher's vectors of the texts of a source, made once and kept in half precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from quarry.formats.errors import CorruptFile
from quarry.training.model.checkpoint_files import read_use
from quarry.training.model.network import EncoderNetwork, load_network
from quarry.training.model.tokens import TextBatcher
from quarry.training.objectives.ranking import pool
from quarry.training.objectives.scoring import DocumentRows

__all__ = ["Span", "TeacherEncoder", "VectorStore", "keep_vectors", "open_teacher"]

_BLOCK = 1024  # texts of one file: what is lost when a run is killed
_TOKENS_AT_ONCE = 4096

Span = tuple[int, int]
"""The characters of a passage: first, and one past the last."""
Halves = npt.NDArray[np.float16]


@dataclass(frozen=True, eq=False)
class TeacherEncoder:
    """An encoder whose vectors are the target.

    Attributes:
        network: the encoder.
        queries: tokenizes queries for it.
        documents: tokenizes documents.
        pooling: the pooling of texts, one of `POOLINGS`.
    """

    network: EncoderNetwork
    queries: TextBatcher
    documents: TextBatcher
    pooling: str

    def query_rows(self, texts: Sequence[str]) -> list[Halves]:
        """The vector of each query: (1, dim) float16 each."""
        return self._rows(self.queries, texts, [[(0, len(text))] for text in texts])

    def document_rows(self, texts: Sequence[str], spans: Sequence[Sequence[Span]]) -> list[Halves]:
        """The vectors of the passages of documents: (n_spans, dim) float16 each.

        The last span is the whole text that is read, and has the teacher's own vector of it; the others have the
        means of the tokens that end in them, since the first of some tokenizers begin with the space before. A
        span without a token has the vector of the whole.
        """
        return self._rows(
            self.documents, [text[: own[-1][1]] for text, own in zip(texts, spans, strict=True)], spans
        )

    def _rows(self, batcher: TextBatcher, texts: Sequence[str], spans: Sequence[Sequence[Span]]) -> list[Halves]:
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        halves: dict[int, Halves] = {}
        self.network.model.eval()
        for part in _parts(order, texts):
            tokens = batcher.batch([texts[number] for number in part])
            with torch.no_grad():
                hidden = self.network.hidden(tokens)
                pooled = pool(hidden, tokens.mask.to(hidden.device), self.pooling)
            for row, number in enumerate(part):
                text = tokens.texts[row]
                own = hidden[row, tokens.n_before : tokens.n_before + len(text.ids)]
                bounds = np.searchsorted(text.ends, spans[number][:-1], "right")
                means = [
                    own[low:high].mean(0) if low < high else pooled[row]
                    for low, high in bounds.reshape(-1, 2).tolist()
                ]
                halves[number] = torch.stack([*means, pooled[row]]).cpu().numpy().astype(np.float16)
        return [halves[number] for number in range(len(texts))]


def _parts(order: Sequence[int], texts: Sequence[str]) -> list[list[int]]:
    """Divide texts, shortest first, so that the longest of a part times its size is about the same."""
    parts: list[list[int]] = [[]]
    for number in order:
        n_tokens = len(texts[number]) // 4 + 8  # about
        if parts[-1] and (len(parts[-1]) + 1) * n_tokens > _TOKENS_AT_ONCE:
            parts.append([])
        parts[-1].append(number)
    return parts


def open_teacher(
    folder: Path, precision: str, device: str, query_tokens: int, document_tokens: int
) -> TeacherEncoder:
    """Load a teacher; pooling and prefixes are those of its quarry.json, without one the mean and none.

    Args:
        folder: the folder of a checkpoint.
        precision: the precision of matrix products.
        device: the device of the weights.
        query_tokens: most tokens of a query that are read, special tokens and prefix included.
        document_tokens: most tokens of a document, likewise.
    """
    network = load_network(folder, precision=precision, device=device)
    use = read_use(folder)
    most = network.max_tokens or document_tokens
    queries, documents = (
        TextBatcher(network.tokenizer_path, str(use.get(name, "")), min(most, n_tokens))
        for name, n_tokens in (("query_prefix", query_tokens), ("document_prefix", document_tokens))
    )
    return TeacherEncoder(network, queries, documents, str(use.get("pooling", "mean")))


class VectorStore:
    """The rows of numbered texts, in files that are mapped into memory.

    Args:
        folder: that `keep_vectors` filled.
        n_texts: the number of texts of the source.

    Raises:
        CorruptFile: a file is missing, cannot be read, or has another number of rows than it should.
    """

    def __init__(self, folder: Path, n_texts: int) -> None:
        self._rows: list[Halves] = []
        self._ends: list[npt.NDArray[np.int64]] = []
        for number, low in enumerate(range(0, n_texts, _BLOCK)):
            path = folder / f"{number:05d}.npy"
            try:
                rows, counts = np.load(path, mmap_mode="r"), np.load(path.with_suffix(".counts.npy"))
            except (OSError, ValueError, EOFError) as error:
                raise CorruptFile(f"vectors of a teacher cannot be read: {error}", path=path) from error
            if len(counts) != min(_BLOCK, n_texts - low) or counts.sum() != len(rows) or rows.dtype != np.float16:
                raise CorruptFile("not the vectors of the source", path=path, actual=f"{rows.shape} {rows.dtype}")
            self._rows.append(rows)
            self._ends.append(np.concatenate([[0], np.cumsum(counts)]))

    def rows(self, numbers: Sequence[int]) -> DocumentRows:
        """The rows of some texts, float32 on the CPU."""
        parts = []
        for number in numbers:
            block, place = divmod(int(number), _BLOCK)
            low, high = self._ends[block][place : place + 2]
            parts.append(self._rows[block][low:high])
        values = torch.from_numpy(np.concatenate(parts).astype(np.float32))
        return DocumentRows(values, tuple(len(part) for part in parts))


def keep_vectors(folder: Path, n_texts: int, encode: Callable[[range], Sequence[Halves]]) -> VectorStore:
    """Make the rows of the texts of a source, block after block; blocks that are there are kept.

    Args:
        folder: the folder of the blocks.
        n_texts: the number of texts of the source.
        encode: makes the rows of the texts with some numbers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, low in enumerate(range(0, n_texts, _BLOCK)):
        path = folder / f"{number:05d}.npy"
        if not path.is_file():
            rows = encode(range(low, min(low + _BLOCK, n_texts)))
            np.save(path.with_suffix(".counts.npy"), np.array(list(map(len, rows)), np.int64))
            partial = path.with_suffix(".partial.npy")
            np.save(partial, np.concatenate(rows))
            partial.rename(path)
    return VectorStore(folder, n_texts)
