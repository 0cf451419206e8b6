"""Groups of documents through an encoder of many texts: to centroids on its device where that can be."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quarry.engine.encoding.batched_encoder import BatchedEncoder, PreparedText
from quarry.engine.encoding.token_vectors import TokenVectors
from quarry.engine.representation.base import DocumentVectors, Representation
from quarry.engine.representation.pieces import TextPieces

if TYPE_CHECKING:
    from quarry.engine.representation.on_device import DeviceRepresentation

__all__ = ["DocumentGroups", "PreparedDocument"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document ready to be run.

    Attributes:
        text: its tokens.
        pieces: where it is cut, where that is needed on the device.
    """

    text: PreparedText
    pieces: TextPieces | None


class DocumentGroups:
    """What an encoder of many texts makes of groups of documents.

    Args:
        encoder: runs them.
        representation: what is to become of them.
    """

    def __init__(self, encoder: BatchedEncoder, representation: Representation) -> None:
        self._encoder = encoder
        self._there: DeviceRepresentation | None = None
        if "token" in encoder.vector_kinds:
            from quarry.engine.representation.on_device import device_representation

            self._there = device_representation(representation)

    def prepare(self, text: str) -> PreparedDocument:
        """Tokenise a document; for any thread.

        Raises:
            InvalidDocument: the text holds a lone surrogate; the message names its position.
        """
        prepared = self._encoder.prepare(text)
        return PreparedDocument(prepared, self._there.plan(text, prepared) if self._there else None)

    def run(self, group: Sequence[PreparedDocument]) -> list[DocumentVectors | list[TokenVectors]]:
        """The centroids of each document, or its windows in main memory of which they are still to be made.

        A document without tokens has no windows. Where the device fails, for want of memory say, the log says so,
        and from then on centroids are made in main memory.
        """
        if self._there is not None:
            try:
                return self._represented(self._there, group)
            except RuntimeError as error:
                _log.warning("centroids are made in main memory, for the device failed: %s", error)
                self._there = None
        return [*self._encoder.run([each.text for each in group])]

    def _represented(
        self, there: DeviceRepresentation, group: Sequence[PreparedDocument]
    ) -> list[DocumentVectors | list[TokenVectors]]:
        texts = [each.text for each in group if each.text.bounds]
        plans = [each.pieces for each in group if each.text.bounds]
        if not texts:
            return [[] for _ in group]
        found = iter(there.represent(self._encoder.run_on_device(texts), texts, plans, self._encoder.normalize))
        return [next(found) if each.text.bounds else [] for each in group]
