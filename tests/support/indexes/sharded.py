"""Sharded indexes for tests: documents of random words, divided by hash or into equal parts."""

from __future__ import annotations

import random
import secrets
from pathlib import Path

from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.formats.container.directory import Directory
from quarry.formats.shard_set import (
    ShardSet,
    shard_folder_names,
    shard_of,  # noqa: F401  # which tests use
)

ENCODER = WordEncoder()
WORDS = [f"w{number}" for number in range(120)]
_WEIGHTS = [1 / (number + 1) for number in range(len(WORDS))]


def random_text(generator: random.Random, n_words: int) -> str:
    """Return random words, of which the first are frequent and the last rare."""
    return " ".join(generator.choices(WORDS, k=n_words, weights=_WEIGHTS))


def random_documents(n: int, seed: int = 0) -> list[dict[str, object]]:
    """Return documents in the order of ids; the types of a metadata field differ between documents."""
    generator = random.Random(seed)
    return [
        {
            "id": f"document {number:04d}",
            "text": random_text(generator, generator.randint(3, 30)),
            "metadata": {"number": number % 7, "mixed": number if number % 50 else str(number)},
        }
        for number in range(n)
    ]


def random_queries(n: int, seed: int = 1) -> list[str]:
    """Return queries of frequent and rare words; some contain a word that is in no document."""
    generator = random.Random(seed)
    return [" ".join([*generator.choices(WORDS, k=3), *["nowhere"] * (number % 5 == 0)]) for number in range(n)]


def build_contiguous(documents: list[dict[str, object]], path: Path, n_shards: int) -> None:
    """Write a sharded index whose shards are consecutive parts of the documents: readers need no hash."""
    set_id = secrets.token_bytes(16)
    folders = shard_folder_names(set_id, n_shards)
    path.mkdir()
    for number, folder in enumerate(folders):
        part = documents[number * len(documents) // n_shards : (number + 1) * len(documents) // n_shards]
        engine.build(part, path / folder, encoder=ENCODER)
    ShardSet(generation=1, set_id=set_id, parent_id=bytes(16), folders=folders).commit(Directory(path))


def columns(hits: engine.Hits) -> list[tuple[str, float, float | None, float | None]]:
    """Return the columns of hits that must be equal to the last bit."""
    return [(hit.id, hit.score, hit.dense_score, hit.lexical_score) for hit in hits]
