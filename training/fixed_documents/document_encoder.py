"""The encoder that fixed documents have their vectors from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.opening import open_encoder
from quarry.formats.errors import InvalidSetting
from quarry.training.data.example_store import ExampleStore

__all__ = ["open_document_encoder"]

_N_COMPARED = 16  # documents
# Of token vectors: those of an int8 graph and of the float32 weights it was made of have .989, those of an encoder
# and of the weights that 900 steps of training started from .984.
_LEAST_COSINE = 0.986


def open_document_encoder(path: Path, checkpoint: Encoder, store: ExampleStore) -> Encoder:
    """Open the bundle that documents are encoded with, if its weights are those that queries are trained from.

    The bundle of the run encodes documents with the weights of the checkpoint, so queries have to be trained for
    vectors of these.

    Args:
        path: of the bundle.
        checkpoint: the encoder before training.
        store: documents that both encode.

    Raises:
        InvalidSetting: the encoders have vectors of different lengths, read texts differently, or have token
            vectors whose mean cosine is below that of two graphs of the same weights.
    """
    encoder = open_encoder(path)
    if encoder.dim != checkpoint.dim:
        raise InvalidSetting(
            "the encoder of the documents has vectors of another length",
            path=path,
            expected=checkpoint.dim,
            actual=encoder.dim,
        )
    cosines = []
    for number in range(min(_N_COMPARED, store.n_documents)):
        text = store.document(number)
        found, wanted = (
            np.concatenate([each.values for each in one.windows(text)]) for one in (encoder, checkpoint)
        )
        if found.shape != wanted.shape:
            raise InvalidSetting(
                "the encoder of the documents reads texts otherwise than the recipe says",
                path=path,
                expected="the window and prefixes of [model]",
                actual=f"{len(found)} token vectors of a document, not {len(wanted)}",
            )
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
        cosines.append(np.einsum("ij,ij->i", found, wanted) / np.maximum(lengths, 1e-12))
    mean = float(np.concatenate(cosines).mean()) if cosines else 1.0
    if mean < _LEAST_COSINE:
        raise InvalidSetting(
            "the encoder of the documents has other weights, or prefixes, than [model]",
            path=path,
            expected=f"token vectors with a mean cosine of at least {_LEAST_COSINE} to the checkpoint's",
            actual=round(mean, 4),
        )
    return encoder
