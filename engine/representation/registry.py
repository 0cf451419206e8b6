"""Representations by name, the default for an encoder, and `Given`, for documents that come with vectors.

A file that names a representation of another package (an index, or a bundle) makes that package run, but gives it
no settings: those that the file has must be those of the object that is made without any, or that is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from quarry.engine.arguments import shown
from quarry.engine.encoding.encoder import (
    Encoder,
    PassageEncoder,
    TokenVectors,
    VectorKind,
    encoder_pooling,
    trained_settings,
)
from quarry.engine.extensions import extension_failed, load_extension, registered_names
from quarry.engine.representation.base import MAX_SETTING, DocumentVectors, IntegerSettings, Representation
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


_MAX_NAME = 64  # characters, of the field of a manifest


def representation_from(
    source: str | Representation, settings: Mapping[str, object] | None = None
) -> Representation:
    """Return the representation that an index stores or an application requests.

    Args:
        source: ``pieces``, ``kmeans``, ``first_m``, ``mean``, ``cls``, ``pooled`` or ``passages``, the name of one
            that an installed package has registered, or a representation, which is returned unchanged.
        settings: values for the fields of the named representation; the others have their defaults. Those of
            another package must be what it has without any.

    Raises:
        InvalidSetting: an unknown name, an unknown field, a value out of range, settings beside a
            representation, or a source that is neither.
        ExtensionFailed: what is registered under the name cannot be used.
    """
    if isinstance(source, str):
        return _from_name(source, settings or {}) if source in _BY_NAME else _registered(source, settings)
    if (problem := _problem(source)) is not None:
        expected = f"a name, or an object with the methods of Representation: {problem}"
        raise InvalidSetting("not a representation", expected=expected, actual=shown(source))
    if settings:
        raise InvalidSetting(
            "settings go with the name of a representation, not with a representation that has its own",
            actual=shown(dict(settings)),
        )
    return source


def stored_representation(
    name: str, settings: Mapping[str, object], given: Representation | None = None
) -> Representation:
    """Return the representation of an index, by the name and the settings that are stored with it.

    Args:
        name: the name of the representation.
        settings: its settings.
        given: an object that an application gave; it is returned if it has this name and these settings.

    Raises:
        InvalidSetting: this version and all installed packages do not know it, or its settings are not the
            default ones of another package.
        ExtensionFailed: what is registered under the name cannot be used.
    """
    if name == Given.name:
        return Given()
    if given is not None and (given.name, given.settings()) == (name, settings):
        return given
    if name not in _BY_NAME and name not in registered_names("representation"):
        raise InvalidSetting(
            f"the index has the representation {name!r}, which no installed package registers",
            expected="its package installed, or representation=... to open the index",
        )
    return representation_from(name, settings)


def representation_for(encoder: Encoder) -> Representation:
    """Return the default for an encoder.

    It is what the encoder was trained for; else pieces of token vectors, if its vectors are means of these; else
    its own vectors of passages, if it cuts texts into passages; else of its windows together.

    Raises:
        InvalidSetting: it was trained for something unknown here.
    """
    if encoder.trained_representation is not None:
        return representation_from(encoder.trained_representation, trained_settings(encoder) or None)
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
    chosen = _BY_NAME[name]
    known = chosen().settings()
    unknown = sorted(map(str, settings.keys() - known.keys()))
    if unknown:
        raise InvalidSetting(
            f"unknown setting of the representation {name!r}",
            expected=", ".join(known) or "no setting",
            actual=", ".join(unknown),
        )
    return chosen(**settings)  # type: ignore[arg-type]


def _registered(name: str, settings: Mapping[str, object] | None) -> Representation:
    kind = "representation"
    loaded: Any = load_extension(kind, name, _BY_NAME)
    try:
        made: Representation = loaded()
        problem = _problem(made) or (None if made.name == name else f"its name is {made.name!r}")
    except Exception as error:  # of the code of another package
        raise extension_failed(kind, name, f"{type(error).__name__}: {error}") from error
    if problem is not None:
        raise extension_failed(kind, name, problem)
    if settings is not None and made.settings() != settings:
        raise InvalidSetting(
            f"the stored settings of the representation {name!r} are not those that its package has by default",
            expected=f"representation=... with an object that has {dict(settings)}",
            actual=made.settings(),
        )
    return made


def _problem(value: object) -> str | None:
    """Return why an object is not a representation that an index can store; None if it is one."""
    name, settings = getattr(value, "name", None), getattr(value, "settings", None)
    if isinstance(value, type) or not callable(getattr(value, "represent", None)) or not callable(settings):
        return "it is not an object with the methods represent and settings"
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or name == Given.name:
        return f"its name is not a str of 1 to {_MAX_NAME} characters"
    if name in _BY_NAME and not isinstance(value, _BY_NAME[name]):
        return f"its name {name!r} is that of another representation"
    if getattr(value, "reads", None) not in get_args(VectorKind) or not hasattr(value, "pooling"):
        return "its attribute reads is neither 'token' nor 'pooled', or pooling is missing"
    stored = settings()
    if not isinstance(stored, dict) or any(type(each) is not int for each in stored.values()):
        return "its settings are not a dict of integers"
    return None if all(1 <= each <= MAX_SETTING for each in stored.values()) else "a setting is out of range"
