"""The sources of a recipe: read once into stores, opened again when training resumes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from quarry.formats.bundle.folder import file_sha256
from quarry.formats.errors import InvalidSetting
from quarry.training.data.beir import BeirPart, read_beir, read_titles
from quarry.training.data.example_store import ExampleStore, ExampleWriter
from quarry.training.data.json_lines import read_pair_titles, read_pairs
from quarry.training.data.refusal import Refusal

__all__ = ["HELD_OUT", "SourceSettings", "open_held_out_store", "open_source_store"]

HELD_OUT = "-held-out"
"""Follows the name of a source in that of its part for validation."""

_KINDS = ("beir", "pair-titles", "pairs", "titles")
_FOREIGN_TO = {
    "pairs": ("exclude_titles", "held_out", "id_prefix", "limit"),
    "pair-titles": ("held_out", "id_prefix", "limit"),
}
"""The settings of collections that a kind does not have."""
_NOT_STORED = ("path", "batch_size", "by_document")
"""The settings that a store does not depend on, so that data may be moved, for example."""
_NAME = re.compile(r"[^./\\\s][^/\\\x00-\x1f]{0,63}(?<!\.partial)")  # of a folder


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """One ``[[data]]`` table of a recipe.

    Attributes:
        name: the name of the source.
        kind: ``beir``: the judged queries of a collection; ``titles``: the titles of a collection's documents as
            queries, each for all documents that have it; ``pairs``: JSON Lines of pairs or triples;
            ``pair-titles``: the titles in such a file as queries, each for all positives that have it.
        path: a collection's folder, or a file.
        weight: its share of the steps, above 0.
        split: whose judgments, of ``beir``.
        exclude_titles: articles to leave out, of collections and ``pair-titles``.
        held_out: articles kept for validation, of ``beir``.
        id_prefix: take only documents whose id begins so, of collections.
        limit: maximum number of documents of a collection.
        cluster_size: group passages by k-means clusters of about so many; 0: by article.
        batch_size: queries in a batch; 0: as many as ``[training]`` says.
        group_size: examples of one group that follow each other in a batch.
        by_document: whether the examples of one document follow each other in a group; see `BatchSource`.
        licence: the license of the texts, for the model card.
        origin: their source, for the model card.
    """

    name: str
    kind: str
    path: Path
    weight: float = 1.0
    split: str = "train"
    exclude_titles: tuple[str, ...] = ()
    held_out: int = 0
    id_prefix: str = ""
    limit: int | None = None
    cluster_size: int = 0
    batch_size: int = 0
    group_size: int = 8
    by_document: bool = False
    licence: str = "unknown"
    origin: str = "unknown"

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise InvalidSetting(
                f"unknown kind of the source {self.name!r}", expected=" or ".join(_KINDS), actual=repr(self.kind)
            )
        if not _NAME.fullmatch(self.name):
            raise InvalidSetting(
                "the name of a source is not valid",
                expected="64 characters of a folder's name at most, no point or space first, not .partial last",
                actual=repr(self.name),
            )
        is_limited = self.limit is None or self.limit > 0
        has_batches = self.batch_size == 0 or self.batch_size > 1
        has_sizes = min(self.cluster_size, self.held_out) >= 0 and has_batches
        in_range = 0 < self.weight < math.inf and has_sizes and is_limited
        if not in_range:
            raise InvalidSetting(
                f"a number of the source {self.name!r} is out of range",
                expected="weight above 0 and finite, cluster_size and held_out 0 or more, limit 1 or more, "
                "batch_size 0 or from 2",
            )
        if self.group_size < 1 or (self.by_document and self.group_size == 1):
            raise InvalidSetting(
                f"group_size of the source {self.name!r} is out of range",
                expected="2 or more with by_document" if self.by_document else "1 or more",
                actual=self.group_size,
            )
        if self.kind in _FOREIGN_TO:
            foreign = [name for name in _FOREIGN_TO[self.kind] if getattr(self, name)]
            foreign += ["split"] if self.split != "train" else []
            if foreign:
                raise InvalidSetting(
                    f"the source {self.name!r} of the kind {self.kind} has a setting of collections",
                    expected=" or ".join(
                        kind for kind in _KINDS if foreign[0] not in _FOREIGN_TO.get(kind, ("split",))
                    ),
                    actual=foreign[0],
                )

    @property
    def can_validate(self) -> bool:
        """Whether it keeps judged queries and their articles for validation."""
        return self.kind == "beir" and self.held_out > 0


def open_source_store(settings: SourceSettings, folder: Path, refusal: Refusal) -> ExampleStore:
    """Read a source into a folder, or open the store that was written there before.

    Raises:
        InvalidSetting: the files or the settings are not those of the store, a file is missing, or the source
            holds evaluation data.
        InvalidDocument: a line is malformed.
    """
    part = BeirPart(
        settings.path,
        settings.exclude_titles,
        settings.held_out,
        id_prefix=settings.id_prefix,
        limit=settings.limit,
    )
    readers: dict[str, Callable[[ExampleWriter], None]] = {
        "beir": lambda writer: read_beir(part, settings.split, writer),
        "titles": lambda writer: read_titles(part, writer),
        "pairs": lambda writer: read_pairs(settings.path, writer),
        "pair-titles": lambda writer: read_pair_titles(settings.path, settings.exclude_titles, writer),
    }
    return _store(settings, folder, refusal, readers[settings.kind])


def open_held_out_store(settings: SourceSettings, folder: Path) -> ExampleStore:
    """Read the held-out articles of a source, for validation; evaluation data is not looked for.

    Raises:
        InvalidSetting: the source has no held-out articles; otherwise as `open_source_store`.
    """
    if not settings.can_validate:
        raise InvalidSetting(
            f"the source {settings.name!r} cannot validate", expected="kind beir with held_out above 0"
        )
    part = BeirPart(settings.path, settings.exclude_titles, settings.held_out, True, settings.id_prefix)
    return _store(settings, folder, Refusal.of_nothing(), lambda writer: read_beir(part, settings.split, writer))


def _store(
    settings: SourceSettings, folder: Path, refusal: Refusal, read: Callable[[ExampleWriter], None]
) -> ExampleStore:
    chosen = {name: value for name, value in asdict(settings).items() if name not in _NOT_STORED}
    about = {"settings": json.loads(json.dumps(chosen)), "files": _digests(settings)}
    if (folder / "about.json").is_file():
        store = ExampleStore(folder)
        changed = [name for name, value in about.items() if store.about.get(name) != value]
        if changed:
            raise InvalidSetting(
                f"the {changed[0]} of the source {settings.name!r} changed since this run began",
                path=folder,
                expected=store.about.get(changed[0]),
                actual=about[changed[0]],
            )
        return store
    with ExampleWriter(folder, refusal) as writer:
        read(writer)
        return writer.finish(about)


def _digests(settings: SourceSettings) -> dict[str, str]:
    if settings.path.is_file():
        return {settings.path.name: file_sha256(settings.path)}
    if not settings.path.is_dir():
        raise InvalidSetting(f"the source {settings.name!r} is not there", path=settings.path)
    named = sorted(path for stem in ("corpus", "queries") for path in settings.path.glob(f"{stem}.jsonl*"))
    judged = [settings.path / "qrels" / f"{settings.split}.tsv"] if settings.kind == "beir" else []
    return {path.name: file_sha256(path) for path in [*named, *judged] if path.is_file()}
