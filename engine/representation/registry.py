"""Representations by name, the default for an encoder, and `Given`, for documents that come with vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from quarry.engine.arguments import shown
from quarry.engine.encoding.encoder import Encoder, PassageEncoder, encoder_pooling, trained_settings
from quarry.engine.encoding.token_vectors import TokenVectors
from quarry.engine.representation.base import DocumentVectors, IntegerSettings, Representation
from quarry.engine.representation.first_m import Cls, FirstM
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.pieces import Pieces
from quarry.engine.representation.single import Mean, Passages, Pooled
from quarry.formats.errors import InvalidDocument, InvalidSetting

__all__ = [
    "Given",
    "check_readable",
    "encoder_of_documents",
    "is_readable",
    "representation_for",
    "representation_from",
    "stored_representation",
]


@dataclass(frozen=True)
class Given(IntegerSettings):
    """The vectors that come with a document; there is no encoder whose vectors could be read."""

    name: ClassVar[str] = "given"

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Raise InvalidDocument: the document came without vectors."""
        del text, windows, normalize
        raise InvalidDocument("the document has no vectors, and the index has no encoder", expected="vectors")


_BY_NAME: dict[str, type[Pieces | KMeans | FirstM | Mean | Cls | Pooled | Passages]] = {
    each.name: each for each in (Pieces, KMeans, FirstM, Mean, Cls, Pooled, Passages)
}


def representation_from(
    source: str | Representation, settings: Mapping[str, object] | None = None
) -> Representation:
    """Return the representation that an index stores or an application requests.

    Args:
        source: ``pieces``, ``kmeans``, ``first_m``, ``mean``, ``cls``, ``pooled`` or ``passages``, or a
            representation, which is returned unchanged.
        settings: values for the fields of the named representation; the others have their defaults.

    Raises:
        InvalidSetting: an unknown name, an unknown field, a value out of range, settings beside a
            representation, or a source that is neither.
    """
    if isinstance(source, str):
        return _from_name(source, settings or {})
    if not isinstance(source, tuple(_BY_NAME.values())):
        raise InvalidSetting("not a representation", expected=_names(), actual=shown(source))
    if settings:
        raise InvalidSetting(
            "settings go with the name of a representation, not with a representation that has its own",
            actual=shown(dict(settings)),
        )
    return source


def stored_representation(name: str, settings: Mapping[str, object]) -> Representation:
    """Return the representation of an index, by the name and the settings that are stored with it.

    Raises:
        InvalidSetting: this version does not know it.
    """
    return Given() if name == Given.name else representation_from(name, settings)


def representation_for(encoder: Encoder) -> Representation:
    """Return the default for an encoder.

    It is what the encoder was trained for; else pieces of token vectors, if its vectors are means of these; else
    its own vectors of passages, if it cuts texts into passages; else of its windows together.

    Raises:
        InvalidSetting: it was trained for something unknown here.
    """
    if encoder.trained_representation is not None:
        return representation_from(encoder.trained_representation, trained_settings(encoder))
    if is_readable(Pieces, encoder):
        return Pieces()
    return Passages() if isinstance(encoder, PassageEncoder) else Pooled()


def is_readable(representation: Representation | type[Representation], encoder: Encoder) -> bool:
    """Return whether an encoder gives what a representation reads, and its queries can be compared with that."""
    if representation.reads not in encoder.vector_kinds:
        return False
    pooling = encoder_pooling(encoder)
    return pooling is None or representation.pooling in (None, pooling) or _is_trained_for(representation, encoder)


def _is_trained_for(representation: Representation | type[Representation], encoder: Encoder) -> bool:
    return representation.name == encoder.trained_representation


def check_readable(representation: Representation, encoder: Encoder) -> None:
    """Check that a representation makes sense for an encoder.

    Raises:
        InvalidSetting: the encoder does not give the vectors that it needs, or pools token vectors in another way;
            the message names both, and the representations that fit.
    """
    if is_readable(representation, encoder):
        return
    name, reads = representation.name, representation.reads
    raise InvalidSetting(
        f"the representation {name!r} reads {reads} vectors, which this encoder does not give"
        if reads not in encoder.vector_kinds
        else f"the representation {name!r} is for {representation.pooling} pooling, and this encoder has "
        f"{encoder_pooling(encoder)} pooling: its queries could not be compared with the documents",
        expected=" or ".join(each.name for each in _BY_NAME.values() if is_readable(each, encoder)),
        actual=name,
    )


def encoder_of_documents(encoder: Encoder, representation: Representation) -> Encoder:
    """Return the encoder whose windows a representation reads: windows are passages if it needs these."""
    if isinstance(representation, Passages) and isinstance(encoder, PassageEncoder):
        return encoder.in_passages(representation.tokens_per_passage)
    return encoder


def _from_name(name: str, settings: Mapping[str, object]) -> Representation:
    chosen = _BY_NAME.get(name)
    if chosen is None:
        raise InvalidSetting("unknown representation", expected=_names(), actual=shown(name))
    known = chosen().settings()
    unknown = sorted(map(str, settings.keys() - known.keys()))
    if unknown:
        raise InvalidSetting(
            f"unknown setting of the representation {name!r}",
            expected=", ".join(known) or "no setting",
            actual=", ".join(unknown),
        )
    return chosen(**settings)  # type: ignore[arg-type]


def _names() -> str:
    return f"one of {', '.join(_BY_NAME)}, or an instance of one of their classes"
