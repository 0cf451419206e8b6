"""The settings and the encoder of a new index, from the arguments of a build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from quarry.engine.analysis.analyzer import RULES, Analyzer
from quarry.engine.arguments import checked_integer
from quarry.engine.encoding.encoder import Encoder, trained_quantizer
from quarry.engine.encoding.no_encoder import NoEncoder
from quarry.engine.encoding.opening import EncoderSource, open_encoder
from quarry.engine.options import BuildKeywords, BuildOptions
from quarry.engine.representation.base import Representation
from quarry.engine.representation.registry import Given, check_readable, representation_for, representation_from
from quarry.engine.scoring.metric import stored_dim
from quarry.formats.errors import InvalidSetting
from quarry.formats.manifest import IndexSettings, MetricRecord
from quarry.formats.vectors.quantizer import MAX_DIM

__all__ = ["BuildPlan"]


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
        encoder: EncoderSource,
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
            checked = _checked_dim(dim, encoder, representation)
            plan = cls(NoEncoder(checked, normalize=options.metric == "cosine"), Given(), options)
        plan._check()
        return plan

    def settings(self) -> IndexSettings:
        """Return the settings of the index."""
        options, dim = self.options, self.encoder.dim
        record: MetricRecord | None = None
        if options.metric == "l2":
            record = MetricRecord(name="l2", dim=dim)
            dim = stored_dim(dim, options.code_bytes)
        elif options.metric not in (None, "cosine" if self.encoder.normalize else "ip"):
            record = MetricRecord(name=str(options.metric), dim=dim)
        analyzer = Analyzer(options.language)
        return IndexSettings(
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

    def _check(self) -> None:
        """Raise InvalidSetting unless the settings fit the encoder and one another."""
        self.settings()
        if self.options.metric == "l2":
            if self.encoder.beta is not None:
                raise InvalidSetting("the metric l2 has no softmax aggregation, which the encoder was trained for")
            if trained_quantizer(self.encoder) is not None:
                raise InvalidSetting("the metric l2 cannot be used with the quantizer of the encoder")

    def _code_bytes(self, dim: int) -> int:
        """Return the bytes of a code: those requested, else those of the encoder's quantizer, else the default."""
        trained = trained_quantizer(self.encoder, self.options.code_bytes)
        return self.options.code_bytes_for(dim) if trained is None else trained.code_bytes


def _checked_dim(dim: object, encoder: object, representation: object) -> int:
    if encoder is not None or representation is not None:
        raise InvalidSetting(
            "dim is for an index without an encoder, whose documents all have vectors",
            expected="dim, or encoder and representation",
        )
    return checked_integer(dim, "dim", 1, MAX_DIM - 1)


def _choose_representation(requested: str | Representation | None, encoder: Encoder) -> Representation:
    if requested is None:
        return representation_for(encoder)
    chosen = representation_from(requested)
    check_readable(chosen, encoder)
    return chosen
