"""Settings and quantizer of an index, taken over by a new one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from quarry.engine.bundled import path_by_identity
from quarry.engine.encoding.encoder import Encoder, describe_encoder
from quarry.engine.encoding.no_encoder import NoEncoder, has_encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.reuse.generation_files import open_generations
from quarry.formats.container.directory import Directory
from quarry.formats.errors import EncoderMismatch, InvalidSetting
from quarry.formats.manifest import IndexSettings, with_documents
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["ReusedSettings", "reuse_settings"]


@dataclass(frozen=True, eq=False)
class ReusedSettings:
    """The settings that a new index takes from another one.

    Attributes:
        settings: the settings of the other index.
        encoder: the encoder of the new index; `NoEncoder` if the other one was built without an encoder.
        quantizer: its newest quantizer; None if it has none.
    """

    settings: IndexSettings
    encoder: Encoder
    quantizer: Quantizer | None


def reuse_settings(path: Path, encoder: Encoder | None, given: Mapping[str, object]) -> ReusedSettings:
    """Return the settings and the newest quantizer of an index, sharded or not.

    Args:
        path: folder of the index.
        encoder: of the new index; None: the bundled encoder that the other index has, or none if it has none.
        given: settings of the new index that the caller gave by name; None counts as not given.

    Raises:
        IndexNotFound: there is no index.
        EncoderMismatch: the index has another encoder.
        InvalidSetting: settings are given too.
        FormatError: a file of the index is damaged or missing.
    """
    also = [name for name, value in given.items() if value is not None]
    if also:
        raise InvalidSetting(
            "settings are given together with an index that they are taken from", path=path, actual=", ".join(also)
        )
    with ExitStack() as stack:
        shards = open_generations(Directory(path.absolute()), stack)
        first = with_documents(shard.manifest for shard in shards)
        if encoder is None:
            encoder = (
                open_encoder(path_by_identity(first.encoder.identity))
                if has_encoder(first.encoder)
                else NoEncoder(first.settings.dim, first.encoder.normalize)
            )
        if (first.encoder.identity, first.encoder.normalize) != (encoder.identity, encoder.normalize):
            raise EncoderMismatch(
                "the new index has another encoder than the index that its settings are taken from",
                path=path,
                expected=f"{first.encoder.name} ({first.encoder.identity})",
                actual=describe_encoder(encoder),
            )
        quantizers = {
            segment.record.quantizer: segment.quantizer for shard in shards for segment in shard.snapshot.segments
        }
        newest = [shard.manifest.quantizers[-1].name for shard in shards if shard.manifest.quantizers]
        return ReusedSettings(first.settings, encoder, quantizers[newest[0]] if newest else None)
