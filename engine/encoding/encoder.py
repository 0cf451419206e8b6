"""What an encoder is to the engine, and how one is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from quarry.engine.encoding.token_vectors import TokenVectors, VectorKind
from quarry.engine.process.libraries import loading
from quarry.formats.errors import InvalidSetting
from quarry.formats.system_errors import checked_path

__all__ = ["Encoder", "open_encoder"]


@runtime_checkable
class Encoder(Protocol):
    """Turns text into vectors; safe to use from several threads at once.

    The vectors of a text depend on that text alone: not on what else is being encoded, in which order, or on how
    many threads.

    Attributes:
        name: name for messages and `stats`.
        identity: identity of the vectors; only vectors of encoders with the same identity may be compared.
        dim: length of a vector.
        normalize: whether query vectors have L2 norm 1, and centroids of documents are scaled to it.
        beta: inverse temperature of the softmax aggregation that it was trained with; None: the maximum is taken.
        vector_kinds: "token" if windows have token vectors (`TokenVectors.values`), "pooled" if they have a pooled
            vector (`TokenVectors.pooled`); at least one of the two.
        trained_representation: name of the representation that it was trained for, or None.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def identity(self) -> str: ...  # noqa: D102
    @property
    def dim(self) -> int: ...  # noqa: D102
    @property
    def normalize(self) -> bool: ...  # noqa: D102
    @property
    def beta(self) -> float | None: ...  # noqa: D102
    @property
    def vector_kinds(self) -> frozenset[VectorKind]: ...  # noqa: D102
    @property
    def trained_representation(self) -> str | None: ...  # noqa: D102

    def windows(self, text: str) -> Iterator[TokenVectors]:
        """Encode a document window after window, so that memory holds one window's vectors at a time.

        Some representations keep the windows of a document until its end: each has arrays of its own.

        Offsets are code points of ``text``. A text without tokens (empty, blank, only control characters) has
        no windows: whether that is an error is for the caller to say.

        Raises:
            InvalidDocument: the text holds a lone surrogate; the message names its position.
        """
        ...

    def encode_query(self, text: str) -> npt.NDArray[np.float32]:
        """Encode a query: (dim,) float32, with L2 norm 1 where `normalize`.

        Of a query longer than the encoder's window, the windows' vectors are averaged, weighted by their tokens.

        Raises:
            InvalidQuery: the text has no token, or holds a lone surrogate.
        """
        ...


def open_encoder(
    source: str | os.PathLike[str] | Encoder | None = None, *, runtime: str = "auto", lean: bool = False
) -> Encoder:
    """Open an encoder; its model is loaded when it is first used.

    Who opens the same bundle with the same settings in one process gets the same encoder. Its memory is free when
    the last reference to it is gone; indexes drop theirs when they are closed.

    Args:
        source: the folder of an encoder bundle, an encoder (returned as it is), or None for the bundled default.
        runtime: what runs a bundle: "onnx-cpu", "onnx-cuda", "tensorrt", or "auto" for the best that is there and
            fits the bundle's precision. Those for GPUs have not been run on one yet.
        lean: for little memory: on the CPU, in int8 or fp32, the weights are used where they lie in the bundle's
            files, which all processes share and the system takes back when it needs memory. Without, those of
            products are copied into a layout that single queries run up to twice as fast in, documents some 10 %.

    Raises:
        InvalidSetting: there is no bundle at the path, the source is none of the above, or the runtime is unknown
            or not for the bundle's precision, or `lean` is not for it.
        BackendUnavailable: a runtime that was asked for by name cannot be used.
        FormatError: the bundle is damaged or of a version that this one does not read.
        AccessFailed: the system refuses a file of the bundle.
    """
    if isinstance(source, Encoder):
        return source
    if source is not None and not isinstance(source, str | os.PathLike):
        raise InvalidSetting(
            "not an encoder",
            expected="a bundle's folder or an object with Encoder's methods",
            actual=type(source),
        )
    with loading("quarry"):
        from quarry.engine.bundled import default_bundle_path
        from quarry.engine.encoding.runtimes import open_bundle
        from quarry.formats.bundle.encoder import load_bundle

    folder = default_bundle_path() if source is None else checked_path(source, "encoder")
    return open_bundle(load_bundle(folder), runtime, lean)
