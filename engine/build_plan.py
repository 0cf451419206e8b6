"""What a new index is like: its settings and its encoder, for the arguments of a build."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from quarry.engine.analysis.analyzer import RULES, Analyzer
from quarry.engine.arguments import shown
from quarry.engine.documents.document import Document
from quarry.engine.encoding.encoder import Encoder, open_encoder
from quarry.engine.encoding.no_encoder import NoEncoder
from quarry.engine.encoding.queries import encode_queries
from quarry.engine.encoding.trained import trained_quantizer, trained_settings
from quarry.engine.options import BuildKeywords, BuildOptions
from quarry.engine.representation.base import Representation
from quarry.engine.representation.given import Given
from quarry.engine.representation.registry import check_readable, representation_for, representation_from
from quarry.engine.scoring.metric import stored_dim, typical_norm
from quarry.engine.scoring.query_vectors import host_vectors
from quarry.formats.errors import InvalidQuery, InvalidSetting
from quarry.formats.manifest import IndexSettings, MetricRecord
from quarry.formats.vectors.quantizer import MAX_DIM

__all__ = ["BuildPlan"]

_SAMPLED = 256  # documents whose vectors determine the reference norm of the metric l2,
_ENCODED = 16  # or whose texts do, if the encoder's vectors have no fixed norm


@dataclass(frozen=True)
class BuildPlan:
    """The encoder, the representation and the options of a new index.

    Attributes:
        encoder: of the index; `NoEncoder` if all documents come with vectors.
        representation: of documents that are encoded.
        options: all other settings.
    """

    encoder: Encoder
    representation: Representation
    options: BuildOptions

    @classmethod
    def of(
        cls,
        encoder: str | os.PathLike[str] | Encoder | None,
        representation: str | Representation | None,
        settings: BuildKeywords,
        dim: int | None = None,
    ) -> Self:
        """Check the arguments of `quarry.engine.build`.

        Raises:
            InvalidSetting: a setting is not valid.
        """
        options = BuildOptions.of(settings)
        if dim is None:
            opened = open_encoder(encoder)
            plan = cls(opened, _choose_representation(representation, opened), options)
        else:
            _check_dim(dim, encoder, representation)
            plan = cls(NoEncoder(dim, normalize=options.metric == "cosine"), Given(), options)
        plan._check()
        return plan

    def settings(self, documents: Iterable[Document] = ()) -> tuple[IndexSettings, Iterator[Document]]:
        """Return the settings of the index, and its documents, the first of which the metric "l2" reads.

        Args:
            documents: of the index; they are read only if the settings depend on them.

        Raises:
            InvalidSetting: a setting is not valid.
        """
        following = iter(documents)
        options, dim = self.options, self.encoder.dim
        record: MetricRecord | None = None
        if options.metric == "l2":
            first = list(itertools.islice(following, _SAMPLED))
            following = itertools.chain(first, following)
            record = MetricRecord(name="l2", dim=dim, norm=self._reference_norm(first))
            dim = stored_dim(dim, options.code_bytes)
        elif options.metric not in (None, "cosine" if self.encoder.normalize else "ip"):
            record = MetricRecord(name=str(options.metric), dim=dim)
        analyzer = Analyzer(options.language)
        chosen = IndexSettings(
            dim=dim,
            representation=self.representation.name,
            representation_settings=self.representation.settings(),
            beta=self.encoder.beta,
            centroids=options.centroids,
            code_bytes=self._code_bytes(dim),
            language=analyzer.language,
            analysis_rules=RULES,
            k1=float(options.k1),
            b=float(options.b),
            seed=options.seed,
            metric=record,
        )
        return chosen, following

    def _check(self) -> None:
        """Check what can be checked before a document is read."""
        Analyzer(self.options.language)
        if self.options.metric == "l2":
            if self.encoder.beta is not None:
                raise InvalidSetting("the metric l2 has no softmax aggregation, which the encoder was trained for")
            if trained_quantizer(self.encoder) is not None:
                raise InvalidSetting("the metric l2 cannot be used with the quantizer of the encoder")
        else:
            self._code_bytes(self.encoder.dim)

    def _code_bytes(self, dim: int) -> int:
        """Return the bytes of a code: those requested, else those of the encoder's quantizer, else the default."""
        trained = trained_quantizer(self.encoder, self.options.code_bytes)
        return self.options.code_bytes_for(dim) if trained is None else trained.code_bytes

    def _reference_norm(self, documents: list[Document]) -> float:
        given = [document.vectors for document in documents if document.vectors is not None]
        if given:
            return typical_norm(given)
        if self.encoder.normalize or isinstance(self.encoder, NoEncoder):
            return 1.0
        try:
            texts = [document.full_text for document in documents[:_ENCODED]]
            return typical_norm([host_vectors(encode_queries(self.encoder, texts, 1))])
        except InvalidQuery:  # a text without a token; the norm affects precision only
            return 1.0


def _check_dim(dim: object, encoder: object, representation: object) -> None:
    if encoder is not None or representation is not None:
        raise InvalidSetting(
            "dim is for an index without an encoder, whose documents all have vectors",
            expected="dim, or encoder and representation",
        )
    if type(dim) is not int or not 1 <= dim < MAX_DIM:
        raise InvalidSetting(
            "dim is out of range", expected=f"an integer from 1 to {MAX_DIM - 1}", actual=shown(dim)
        )


def _choose_representation(requested: str | Representation | None, encoder: Encoder) -> Representation:
    kinds = encoder.vector_kinds
    if requested is None:
        return representation_for(kinds, encoder.trained_representation, trained_settings(encoder))
    chosen = representation_from(requested)
    check_readable(chosen, kinds)
    return chosen
