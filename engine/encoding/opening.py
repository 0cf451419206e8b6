"""Opens encoders: bundles, and models of other libraries."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from quarry.engine.arguments import lone_surrogate, shown
from quarry.engine.bundled import BUNDLED, INSTALLABLE, bundled_path, default_bundle_path, not_installed
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.extensions import make_extension, registered_names
from quarry.engine.process.libraries import loading
from quarry.formats.errors import InvalidSetting
from quarry.formats.system_errors import checked_path
from quarry.formats.vectors.quantizer import MAX_DIM

__all__ = ["EncoderSource", "bundle_folder", "open_encoder", "portable_source"]

_MAX_NAME, _MAX_IDENTITY = 1024, 128  # characters, of the fields of a manifest


class _ModelOfTexts(Protocol):
    """A model of sentence-transformers or Model2Vec."""

    @property
    def encode(self) -> Callable[..., Any]: ...


class _ModelOfDocuments(Protocol):
    """A model of LangChain."""

    @property
    def embed_documents(self) -> Callable[..., Any]: ...
    @property
    def embed_query(self) -> Callable[..., Any]: ...


EncoderSource: TypeAlias = str | os.PathLike[str] | Encoder | _ModelOfTexts | _ModelOfDocuments | None
"""Objects and paths that `open_encoder` makes an encoder of."""


def open_encoder(source: EncoderSource = None, *, runtime: str = "auto", lean: bool = False) -> Encoder:
    """Open an encoder; its model is loaded when it is first used.

    A bundle that is opened several times in one process with the same settings is one encoder, whose memory is
    freed with the last reference; indexes drop theirs when they are closed.

    Args:
        source: the folder of an encoder bundle; the name of a bundled encoder (see `bundle_folder`), or of one
            that an installed package has registered; an encoder (returned unchanged); an embedding model of a
            library that states its name and the length of its vectors, of which a `FunctionEncoder` is made; or
            None for the bundled default.
        runtime: runtime of a bundle: "onnx-cpu", "onnx-cuda", "tensorrt", "torch", or "auto" for the fastest
            available one that suits the bundle's precision. "torch" also runs int8, whose weights
            it converts. The GPU runtimes have not been run on a GPU yet.
        lean: whether to save memory: on the CPU, for int8 or fp32, the weights are used in the mapped files of the
            bundle, which processes share. Otherwise weights of matrix products are copied to another layout, with
            which single queries take down to half the time and documents about 10 % less.

    Raises:
        ExtensionFailed: what is registered under the name cannot be used.
        InvalidSetting: there is no bundle at the path, the source is of another type or has an attribute that an
            index cannot store, or the runtime is unknown, or the runtime or `lean` does not support the bundle's
            precision.
        BackendUnavailable: the requested runtime cannot be used.
        FormatError: the bundle is damaged, or of an unknown version.
        AccessFailed: the operating system refuses access to a file of the bundle.
    """
    if isinstance(source, Encoder):
        _check_attributes(source)
        return source
    if source is not None and not isinstance(source, str | os.PathLike):
        return _encoder_of_functions(source)
    if source is not None and (made := _registered_encoder(checked_path(source, "encoder"))) is not None:
        return open_encoder(made, runtime=runtime, lean=lean)
    with loading("quarry"):
        from quarry.engine.encoding.runtimes.selection import open_bundle
        from quarry.formats.bundle.encoder import load_bundle

    folder = default_bundle_path() if source is None else bundle_folder(source)
    return open_bundle(load_bundle(folder), runtime, lean)


def _registered_encoder(path: Path) -> EncoderSource:
    """Return what an installed package has registered under a name; None if it has to be a path or a bundled one.

    Raises:
        InvalidSetting: it is the name of an encoder that is not installed, or nearly a name.
    """
    name = str(path)
    if name in BUNDLED or os.path.exists(path):  # noqa: PTH110  # false if access is refused
        return None
    missing = INSTALLABLE.keys() - registered_names("encoder")
    if name in missing:
        raise not_installed(name)
    return cast("EncoderSource", make_extension("encoder", path, [*BUNDLED, *missing]))


def bundle_folder(source: str | os.PathLike[str]) -> Path:
    """Return the folder of a bundle.

    Args:
        source: the folder, or the name of a bundled encoder, such as "quarry-minilm-l6". If the current folder has
            something of that name, the name means that.

    Raises:
        InvalidSetting: it is not a path.
    """
    path = checked_path(source, "encoder")
    if str(path) in BUNDLED and not os.path.exists(path):  # noqa: PTH110  # false if access is refused
        return bundled_path(str(path))
    return path


def portable_source(source: EncoderSource) -> EncoderSource:
    """Return what other processes, in other folders, open the same encoder of; a registered name stays one."""
    if not isinstance(source, str | os.PathLike):
        return source
    folder = bundle_folder(source)
    return str(source) if str(folder) in registered_names("encoder") and not folder.exists() else folder.absolute()


def _check_attributes(encoder: Encoder) -> None:
    """Raise unless an index can store the attributes of an encoder, which an application may have written."""
    dim, beta, kinds = encoder.dim, encoder.beta, encoder.vector_kinds
    is_beta = beta is None or (isinstance(beta, int | float) and 0 < beta < math.inf)
    is_kinds = isinstance(kinds, Set) and bool(kinds) and kinds <= {"token", "pooled"}
    for name, is_valid, expected in (
        ("name", _is_text(encoder.name, _MAX_NAME), f"a str of at most {_MAX_NAME} characters"),
        ("identity", _is_text(encoder.identity, _MAX_IDENTITY), f"a str of at most {_MAX_IDENTITY} characters"),
        ("dim", type(dim) is int and 1 <= dim <= MAX_DIM, f"an int from 1 to {MAX_DIM}"),
        ("normalize", isinstance(encoder.normalize, bool), "True or False"),
        ("beta", is_beta, "a positive number, or None"),
        ("vector_kinds", is_kinds, "a set with 'token', 'pooled' or both"),
    ):
        if not is_valid:
            actual = shown(getattr(encoder, name))
            raise InvalidSetting(f"{name} of the encoder is not valid", expected=expected, actual=actual)


def _is_text(value: object, most: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= most and lone_surrogate(value) is None


def _encoder_of_functions(source: object) -> Encoder:
    from quarry.engine.encoding.functions.function_encoder import FunctionEncoder
    from quarry.engine.encoding.functions.sources import is_embedding_source

    if not is_embedding_source(source):
        raise InvalidSetting(
            "not an encoder",
            expected="a bundle's folder, an embedding function or model, or an object with Encoder's methods",
            actual=type(source),
        )
    return FunctionEncoder(source)
