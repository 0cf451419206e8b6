"""Coverage: which shards of a sharded index a search reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Coverage"]


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Which shards of an index answered a search, and how many documents they hold.

    Attributes:
        n_shards: shards of the index.
        missing: folder of each shard that did not answer, and the reason.
        n_documents: documents of the whole index.
        n_reached: documents of the shards that answered.
        generations: of an index served with several copies of its shards: for each shard whose copies are at
            different generations, these, ascending; the answer is from one of them.
    """

    n_shards: int
    n_documents: int
    n_reached: int
    missing: Mapping[str, str] = field(default_factory=dict)
    generations: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every shard answered."""
        return not self.missing

    def to_dict(self) -> dict[str, object]:
        """Return all of it as plain values, for JSON."""
        return {
            "n_shards": self.n_shards,
            "n_documents": self.n_documents,
            "n_reached": self.n_reached,
            "missing": dict(self.missing),
            **(
                {"generations": {name: list(each) for name, each in self.generations.items()}}
                if self.generations
                else {}
            ),
        }
