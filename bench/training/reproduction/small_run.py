"""A training run of minutes: what the runs of all reproductions have in common."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from quarry.training.data.evaluation_texts import EXCLUDED_ARTICLES
from quarry.training.data.example_store import ExampleStore
from quarry.training.data.refusal import Refusal
from quarry.training.data.sources import SourceSettings, open_source_store
from quarry.training.run import train

__all__ = ["SmallRun", "Table"]

Table = Mapping[str, object]
"""A table of a recipe."""


@dataclass(frozen=True, kw_only=True)
class SmallRun:
    """Training on a part of a collection's split train.

    Attributes:
        checkpoint: to start from.
        data: folder of the collection.
        steps: of training.
        batch_size: queries in a batch.
        seed: of batches and of everything that starts at random.
        n_documents: of the split that are trained on; None: all.
        id_prefix: of their ids.
        held_out: articles that are not trained on.
        group_size: examples of one article that follow each other in a batch.
        query_tokens: most tokens of a query.
        document_tokens: most tokens of a document.
        frozen_layers: of the network, from below, that stay unchanged, with its embeddings; None: everything
            is trained.
        learning_rate: of the network.
        precision: of matrix products.
    """

    checkpoint: Path
    data: Path
    steps: int
    batch_size: int
    seed: int = 0
    n_documents: int | None = None
    id_prefix: str = ""
    held_out: int = 40
    group_size: int = 8
    query_tokens: int = 24
    document_tokens: int = 64
    frozen_layers: int | None = 0
    learning_rate: float = 5e-5
    precision: str = "bf16"

    def with_seed(self, seed: int) -> SmallRun:
        """The same run with another seed."""
        return replace(self, seed=seed)

    def open_store(self, folder: Path) -> ExampleStore:
        """Read the examples into a folder, or open them there."""
        return open_source_store(SourceSettings(**self._source()), folder / self.data.name, Refusal.shipped())  # type: ignore[arg-type]

    def train(self, out: Path, objective: Table, *, prepared: Path | None = None, **tables: Table) -> Path:
        """Train, or resume, and return the folder of the trained checkpoint.

        Args:
            out: folder of the run.
            objective: table of the recipe.
            prepared: folder with what the run would prepare first: data, quantizer, codes.
            **tables: more tables of the recipe: ``compression``.
        """
        recipe = self._recipe({"objective": objective, **tables})
        if (out / "final").is_dir() and (out / "recipe.toml").read_text("utf-8") == recipe:
            return out / "final"
        if prepared is not None and not (out / "recipe.toml").is_file():
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(prepared, out)
            (out / "recipe.toml").write_text(recipe, "utf-8")
        path = out.with_name(f"{out.name}.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(recipe, "utf-8")
        return train(path, out)

    def _source(self) -> dict[str, object]:
        source: dict[str, object] = {
            "name": self.data.name,
            "kind": "beir",
            "path": self.data.resolve(),
            "exclude_titles": EXCLUDED_ARTICLES,
            "held_out": self.held_out,
            "id_prefix": self.id_prefix,
            "group_size": self.group_size,
        }
        return source if self.n_documents is None else {**source, "limit": self.n_documents}

    def _recipe(self, tables: Mapping[str, Table]) -> str:
        layers = [] if self.frozen_layers is None else range(self.frozen_layers)
        frozen = [] if self.frozen_layers is None else ["embeddings.", *(f"encoder.layer.{n}." for n in layers)]
        found: dict[str, Table] = {
            "[model]": {
                "checkpoint": self.checkpoint.resolve(),
                "frozen": frozen,
                "precision": self.precision,
                "query_tokens": self.query_tokens,
                "document_tokens": self.document_tokens,
            },
            "[[data]]": self._source(),
            "[training]": {
                "steps": self.steps,
                "batch_size": self.batch_size,
                "chunk_size": self.batch_size,
                "seed": self.seed,
                "checkpoint_every": 50,
            },
            "[optimizer]": {"learning_rate": self.learning_rate, "warmup_steps": self.steps // 10},
            "[output]": {"name": "reproduction", "licence": "unknown"},
            **{f"[{name}]": table for name, table in tables.items()},
        }
        return "\n".join(
            f"{name}\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
            for name, table in found.items()
        )


def _toml(value: object) -> str:
    return json.dumps(str(value) if isinstance(value, Path) else value)
