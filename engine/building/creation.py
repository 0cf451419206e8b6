"""An index that is created when it is opened, unless it exists: then it must have the settings that were given."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from quarry.engine.building.builder import checked_shards, open_new_writer
from quarry.engine.building.plan import BuildPlan
from quarry.engine.encoding.encoder import Encoder
from quarry.engine.indexer.build_folder import BuildFolder
from quarry.engine.options import BuildKeywords, BuildOptions, OpenOptions
from quarry.engine.representation.base import Representation
from quarry.engine.scoring.metric import Metric
from quarry.formats.errors import IndexExists, IndexNotFound, InvalidSetting
from quarry.formats.manifest import IndexSettings

__all__ = ["NewIndex"]

T = TypeVar("T")

_ATTEMPTS = 10  # each fails only if the index was deleted in between
_LEAST_WAIT_S = 10.0
"""Seconds to wait for another process that creates the index; creating an empty one takes milliseconds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NewIndex:
    """The index that `Engine.open` creates if there is none.

    Attributes:
        encoder: as in `build`; not used with `dim`.
        representation: as in `build`.
        shards: as in `build`.
        dim: as in `build`.
        resources: threads and thresholds.
        settings: the keywords of `quarry.engine.options.BuildOptions` that the caller gave.
        wait_s: seconds to wait for another writer.

    Raises:
        InvalidSetting: a setting is out of range or unknown.
    """

    encoder: Encoder | None
    representation: Representation | None
    shards: int | None
    dim: int | None
    resources: OpenOptions
    settings: BuildKeywords
    wait_s: float
    _wanted: dict[str, object] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        checked_shards(self.shards)
        options = BuildOptions.of(self.settings)
        self._wanted.update({name: getattr(options, name) for name in self.settings})
        if options.language is None:
            self._wanted.pop("language", None)
        if options.code_bytes is None:
            self._wanted.pop("code_bytes", None)
        if options.metric is None:
            self._wanted.pop("metric", None)
        if self.dim is not None:
            self._wanted["dim"] = self.dim

    def open(self, path: Path, opened: Callable[[], T]) -> T:
        """Open the index, and create it before if there is none.

        Args:
            path: folder of the index.
            opened: opens the index and returns it.

        Raises:
            IndexLocked: another process was building an index there for longer than the wait.
            QuarryError: as `opened` and `build` raise it.
        """
        for _ in range(_ATTEMPTS):
            try:
                return opened()
            except IndexNotFound:
                self._create(path)
        return opened()

    def _create(self, path: Path) -> None:
        """Create the index, without documents, unless another process or thread does so at the same time."""
        encoder = self.encoder if self.dim is None else None
        plan = BuildPlan.of(encoder, self.representation, self.settings, self.dim)
        folder = BuildFolder(path.absolute(), overwrite=False, wait_s=max(self.wait_s, _LEAST_WAIT_S))
        with (
            contextlib.suppress(IndexExists),
            folder,
            open_new_writer(folder, plan, self.resources, self.shards) as writer,
        ):
            writer.commit()

    def check(
        self, settings: IndexSettings, metric: Metric, n_shards: int | None, path: str | os.PathLike[str]
    ) -> None:
        """Check that an index has the settings that were given; those that were not given may have any value.

        Args:
            settings: the settings of the index.
            metric: the metric of the index.
            n_shards: number of its shards; None: it is not sharded.
            path: folder of the index, for messages.

        Raises:
            InvalidSetting: one of them has another value; the message names it.
        """
        wanted = dict(self._wanted)
        cut = settings.passages
        has = {name: getattr(settings, name, None) for name in wanted} | {"metric": metric.name, "dim": metric.dim}
        has |= {"passage_words": cut and cut.max_words, "passage_overlap": cut.overlap if cut else 0}
        if self.shards is not None:
            wanted["shards"], has["shards"] = self.shards, n_shards or "no shards"
        for name, value in wanted.items():
            if has[name] != value:
                raise InvalidSetting(
                    f"the index exists, with another value of {name}",
                    path=os.fspath(path),
                    expected=value,
                    actual=has[name],
                )
