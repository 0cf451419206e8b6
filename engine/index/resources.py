"""What the views of all generations of an open index share: encoder, reranker, device and limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from quarry.engine.backends.protocol import Accelerator
from quarry.engine.bundled import BUNDLED, DEFAULT_NAME, is_installed, path_by_identity
from quarry.engine.encoding.batch_encoder import encode_queries
from quarry.engine.encoding.encoder import Encoder, describe_encoder, describe_record
from quarry.engine.encoding.no_encoder import has_encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.filtering.unknown_fields import UnknownFields
from quarry.engine.options import OpenOptions
from quarry.engine.scoring.metric import Metric, metric_queries
from quarry.engine.scoring.query_vectors import Queries, check_host_vectors
from quarry.engine.search.reranker import Reranker
from quarry.formats.errors import EncoderMismatch, InvalidSetting
from quarry.formats.manifest import EncoderRecord

__all__ = ["ViewResources"]


@dataclass(frozen=True, eq=False)
class ViewResources:
    """Resources shared by the views of all generations of an open index.

    Attributes:
        options: memory limit, backend and number of threads.
        device: device of backend "gpu".
        chosen_encoder: the encoder that the caller chose, which may be another one than the index was built with;
            None: the installed one that the index has, whether or not it is the default of new indexes.
        reranker: reranker of hits, or None.
        unknown_fields: the fields of filters that callers were warned about.
    """

    options: OpenOptions
    device: Accelerator
    chosen_encoder: Encoder | None
    reranker: Reranker | None = None
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)
    _bundled: dict[str, Encoder] = field(init=False, default_factory=dict)

    def has_encoder_of(self, record: EncoderRecord) -> bool:
        """Return whether texts can be encoded for an index with this encoder; opens no bundle."""
        if self.chosen_encoder is None:
            return is_installed(record.identity)
        return self.chosen_encoder.identity == record.identity

    def encoder_for(self, record: EncoderRecord) -> Encoder:
        """Return the encoder of texts for an index with this encoder.

        That is the default encoder if none was chosen and the index has none of those that are installed;
        a bundle is opened when it is first needed, so a damaged one concerns only the indexes that use it.

        Raises:
            FormatError: the bundle is damaged.
            AccessFailed: the operating system refuses access to a file of the bundle.
        """
        if self.chosen_encoder is not None:
            return self.chosen_encoder
        if record.identity not in self._bundled:
            self._bundled[record.identity] = open_encoder(path_by_identity(record.identity))
        return self._bundled[record.identity]

    def check_encoder(self, expected: EncoderRecord, path: Path) -> None:
        """Raise unless the encoder is the one that an index was built with.

        Args:
            expected: the encoder of the index.
            path: folder of the index, for the message.

        Raises:
            EncoderMismatch: it is another one, or the index was built without an encoder.
        """
        if self.has_encoder_of(expected):
            return
        if not has_encoder(expected):
            raise EncoderMismatch(
                "the index was built without an encoder, so texts have no vectors in it",
                path=path,
                expected="search(text, vector=...), or mode='lexical'; documents with 'vectors'",
            )
        chosen = self.chosen_encoder
        default = f"{DEFAULT_NAME} ({BUNDLED[DEFAULT_NAME]})"
        raise EncoderMismatch(
            "the vectors of this index are of another encoder; open it with encoder=..., or encode its documents "
            "again with reencode",
            path=path,
            expected=describe_record(expected),
            actual=default if chosen is None else describe_encoder(chosen),
        )

    def encode(self, texts: list[str], record: EncoderRecord, metric: Metric) -> Queries:
        """Return the (n, stored_dim) vectors of query texts for an index with this encoder and metric.

        Raises:
            InvalidQuery: a text has no token, or the encoder returns no usable vector for it.
        """
        encoder = self.encoder_for(record)
        vectors = encode_queries(encoder, texts, self.options.n_threads)
        check_host_vectors(vectors)
        is_ready = metric.name == "cosine" and encoder.normalize
        return vectors if is_ready else metric_queries(metric, vectors)

    def find_reranker(self, path: Path) -> Reranker:
        """Return the reranker of an index in this folder.

        Raises:
            InvalidSetting: the index was opened without a reranker.
        """
        if self.reranker is None:
            raise InvalidSetting(
                "there is no reranker; open the index with reranker=...", path=path, setting="rerank"
            )
        return self.reranker
