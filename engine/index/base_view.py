"""What the views of an index have in common, whether or not it has shards: settings, encoder and reranker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.no_encoder import NoEncoder, has_encoder
from quarry.engine.index.resources import ViewResources
from quarry.engine.options import SearchOptions
from quarry.engine.scoring.query_vectors import Vectors
from quarry.engine.search.hits.hits import Hits
from quarry.engine.search.quoted import search_quoted
from quarry.engine.search.relevance import BackgroundSample, RelevanceEstimator
from quarry.engine.search.reranker import rerank
from quarry.formats.manifest import Manifest

__all__ = ["BaseView"]


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
        return search_quoted(self._search_reranked, texts, options, vectors, self.settings)

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

    def _make_estimator(self, sample: Callable[[], BackgroundSample]) -> RelevanceEstimator:
        """Make what estimates relevance with a background sample, which is read when it is first needed."""
        record = self._encoder_record
        is_of_index = self._resources.has_encoder_of(record)
        return RelevanceEstimator(partial(self._resources.encoder_for, record), is_of_index, sample)
