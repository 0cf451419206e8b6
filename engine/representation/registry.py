"""Representations by name, the default for an encoder, and `Given`, for documents that come with vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from quarry.engine.arguments import shown
from quarry.engine.encoding.token_vectors import TokenVectors, VectorKind
from quarry.engine.representation.base import DocumentVectors, IntegerSettings, Representation
from quarry.engine.representation.first_m import Cls, FirstM
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.pieces import Pieces
from quarry.engine.representation.single import Mean, Pooled
from quarry.formats.errors import InvalidDocument, InvalidSetting

__all__ = ["Given", "check_readable", "representation_for", "representation_from", "stored_representation"]


@dataclass(frozen=True)
class Given(IntegerSettings):
    """The vectors that come with a document; there is no encoder whose vectors could be read."""

    name: ClassVar[str] = "given"

    def represent(self, text: str, windows: Iterable[TokenVectors], normalize: bool) -> DocumentVectors:
        """Raise InvalidDocument: the document came without vectors."""
        del text, windows, normalize
        raise InvalidDocument("the document has no vectors, and the index has no encoder", expected="vectors")


_BY_NAME: dict[str, type[Pieces | KMeans | FirstM | Mean | Cls | Pooled]] = {
    each.name: each for each in (Pieces, KMeans, FirstM, Mean, Cls, Pooled)
}


def representation_from(
    source: str | Representation, settings: Mapping[str, object] | None = None
) -> Representation:
    """Return the representation that an index stores or an application requests.

    Args:
        source: ``pieces``, ``kmeans``, ``first_m``, ``mean``, ``cls`` or ``pooled``, or a representation, which
            is returned unchanged.
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


def representation_for(
    encoder_kinds: frozenset[VectorKind], trained_for: str | None, settings: Mapping[str, object] | None = None
) -> Representation:
    """Return the default for an encoder: what it was trained for, else pieces of token vectors, else pooled.

    Args:
        encoder_kinds: the vectors that it gives.
        trained_for: name of the representation that it was trained for, or None.
        settings: settings that it was trained for.

    Raises:
        InvalidSetting: it was trained for something unknown here.
    """
    if trained_for is None:
        return representation_from("pieces" if "token" in encoder_kinds else "pooled")
    return representation_from(trained_for, settings)


def check_readable(representation: Representation, encoder_kinds: frozenset[VectorKind]) -> None:
    """Check that the encoder gives the vectors that a representation needs.

    Raises:
        InvalidSetting: it does not; the message names representations that fit.
    """
    if representation.reads not in encoder_kinds:
        fitting = [name for name, each in _BY_NAME.items() if each.reads in encoder_kinds]
        raise InvalidSetting(
            f"the representation {representation.name!r} reads {representation.reads} vectors, "
            "which this encoder does not give",
            expected=" or ".join(fitting),
            actual=representation.name,
        )


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
