"""What an encoder was trained together with: settings of its representation, and a quantizer of its vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from quarry.engine.encoding.encoder import Encoder
from quarry.formats.vectors.quantizer import Quantizer

__all__ = ["TrainedEncoder", "trained_quantizer", "trained_settings"]


@runtime_checkable
class TrainedEncoder(Encoder, Protocol):
    """An encoder that states what it was trained together with; other encoders have nothing of the kind.

    Attributes:
        representation_settings: settings of the representation that it was trained for.
        quantizer: quantizer of its vectors, or None.
    """

    @property
    def representation_settings(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def quantizer(self) -> Quantizer | None: ...  # noqa: D102


def trained_settings(encoder: Encoder) -> Mapping[str, int]:
    """Return the settings of the representation that an encoder was trained for; none if it states none."""
    return encoder.representation_settings if isinstance(encoder, TrainedEncoder) else {}


def trained_quantizer(encoder: Encoder | None, code_bytes: int | None = None) -> Quantizer | None:
    """Return the quantizer that an encoder was trained with.

    Args:
        encoder: the encoder; None: there is none.
        code_bytes: size of the codes that are wanted; a quantizer of other codes is not returned. None: any size.

    Raises:
        FormatError: the quantizer of a bundle is damaged.
    """
    quantizer = encoder.quantizer if isinstance(encoder, TrainedEncoder) else None
    if quantizer is None or code_bytes not in (None, quantizer.code_bytes):
        return None
    return quantizer
