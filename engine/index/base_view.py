"""Base class of the views of an index, with or without shards: encoder, reranker, device and limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from quarry.engine.bundled import BUNDLED, DEFAULT_NAME, path_by_identity
from quarry.engine.encoding.batch_encoder import encode_queries
from quarry.engine.encoding.encoder import Encoder, describe_encoder
from quarry.engine.encoding.no_encoder import NoEncoder, has_encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.filtering.unknown_fields import UnknownFields
from quarry.engine.gpu.device import Device
from quarry.engine.options import OpenOptions, SearchOptions
from quarry.engine.scoring.metric import Metric, metric_queries
from quarry.engine.scoring.query_vectors import Queries, Vectors, check_host_vectors
from quarry.engine.search.hits.hits import Hits
from quarry.engine.search.quoted import search_quoted
from quarry.engine.search.relevance import BackgroundSample, RelevanceEstimator
from quarry.engine.search.reranker import Reranker, rerank
from quarry.formats.errors import EncoderMismatch, InvalidSetting
from quarry.formats.manifest import EncoderRecord, Manifest

__all__ = ["BaseView", "ViewResources"]


@dataclass(frozen=True, eq=False)
class ViewResources:
    """Resources shared by the views of all generations of an open index.

    Attributes:
        options: memory limit, backend and number of threads.
        device: device of backend "gpu".
        chosen_encoder: the encoder that the caller chose, which may be another one than the index was built with;
            None: the bundled one that the index has, whether or not it is the default of new indexes.
        reranker: reranker of hits, or None.
        unknown_fields: the fields of filters that callers were warned about.
    """

    options: OpenOptions
    device: Device
    chosen_encoder: Encoder | None
    reranker: Reranker | None = None
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)
    _bundled: dict[str, Encoder] = field(init=False, default_factory=dict)

    def has_encoder_of(self, record: EncoderRecord) -> bool:
        """Return whether texts can be encoded for an index with this encoder; opens no bundle."""
        if self.chosen_encoder is None:
            return record.identity in BUNDLED.values()
        return self.chosen_encoder.identity == record.identity

    def encoder_for(self, record: EncoderRecord) -> Encoder:
        """Return the encoder of texts for an index with this encoder.

        That is the default encoder if none was chosen and the index has none of those that come with the package;
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
            expected=f"{expected.name} ({expected.identity})",
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

    def find_reranker(self, options: SearchOptions, path: Path) -> Reranker | None:
        """Return the reranker of a search; None if the search does not rerank.

        Raises:
            InvalidSetting: it reranks, and the index was opened without a reranker.
        """
        if not options.rerank:
            return None
        if self.reranker is None:
            raise InvalidSetting(
                "there is no reranker; open the index with reranker=...", path=path, setting="rerank"
            )
        return self.reranker


class BaseView(ABC):
    """The settings and the encoder of one generation of an index, and what every search begins and ends with.

    Args:
        manifest: of the generation; of any shard if there are several, as all have the same settings.
        path: folder of the index, for messages.
        resources: shared resources.

    Attributes:
        settings: of the index.
        has_encoder: whether texts have vectors: the index was built with an encoder.

    Raises:
        FormatError: the bundle of the encoder is damaged.
    """

    def __init__(self, manifest: Manifest, path: Path, resources: ViewResources) -> None:
        self.settings = manifest.settings
        self._encoder_record = manifest.encoder
        self.has_encoder = has_encoder(manifest.encoder)
        self._dense_weight = manifest.dense_weight
        self._path = path
        self._resources = resources
        if resources.has_encoder_of(manifest.encoder):
            resources.encoder_for(manifest.encoder)  # a damaged bundle is an error here, not at the first query

    @property
    def encoder(self) -> Encoder:
        """The encoder of queries."""
        return self._resources.encoder_for(self._encoder_record)

    @property
    def writing_encoder(self) -> Encoder:
        """The encoder of documents that are added; it refuses texts if it is not that of the index."""
        record = self._encoder_record
        if self._resources.has_encoder_of(record):
            return self.encoder
        return NoEncoder(self.settings.dim, record.normalize)

    def check_encoder(self) -> None:
        """Raise unless the encoder is the one that the index was built with.

        Raises:
            EncoderMismatch: it is another one.
        """
        self._resources.check_encoder(self._encoder_record, self._path)

    def search(
        self, texts: list[str] | None, options: SearchOptions, vectors: Vectors | None = None
    ) -> list[Hits]:
        """Return the hits of each query, see `quarry.engine.engine.Engine.search`.

        Args:
            texts: of the queries; None: `options.mode` is "dense", and there is no reranking.
            options: of the search.
            vectors: (n, dim) of the queries, checked; None: texts are encoded if the mode needs vectors.
        """
        options = options.for_index(self._dense_weight)
        if texts is not None and options.operators and options.mode != "dense":
            return search_quoted(self._search_reranked, texts, options, vectors, self.settings)
        return self._search_reranked(texts, options, vectors)

    def _search_reranked(
        self, texts: list[str] | None, options: SearchOptions, vectors: Vectors | None
    ) -> list[Hits]:
        reranker = self._resources.find_reranker(options, self._path)
        found = self._search(texts, options, vectors)
        if reranker is None or texts is None:
            return found
        return [
            rerank(text, hits, reranker, options.k, options.offset)
            for text, hits in zip(texts, found, strict=True)
        ]

    @abstractmethod
    def _search(self, texts: list[str] | None, options: SearchOptions, vectors: Vectors | None) -> list[Hits]:
        """Return the hits of queries whose quoted phrases, if any, are a part of the options' condition."""

    def _make_estimator(self, metric: Metric, sample: Callable[[], BackgroundSample]) -> RelevanceEstimator:
        """Make what estimates relevance with a background sample, which is read when it is first needed."""
        record = self._encoder_record
        is_of_index = self._resources.has_encoder_of(record)
        # from minus half of a squared distance to a cosine
        offset = 1.0 if metric.name == "l2" else 0.0
        return RelevanceEstimator(partial(self._resources.encoder_for, record), is_of_index, sample, offset)
