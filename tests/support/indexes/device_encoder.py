"""An encoder for actors of Ray that reserve a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from support.indexes.word_encoder import WordEncoder

from quarry.engine.encoding.encoder import TokenVectors


@dataclass(frozen=True)
class DeviceEncoder(WordEncoder):
    """`WordEncoder`, except that it encodes documents only if Ray has reserved the first device."""

    def windows(self, text: str) -> Iterator[TokenVectors]:
        import ray

        assert ray.get_gpu_ids() == [0]
        return super().windows(text)
