"""The network under training as an encoder of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch

from quarry.engine.encoding.encoder import TokenVectors, VectorKind
from quarry.engine.encoding.tokenizer import Ids, TextTokenizer, TokenFrame, token_frame
from quarry.engine.encoding.windows import window_bounds
from quarry.formats.errors import InvalidQuery
from quarry.training.model.checkpoint_files import EncoderFiles
from quarry.training.model.network import EncoderNetwork
from quarry.training.model.tokens import TextTokens, TokenBatch

__all__ = ["TorchEncoder"]

Vectors = npt.NDArray[np.float32]
Pool = Callable[[torch.Tensor, TokenBatch], torch.Tensor]


class TorchEncoder:
    """A `quarry.engine.encoding.encoder.Encoder`, so that an index can be built without an export.

    Every text is encoded by itself, so its vectors depend on it alone.

    Args:
        network: in evaluation mode, as it is when a text is encoded.
        files: pooling, window and prefixes.
        identity: vectors of encoders with one identity may be compared; a new one whenever the weights change.
        pool: makes the vectors of texts from hidden states and tokens; None: they are made of token vectors.
    """

    def __init__(
        self, network: EncoderNetwork, files: EncoderFiles, identity: str, pool: Pool | None = None
    ) -> None:
        self._network, self._files, self._pool = network, files, pool
        self._tokenizer = TextTokenizer(network.tokenizer_path)
        self._identity = identity
        self._query_frame = self._frame(files.query_prefix)
        self._document_frame = self._frame(files.document_prefix)

    @property
    def name(self) -> str:
        """``encoder in training``."""
        return "encoder in training"

    @property
    def identity(self) -> str:
        """The identity that was given."""
        return self._identity

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._network.dim if self._pool is None else len(self.encode_query("a"))

    @property
    def normalize(self) -> bool:
        """Whether vectors have L2 norm 1."""
        return self._files.normalize

    @property
    def beta(self) -> float | None:
        """Inverse temperature of the aggregation it is trained for."""
        return self._files.beta

    @property
    def vector_kinds(self) -> frozenset[VectorKind]:
        """``token``, or ``pooled`` if vectors are not made of token vectors."""
        return frozenset({"token"} if self._pool is None else {"pooled"})

    @property
    def trained_representation(self) -> str | None:
        """Name of the representation it is trained for."""
        return self._files.representation

    @property
    def representation_settings(self) -> Mapping[str, int]:
        """Settings of that representation."""
        return self._files.representation_settings

    @property
    def quantizer(self) -> None:
        """None: an index of it has a quantizer of its own."""

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Encode a document; see `quarry.engine.encoding.encoder.Encoder.windows`."""
        frame = self._document_frame
        for tokens in self._cut(text, frame):
            vectors, pooled = self._run(tokens, frame)
            low = len(frame.before)
            yield TokenVectors(
                values=vectors[low : low + len(tokens.ids)],
                starts=tokens.starts,
                ends=tokens.ends,
                text_mean=vectors.mean(axis=0),
                first=vectors[0],
                pooled=pooled,
            )

    def encode_query(self, text: str) -> Vectors:
        """Encode a query; see `quarry.engine.encoding.encoder.Encoder.encode_query`."""
        frame = self._query_frame
        pooled, n_tokens = [], []
        for tokens in self._cut(text, frame):
            vectors, own = self._run(tokens, frame)
            if own is None:
                own = self._scaled(vectors[0] if self._files.pooling == "cls" else vectors.mean(axis=0))
            pooled.append(own)
            n_tokens.append(len(tokens.ids))
        if not pooled:
            raise InvalidQuery("the query has no token", actual=repr(text[:80]))
        if len(pooled) == 1:
            return pooled[0]
        return self._scaled(np.average(np.stack(pooled), axis=0, weights=n_tokens).astype(np.float32))

    def _frame(self, prefix: str) -> TokenFrame:
        return token_frame(self._tokenizer, prefix, self._files.window, self._network.folder)

    def _cut(self, text: str, frame: TokenFrame) -> Iterator[TextTokens]:
        tokens = self._tokenizer.tokenize(text, frame.prefix)
        for low, high in window_bounds(text, tokens.starts, tokens.ends, self._files.window - frame.n_tokens):
            yield TextTokens(text, tokens.ids[low:high], tokens.starts[low:high], tokens.ends[low:high])

    def _run(self, tokens: TextTokens, frame: TokenFrame) -> tuple[Vectors, Vectors | None]:
        """(n, dim) vectors of the tokens of a window and of its frame, and the window's own vector or None."""
        framed: Ids = frame.around(tokens.ids)
        ids = torch.from_numpy(framed)[None]
        batch = TokenBatch(ids, torch.ones_like(ids), (tokens,), len(frame.before))
        with torch.no_grad():
            hidden = self._network.hidden(batch)
            pooled = None if self._pool is None else self._pool(hidden, batch)[0].cpu().numpy()
        vectors: Vectors = hidden[0].cpu().numpy()
        return vectors, pooled

    def _scaled(self, vector: Vectors) -> Vectors:
        if not self._files.normalize:
            return vector
        length = max(float(np.linalg.norm(vector.astype(np.float64))), 1e-12)
        return (vector / length).astype(np.float32)
