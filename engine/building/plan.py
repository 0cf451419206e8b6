"""The settings and the encoder of a new index, from the arguments of a build or from another index."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from quarry.engine.analysis.analyzer import rules_of
from quarry.engine.arguments import checked_integer
from quarry.engine.bundled import path_by_identity
from quarry.engine.encoding.encoder import Encoder, describe_encoder, describe_record, trained_quantizer
from quarry.engine.encoding.no_encoder import NoEncoder, has_encoder
from quarry.engine.encoding.opening import EncoderSource, open_encoder
from quarry.engine.options import DEFAULT_LANGUAGE, BuildKeywords, BuildOptions
from quarry.engine.representation.base import Representation
from quarry.engine.representation.registry import Given, check_readable, representation_for, representation_from
from quarry.engine.reuse.generation_files import open_generations
from quarry.engine.scoring.metric import stored_dim
from quarry.formats.container.directory import Directory
from quarry.formats.errors import EncoderMismatch, InvalidSetting
from quarry.formats.manifest import AUTO_LANGUAGE, IndexSettings, MetricRecord, with_documents
from quarry.formats.vectors.quantizer import MAX_DIM, Quantizer

__all__ = ["BuildPlan"]


@dataclass(frozen=True, eq=False)
class BuildPlan:
    """What a new index is made with.

    Attributes:
        settings: the settings of the index.
        encoder: the encoder of its documents; `NoEncoder` if all documents come with vectors.
        representation: an object for the representation that the settings name; None: it is found by its name.
        source: what another process opens the encoder from.
        quantizer: used instead of one that is trained on the documents; None: one is trained if needed.
    """

    settings: IndexSettings
    encoder: Encoder
    representation: Representation | None
    source: EncoderSource
    quantizer: Quantizer | None = None

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
            InvalidSetting: a setting is not valid, or does not fit the encoder.
        """
        options = BuildOptions.of(settings)
        if dim is not None:
            checked = _checked_dim(dim, encoder, representation)
            opened: Encoder = NoEncoder(checked, normalize=options.metric == "cosine")
            return cls(_settings_of(options, opened, Given()), opened, None, opened)
        opened = open_encoder(encoder)
        chosen = _choose_representation(representation, opened)
        return cls(_settings_of(options, opened, chosen), opened, chosen, encoder)

    @classmethod
    def like(cls, path: Path, encoder: EncoderSource, given: Mapping[str, object]) -> Self:
        """Take settings and the newest quantizer of an index, sharded or not.

        Args:
            path: folder of the index.
            encoder: the encoder of the new index; None: the bundled encoder that the other index has, or none if
                it has none.
            given: settings of the new index that the caller gave by name; None counts as not given.

        Raises:
            IndexNotFound: there is no index.
            EncoderMismatch: the index has another encoder.
            InvalidSetting: settings are given too.
            FormatError: a file of the index is damaged or missing.
        """
        opened = None if encoder is None else open_encoder(encoder)
        also = ", ".join(name for name, value in given.items() if value is not None)
        if also:
            raise InvalidSetting(
                "settings are given together with an index that they are taken from", path=path, actual=also
            )
        with ExitStack() as stack:
            shards = open_generations(Directory(path.absolute()), stack)
            first = with_documents(shard.manifest for shard in shards)
            if opened is None:
                opened = (
                    open_encoder(path_by_identity(first.encoder.identity))
                    if has_encoder(first.encoder)
                    else NoEncoder(first.settings.dim, first.encoder.normalize)
                )
            if (first.encoder.identity, first.encoder.normalize) != (opened.identity, opened.normalize):
                raise EncoderMismatch(
                    "the new index has another encoder than the index that its settings are taken from",
                    path=path,
                    expected=describe_record(first.encoder),
                    actual=describe_encoder(opened),
                )
            quantizers = {
                segment.record.quantizer: segment.quantizer
                for shard in shards
                for segment in shard.snapshot.segments
            }
            newest = [shard.manifest.quantizers[-1].name for shard in shards if shard.manifest.quantizers]
            source = encoder or path_by_identity(opened.identity) or opened
            return cls(first.settings, opened, None, source, quantizers[newest[0]] if newest else None)


def _settings_of(options: BuildOptions, encoder: Encoder, representation: Representation) -> IndexSettings:
    """Return the settings of an index.

    Raises:
        InvalidSetting: they do not fit one another.
    """
    dim = encoder.dim
    record: MetricRecord | None = None
    if options.metric == "l2":
        record = MetricRecord(name="l2", dim=dim)
        dim = stored_dim(dim, options.code_bytes)
    elif options.metric not in (None, "cosine" if encoder.normalize else "ip"):
        record = MetricRecord(name=str(options.metric), dim=dim)
    trained = trained_quantizer(encoder, options.code_bytes)
    is_multilingual = getattr(encoder, "is_multilingual", False)  # bundles alone say so
    language = options.language or (AUTO_LANGUAGE if is_multilingual else DEFAULT_LANGUAGE)
    settings = IndexSettings(
        dim=dim,
        representation=representation.name,
        representation_settings=representation.settings(),
        beta=encoder.beta,
        centroids=options.centroids,
        code_bytes=options.code_bytes_for(dim) if trained is None else trained.code_bytes,
        language=language,
        analysis_rules=rules_of(language),
        k1=float(options.k1),
        b=float(options.b),
        seed=options.seed,
        metric=record,
        passages=options.passages,
        searchable=tuple(options.searchable),
        synonyms=options.synonyms,  # type: ignore[arg-type]  # as checked
        field_weights=dict(options.field_weights),
    )
    if options.metric == "l2":
        if encoder.beta is not None:
            raise InvalidSetting("the metric l2 has no softmax aggregation, which the encoder was trained for")
        if trained_quantizer(encoder) is not None:
            raise InvalidSetting("the metric l2 cannot be used with the quantizer of the encoder")
    return settings


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
