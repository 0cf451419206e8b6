"""Encodes texts in batches, for accelerators."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from quarry.engine.encoding.batch_encoder import BatchLimits, PreparedText
from quarry.engine.encoding.encoder import TokenVectors
from quarry.engine.encoding.runtimes.bundle_encoder import (
    BundleEncoder,
    PreparedQuery,
    document_window,
    pool_tokens,
)
from quarry.engine.encoding.runtimes.onnx_session import check_numbers
from quarry.engine.encoding.tokenizer import BundleTokenizer, Ids, check_document
from quarry.engine.gpu.device_vectors import DeviceVectors
from quarry.engine.process.exit_gate import in_progress
from quarry.engine.process.per_process import PerProcess
from quarry.formats.arrays import Float32Array
from quarry.formats.bundle.encoder import EncoderBundle, load_bundle
from quarry.formats.bundle.folder import MODEL_NAME, QUERY_MODEL_NAME

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from quarry.engine.encoding.batch_encoder import DeviceTokens
    from quarry.engine.encoding.runtimes.device_batches import Batch

__all__ = ["BatchRunner", "BatchedEncoder", "MakeRunner"]


_BATCH_TOKENS = 16_384  # with padding; bounds the memory of token vectors
_GROUP = 256  # documents that are sorted by length together,
_GROUP_TOKENS = 1 << 17  # or fewer if they have this many tokens


class BatchRunner(Protocol):
    """Runs a bundle's graph over batches on one device; used by one thread at a time.

    Attributes:
        max_batch: maximum number of texts in a batch.
        place: the device.
    """

    max_batch: int
    place: torch.device

    def run(self, output: str, ids: Ids, mask: Ids) -> torch.Tensor:
        """Run a batch.

        Args:
            output: "token_vectors" or "pooled".
            ids: (batch, length) int64; values at places whose mask is 0 are ignored.
            mask: (batch, length) int64, 1 for a token and 0 for padding.

        Returns:
            (batch, length, dim) float32 token vectors, undefined for padding, or (batch, dim) float32 pooled
            vectors: a new tensor on the device, ready for the current stream of the calling thread.
        """
        ...


MakeRunner = Callable[[EncoderBundle, str], BatchRunner]
"""Opens a graph of a bundle, given by its file name, on a device."""


class BatchedEncoder(BundleEncoder):
    """A `BatchEncoder` that runs windows of several texts at once, those of similar length together.

    A text's vectors depend on the other texts of the batch by rounding only (the order of sums depends on the
    shape): graphs quantized per batch must not be run this way. `prepare` may be called from many threads;
    runs are serialized.

    Args:
        bundle: the bundle, with graph and tokenizer.
        make_runner: opens a graph of the bundle on a device; called at first use, once per process.
    """

    batch_limits: ClassVar[BatchLimits] = BatchLimits(_GROUP, tokens=_GROUP_TOKENS)

    def __init__(self, bundle: EncoderBundle, make_runner: MakeRunner) -> None:
        super().__init__(bundle)
        self._make_runner = make_runner
        self._tokenizers = PerProcess(partial(BundleTokenizer, bundle))
        self._documents = PerProcess(partial(_Graph, make_runner, bundle, MODEL_NAME))
        self._queries = self._documents
        if QUERY_MODEL_NAME in bundle.files:
            self._queries = PerProcess(partial(_Graph, make_runner, bundle, QUERY_MODEL_NAME))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as the folder of the bundle, which another process opens on its device."""
        return _open_again, (self._bundle.path, self._make_runner)

    def prepare(self, text: str) -> PreparedText:
        """Tokenize a document and cut it into windows.

        Raises:
            InvalidDocument: the text holds a lone surrogate; the message names its position.
        """
        check_document(text)
        tokenizer = self._tokenizers.get()
        tokens = tokenizer.tokenize(text, tokenizer.document_frame)
        return PreparedText(tokens, tuple(self._document_bounds(text, tokens, tokenizer.document_frame)))

    def run(self, prepared: Sequence[PreparedText]) -> list[list[TokenVectors]]:
        """Encode the windows of several documents; return a list for each document, in main memory."""
        from quarry.engine.gpu.transfer import download

        frame, settings = self._tokenizer().document_frame, self._bundle.settings
        places, rows = self._windows(prepared)
        vectors_of_rows: list[Float32Array] = [np.empty(0, np.float32)] * len(rows)
        for members, values in self._documents.get().run(self._output, rows):
            for member, vectors in zip(members, download(values)[0], strict=True):
                vectors_of_rows[member] = vectors[: len(rows[member])] if settings.token_vectors else vectors
                check_numbers(vectors_of_rows[member], self._output, self._bundle.model_path)
        windows: list[list[TokenVectors]] = [[] for _ in prepared]
        for (number, bounds), vectors in zip(places, vectors_of_rows, strict=True):
            tokens = prepared[number].tokens
            windows[number].append(document_window(tokens, bounds, frame, vectors, settings))
        return windows

    def run_on_device(self, prepared: Sequence[PreparedText]) -> DeviceTokens:
        """Encode the tokens of several documents; the vectors stay on the device, for the calling thread.

        Requires a bundle that returns token vectors, and at least one token.
        """
        from quarry.engine.encoding.batch_encoder import DeviceTokens
        from quarry.engine.encoding.runtimes.device_batches import tokens_in_order

        graph, frame = self._documents.get(), self._tokenizer().document_frame
        _, rows = self._windows(prepared)
        sizes = np.array([len(row) - frame.n_tokens for row in rows], np.int64)
        batches = graph.run("token_vectors", rows)
        values = tokens_in_order(batches, len(frame.before), sizes, self.dim, graph.place)
        lengths = [text.n_tokens for text in prepared]
        return DeviceTokens(values, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    def _windows(self, prepared: Sequence[PreparedText]) -> tuple[list[tuple[int, tuple[int, int]]], list[Ids]]:
        """Return the windows of documents (number of the document, bounds), and their tokens with frames."""
        frame = self._tokenizer().document_frame
        places = [(number, bounds) for number, text in enumerate(prepared) for bounds in text.bounds]
        return places, [frame.around(prepared[number].tokens.ids[slice(*bounds)]) for number, bounds in places]

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Encode a document, all windows at once, see `quarry.engine.encoding.encoder.Encoder.windows`."""
        yield from self.run([self.prepare(text)])[0]

    def encode_query(self, text: str) -> Float32Array:
        """Encode a query into (dim,) float32, see `quarry.engine.encoding.encoder.Encoder.encode_query`."""
        vector: Float32Array = self.run_queries([self.prepare_query(text)]).host[0]
        return vector

    def run_queries(self, prepared: Sequence[PreparedQuery]) -> DeviceVectors:
        """Encode at least one query; the vectors stay on the device, for the calling thread."""
        from quarry.engine.encoding.runtimes.device_batches import in_order, mean_over_windows

        rows = [row for query in prepared for row in query.rows]
        vectors = in_order(self._run_queries(rows))
        if len(rows) > len(prepared):
            vectors = mean_over_windows(vectors, [query.n_tokens for query in prepared], self.normalize)
        return DeviceVectors(vectors)

    def _run_queries(self, rows: list[Ids]) -> Iterator[Batch]:
        """Yield the pooled vectors of queries, in batches."""
        import torch

        from quarry.engine.gpu.transfer import download

        frame, graph = self._tokenizer().query_frame, self._queries.get()
        if not frame.n_unpooled:
            yield from graph.run("pooled", rows)
            return
        for members, values in graph.run("token_vectors", rows):  # the graph pools all tokens
            parts = (each[: len(rows[member])] for member, each in zip(members, download(values)[0], strict=True))
            pooled = [pool_tokens(frame.pooled_part(vectors), self._bundle.settings) for vectors in parts]
            yield members, torch.from_numpy(np.stack(pooled)).to(values.device)

    def _tokenizer(self) -> BundleTokenizer:
        return self._tokenizers.get()


class _Graph:
    """One graph of a bundle on its device; runs are serialized."""

    def __init__(self, make_runner: MakeRunner, bundle: EncoderBundle, name: str) -> None:
        bundle.verify_graph(name)
        self._runner = make_runner(bundle, name)
        self._lock = threading.Lock()
        self.place = self._runner.place

    def run(self, output: str, rows: list[Ids]) -> Iterator[Batch]:
        """Yield one output for each row of tokens, in batches of similar length: (n, longest, dim) or (n, dim)."""
        for members in batches([len(row) for row in rows], self._runner.max_batch):
            ids, mask = _pad([rows[member] for member in members])
            with in_progress, self._lock:
                values = self._runner.run(output, ids, mask)
            yield members, values


def batches(lengths: Sequence[int], max_batch: int) -> Iterator[list[int]]:
    """Group texts of similar length.

    Args:
        lengths: number of tokens of each text.
        max_batch: maximum number of texts in a batch.

    Yields:
        The positions of the texts of each batch, longest texts first; a batch of several texts has at most 16,384
        tokens with padding.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    start = 0
    while start < len(order):
        n = min(max_batch, max(1, _BATCH_TOKENS // lengths[order[start]]))
        yield order[start : start + n]
        start += n


def _pad(rows: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Return (batch, length) ids and mask."""
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask = np.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
    return ids, mask


def _open_again(folder: Path, make_runner: MakeRunner) -> BatchedEncoder:
    return BatchedEncoder(load_bundle(folder), make_runner)
