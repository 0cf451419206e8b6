"""The manifest: the files of one generation of an index, and the settings fixed when the index was created.

``MANIFEST-<generation>`` is the only root. A commit writes all other files, makes them durable, and then renames a
finished manifest to its name; the highest generation is the index. A damaged manifest is an error.
"""

from __future__ import annotations

import errno
import math
import reprlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from quarry.formats.container.directory import Directory
from quarry.formats.container.fields import Fields
from quarry.formats.container.layout import (
    AUTO_LANGUAGE_FEATURE,
    FIELD_WEIGHTS_FEATURE,
    MEAN_FEATURE,
    METRIC_FEATURE,
    PASSAGE_SETTINGS_FEATURE,
    SEARCH_DEFAULTS_FEATURE,
    SEARCHABLE_FEATURE,
    SYNONYMS_FEATURE,
    FileKind,
    FileRecord,
)
from quarry.formats.container.reader import ContainerReader
from quarry.formats.errors import AccessFailed, CorruptFile, IndexNotFound
from quarry.formats.root_file import MAX_GENERATION, RootFile
from quarry.formats.vectors.centroids import CENTROID_TYPES
from quarry.formats.vectors.quantizer import MAX_DIM

__all__ = [
    "AUTO_LANGUAGE",
    "LANGUAGE_MARK",
    "MAX_FIELD_WEIGHT",
    "MAX_PASSAGE_WORDS",
    "MAX_SEARCHABLE",
    "MAX_SYNONYMS",
    "METRICS",
    "EncoderRecord",
    "IndexSettings",
    "Manifest",
    "MetricRecord",
    "PassageRecord",
    "SegmentRecord",
    "find_latest_generation",
    "parse_languages",
    "use_newest",
    "with_documents",
]

METRICS = ("ip", "cosine", "l2")
AUTO_LANGUAGE = "auto"  # that of each document; its passages then have a term that names it
LANGUAGE_MARK = "\x01"  # at the beginning of that term
MAX_PASSAGE_WORDS = 1 << 16
MAX_SEARCHABLE = 64
MAX_FIELD_WEIGHT = 100  # a frequency takes as many bits (SPEC, 5)
MAX_SYNONYMS = 10_000  # words
T = TypeVar("T")

_MAX_SEGMENTS = 1 << 16
_MAX_DOCS = 1 << 32
_MAX_CENTROIDS = 1 << 16
_MAX_NORM = 1e30  # of a vector; larger numbers are damage
_L2_DIMS = 3  # dimensions that stored vectors have more, at least
_MAX_ATTEMPTS = 100  # a commit may delete files between the reading of their manifest and their opening
_MAX_LISTINGS = 5  # listing a large folder is not atomic: during a commit both manifests may be missing
_MAX_OLD_LISTINGS = 20  # or show only an old one that Windows kept: up to half of them if commits never pause


@dataclass(frozen=True, kw_only=True)
class EncoderRecord:
    """The encoder of the vectors.

    Attributes:
        name: for error messages.
        identity: digest that every variant (precision, runtime) of one encoder shares.
        normalize: whether its vectors have L2 norm 1.
    """

    name: str
    identity: str
    normalize: bool


@dataclass(frozen=True, kw_only=True)
class MetricRecord:
    """The metric of an index, if it does not follow from its encoder.

    Attributes:
        name: "ip", "cosine" or "l2".
        dim: length of a vector as users know it, up to the length of a stored one.
        norm: for "l2" in older indexes the norm of the reduction to inner products (see
            `quarry.formats.vectors.distances`). Otherwise 1.
        mean: `dim` float32 numbers as bytes, which were subtracted from all stored vectors; None: none.
    """

    name: str
    dim: int
    norm: float = 1.0
    mean: bytes | None = None

    @property
    def by_distance(self) -> bool:
        """Whether scores are computed from distances: those of cosines without a mean are inner products."""
        return self.name == "l2" or (self.name == "cosine" and self.mean is not None)


@dataclass(frozen=True, kw_only=True)
class PassageRecord:
    """How documents are cut into passages.

    Attributes:
        max_words: most words of a passage, from 1.
        overlap: words at the end of a passage that the next one begins with, less than half of `max_words`.
    """

    max_words: int
    overlap: int


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """The settings that are fixed when an index is created.

    Attributes:
        dim: length of a stored vector.
        representation: name of the representation (see `quarry.engine.representation`).
        representation_settings: its integer settings.
        beta: inverse temperature of the softmax aggregation, or None for the maximum.
        centroids: how centroids are stored: "int8", "float16", or "none" (codes only).
        code_bytes: bytes of a PQ code, 0 for none.
        language: the language of the analyzer (see `quarry.engine.analysis.analyzer`), or "auto".
        analysis_rules: version of the analyzer's rules.
        k1: the parameter k1 of BM25.
        b: the parameter b of BM25.
        seed: the seed of all random choices.
        metric: the metric; None: "cosine" if the vectors of the encoder have norm 1, otherwise "ip".
        passages: how documents are cut into passages; None: a document is one passage.
        searchable: paths of metadata whose values have terms, too, or "id"; each once, ascending.
        synonyms: words with the texts that stand for them in queries, ascending by the words; they may be changed.
        field_weights: how often the terms of "title", or of a searchable path, count, if more than once.
        languages: with "auto" the languages of the documents, and the number of their passages, as the postings of
            the segments say; not stored.
        analysis: names the analysis of queries: the language, and with "auto" those of the documents with the bits
            of these numbers ("auto:english=9,german=2"); not stored.
    """

    dim: int
    representation: str
    representation_settings: dict[str, int]
    beta: float | None
    centroids: str
    code_bytes: int
    language: str
    analysis_rules: int
    k1: float
    b: float
    seed: int
    metric: MetricRecord | None = None
    passages: PassageRecord | None = None
    searchable: tuple[str, ...] = ()
    synonyms: tuple[tuple[str, tuple[str, ...]], ...] = ()
    field_weights: dict[str, int] = field(default_factory=dict)
    languages: Mapping[str, int] = field(default_factory=dict, compare=False)
    analysis: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.analysis:
            object.__setattr__(self, "analysis", self.language)

    def with_languages(self, n_passages: Mapping[str, int]) -> IndexSettings:
        """Return the settings with the languages of the documents, given numbers of passages above 0."""
        known = ",".join(f"{language}={n.bit_length()}" for language, n in sorted(n_passages.items()))
        analysis = f"{self.language}:{known}" if known else self.language
        return replace(self, languages=dict(n_passages), analysis=analysis)


def parse_languages(analysis: str) -> dict[str, int]:
    """Return the languages in `IndexSettings.analysis`, ascending, with about the number of their passages."""
    pairs = (each.partition("=") for each in analysis.partition(":")[2].split(",") if each)
    return {language: (1 << int(bits)) - 1 for language, _, bits in pairs}


@dataclass(frozen=True, kw_only=True)
class SegmentRecord:
    """The entry of a segment in a manifest.

    Attributes:
        file: the segment file.
        tombstones: the file of its deleted documents; None: none is deleted.
        quantizer: name of the quantizer file its codes were made with, or "".
        n_docs: documents in the file, deleted ones included.
        n_deleted: how many of them are deleted.
    """

    file: FileRecord
    tombstones: FileRecord | None
    quantizer: str
    n_docs: int
    n_deleted: int

    @property
    def n_live(self) -> int:
        """Number of documents that are not deleted."""
        return self.n_docs - self.n_deleted

    def file_names(self) -> set[str]:
        """Return the names of its files, without the quantizer."""
        return {self.file.name, self.tombstones.name} if self.tombstones else {self.file.name}


@dataclass(frozen=True, kw_only=True)
class Manifest(RootFile):
    """One committed state of an index.

    Attributes:
        generation: number of the commit, from 1.
        commit_id: 16 random bytes.
        parent_id: commit_id of the generation before, or zeros.
        settings: fixed at creation, or when all documents are encoded again.
        encoder: the encoder of the vectors.
        segments: oldest first.
        quantizers: the quantizer files that the segments name.
        dense_weight: weight of the dense scores in linear fusion that searches use by default, chosen for this
            index; None: none was chosen.
        unknown_features: bits of the features that a writer must support and this version does not.
    """

    prefix: ClassVar[str] = "MANIFEST"
    kind: ClassVar[FileKind] = FileKind.MANIFEST
    title: ClassVar[str] = "manifest"
    generation: int
    commit_id: bytes
    parent_id: bytes
    settings: IndexSettings
    encoder: EncoderRecord
    segments: tuple[SegmentRecord, ...]
    quantizers: tuple[FileRecord, ...]
    dense_weight: float | None = None
    unknown_features: int = 0

    @property
    def file_id(self) -> bytes:
        """The id of the commit."""
        return self.commit_id

    @property
    def n_documents(self) -> int:
        """Number of documents that are not deleted."""
        return sum(segment.n_live for segment in self.segments)

    def next(self, segments: tuple[SegmentRecord, ...], quantizers: tuple[FileRecord, ...]) -> Manifest:
        """Return the manifest of the next commit."""
        return replace(
            self,
            generation=self.generation + 1,
            commit_id=secrets.token_bytes(16),
            parent_id=self.commit_id,
            segments=segments,
            quantizers=quantizers,
        )

    def with_settings(self, **changed: Any) -> Manifest:  # noqa: ANN401  # the fields of `IndexSettings`
        """Return the manifest of the next commit, which changes nothing but settings of no segment."""
        settings = replace(self.settings, **changed)
        return replace(self.next(self.segments, self.quantizers), settings=settings)

    def with_dense_weight(self, weight: float | None) -> Manifest:
        """Return the manifest of the next commit, which changes nothing but the default weight of dense scores."""
        return replace(self.next(self.segments, self.quantizers), dense_weight=weight)

    def file_names(self) -> set[str]:
        """Return the names of all files of this generation, the manifest included."""
        names = {self.name} | {record.name for record in self.quantizers}
        return names.union(*(segment.file_names() for segment in self.segments))

    def is_newest(self, directory: Directory) -> bool:
        """Return whether this is still the current generation; lists the folder and reads the start of one file.

        Raises:
            IndexNotFound: the index was deleted.
        """
        newest = find_latest_generation(directory, at_least=self.generation)
        return newest == self.generation and self.has_id_in(directory)

    @property
    def optional_features(self) -> int:
        """The features of the file that readers may ignore."""
        return 0 if self.dense_weight is None else SEARCH_DEFAULTS_FEATURE

    @property
    def required_features(self) -> int:
        """The features of the file that readers must support."""
        metric = self.settings.metric
        features = (METRIC_FEATURE if metric else 0) | (MEAN_FEATURE if metric and metric.mean else 0)
        features |= AUTO_LANGUAGE_FEATURE if self.settings.language == AUTO_LANGUAGE else 0
        return features | (PASSAGE_SETTINGS_FEATURE if self.settings.passages else 0)

    @property
    def writer_features(self) -> int:
        """The features of the file that writers must support."""
        features = SEARCHABLE_FEATURE if self.settings.searchable else 0
        features |= SYNONYMS_FEATURE if self.settings.synonyms else 0
        return features | (FIELD_WEIGHTS_FEATURE if self.settings.field_weights else 0)

    def to_fields(self) -> dict[str, object]:
        """Return the fields of the file."""
        weight, searchable = self.dense_weight, list(self.settings.searchable)
        synonyms = [[word, *others] for word, others in self.settings.synonyms]
        weights = self.settings.field_weights
        return {
            **({"searchable": searchable} if searchable else {}),
            **({"field_weights": weights} if weights else {}),
            **({"synonyms": synonyms} if synonyms else {}),
            **({} if weight is None else {"search_defaults": {"dense_weight": weight}}),
            "generation": self.generation,
            "parent_id": self.parent_id,
            "settings": _settings_to_fields(self.settings),
            "encoder": _encoder_to_fields(self.encoder),
            "segments": [asdict(segment) for segment in self.segments],
            "quantizers": [record.to_fields() for record in self.quantizers],
        }

    @classmethod
    def from_container(cls, container: ContainerReader) -> Manifest:
        """Parse the fields of a file."""
        features, commit_id = container.required_features, container.record.file_id
        manifest = _parse_manifest(container.fields, commit_id, container.path, features)
        if container.optional_features & SEARCH_DEFAULTS_FEATURE:
            manifest = replace(manifest, dense_weight=_parse_dense_weight(container.fields))
        if container.writer_features & SEARCHABLE_FEATURE:
            paths = container.fields.texts("searchable", MAX_SEARCHABLE)
            manifest = replace(manifest, settings=replace(manifest.settings, searchable=paths))
        if container.writer_features & SYNONYMS_FEATURE:
            synonyms = _parse_synonyms(container.fields)
            manifest = replace(manifest, settings=replace(manifest.settings, synonyms=synonyms))
        if container.writer_features & FIELD_WEIGHTS_FEATURE:
            weights = _parse_field_weights(container.fields, {"title", *manifest.settings.searchable})
            manifest = replace(manifest, settings=replace(manifest.settings, field_weights=weights))
        return replace(manifest, unknown_features=container.unknown_writer_features)


def find_latest_generation(directory: Directory, at_least: int = 0) -> int:
    """Return the highest generation in the folder.

    Args:
        directory: the folder of the index.
        at_least: a generation that was in the folder. An older one is returned only if several listings show none
            that is newer: after another index took its place.

    Raises:
        IndexNotFound: there is no manifest.
    """
    latest = None
    for _ in range(_MAX_OLD_LISTINGS if at_least else _MAX_LISTINGS):
        latest = Manifest.find_latest(directory)
        if latest is not None and latest >= at_least:
            return latest
    if latest is not None:
        return latest
    raise IndexNotFound("no index here", path=directory.path, expected="a file MANIFEST-<generation>")


def use_newest(directory: Directory, use: Callable[[Manifest], T], at_least: int = 0) -> T:
    """Call a function with the newest manifest; again if a commit has deleted files of it meanwhile.

    Args:
        directory: the folder of the index.
        use: opens files that the manifest names, and raises FileNotFoundError if one is missing.
        at_least: see `find_latest_generation`.

    Raises:
        IndexNotFound: there is no index.
        CorruptFile: a file of the newest generation is missing.
        AccessFailed: a file of the newest generation cannot be opened.
    """
    for attempt in range(_MAX_ATTEMPTS):
        generation = find_latest_generation(directory, at_least)
        try:
            return use(Manifest.load(directory, generation))
        except (FileNotFoundError, AccessFailed) as error:
            is_missing = isinstance(error, FileNotFoundError)
            if not is_missing and error.errno != errno.EACCES:  # as Windows answers for what is being deleted
                raise
            is_last = attempt + 1 == _MAX_ATTEMPTS
            if is_last or all(find_latest_generation(directory) == generation for _ in range(_MAX_OLD_LISTINGS)):
                if not is_missing:
                    raise
                raise CorruptFile("a file of the index is missing", path=error.filename) from error
    raise AssertionError


def with_documents(manifests: Iterable[Manifest]) -> Manifest:
    """Return the first manifest with segments, as its settings say how vectors are stored; or the first."""
    known = list(manifests)
    return next((manifest for manifest in known if manifest.segments), known[0])


def _parse_dense_weight(fields: Fields) -> float:
    defaults = fields.child("search_defaults")
    weight = defaults.number("dense_weight", 0.0, 1.0)
    defaults.refuse_unknown()
    return weight


def _parse_synonyms(fields: Fields) -> tuple[tuple[str, tuple[str, ...]], ...]:
    entries: dict[str, tuple[str, ...]] = {}
    for item in fields.items("synonyms", MAX_SYNONYMS):
        texts = [each for each in item if isinstance(each, str)] if isinstance(item, list) else []
        if len(texts) < 2 or texts != item or texts[0] <= next(reversed(entries), ""):
            raise CorruptFile("synonyms are no words with texts, ascending", path=fields.path)
        entries[texts[0]] = tuple(texts[1:])
    if not entries:
        raise CorruptFile("synonyms without a word", path=fields.path)
    return tuple(entries.items())


def _parse_field_weights(fields: Fields, known: set[str]) -> dict[str, int]:
    weights = fields.child("field_weights")
    names = weights.names()
    if not names or not known.issuperset(names):
        raise CorruptFile("field_weights names no searchable fields", path=fields.path, actual=reprlib.repr(names))
    return {name: weights.integer(name, 2, MAX_FIELD_WEIGHT) for name in names}


def _settings_to_fields(settings: IndexSettings) -> dict[str, object]:
    fields = asdict(settings)
    del fields["searchable"], fields["synonyms"], fields["field_weights"], fields["languages"], fields["analysis"]
    for name, among in (("metric", fields), ("passages", fields), ("mean", fields["metric"] or {})):
        if among.get(name, b"") is None:
            del among[name]
    return fields


def _encoder_to_fields(encoder: EncoderRecord) -> dict[str, object]:
    return {"name": encoder.name, "identity": encoder.identity, "normalise": encoder.normalize}


def _parse_manifest(fields: Fields, commit_id: bytes, path: Path, features: int) -> Manifest:
    manifest = Manifest(
        generation=fields.integer("generation", 1, MAX_GENERATION),
        commit_id=commit_id,
        parent_id=fields.binary("parent_id", 16),
        settings=_parse_settings(fields.child("settings"), path, features),
        encoder=_parse_encoder(fields.child("encoder")),
        segments=tuple(map(_parse_segment, fields.children("segments", _MAX_SEGMENTS))),
        quantizers=tuple(map(FileRecord.from_fields, fields.children("quantizers", _MAX_SEGMENTS))),
    )
    _check_names(manifest, path)
    return manifest


def _check_names(manifest: Manifest, path: Path) -> None:
    """Check that no file is named twice, and that the quantizers of all segments are listed."""
    n_files = 1 + len(manifest.quantizers)
    n_files += sum(2 if segment.tombstones else 1 for segment in manifest.segments)
    if len(manifest.file_names()) != n_files:
        raise CorruptFile("a manifest names a file twice", path=path)
    known = {record.name for record in manifest.quantizers} | {""}
    for segment in manifest.segments:
        if segment.quantizer not in known:
            raise CorruptFile("a segment names an unknown quantizer", path=path, actual=segment.quantizer)


def _parse_settings(fields: Fields, path: Path, features: int) -> IndexSettings:
    numbers = fields.child("representation_settings").remaining()
    if any(type(value) is not int or not 0 < value <= _MAX_CENTROIDS for value in numbers.values()):
        raise CorruptFile("settings of the representation out of bounds", path=path, actual=reprlib.repr(numbers))
    settings = IndexSettings(
        dim=fields.integer("dim", 1, MAX_DIM),
        representation=fields.text("representation", 64),
        representation_settings={name: value for name, value in numbers.items() if isinstance(value, int)},
        beta=fields.optional_number("beta", math.ulp(0.0), 1e6),
        centroids=fields.choice("centroids", CENTROID_TYPES),
        code_bytes=fields.integer("code_bytes", 0, MAX_DIM),
        language=fields.text("language", 64),
        analysis_rules=fields.integer("analysis_rules", 1, 1 << 16),
        k1=fields.number("k1", 0.0, 1000.0),
        b=fields.number("b", 0.0, 1.0),
        seed=fields.integer("seed", 0, (1 << 63) - 1),
    )
    if features & METRIC_FEATURE:
        metric = _parse_metric(fields.child("metric"), settings.dim, path, has_mean=bool(features & MEAN_FEATURE))
        settings = replace(settings, metric=metric)
    if features & PASSAGE_SETTINGS_FEATURE:
        settings = replace(settings, passages=_parse_passages(fields.child("passages")))
    fields.refuse_unknown()
    return settings


def _parse_metric(fields: Fields, dim: int, path: Path, *, has_mean: bool) -> MetricRecord:
    name = fields.choice("name", METRICS)
    added = _L2_DIMS if name == "l2" or (name == "cosine" and has_mean) else 0
    record = MetricRecord(
        name=name,
        dim=fields.integer("dim", 1 if added else dim, dim - added),
        norm=fields.number("norm", 0.0 if added else 1.0, _MAX_NORM if added else 1.0),
    )
    if has_mean:
        record = replace(record, mean=fields.binary("mean", 4 * record.dim))
        if not np.isfinite(np.frombuffer(record.mean or b"", "<f4")).all():
            raise CorruptFile("the mean of the metric has numbers that are not finite", path=path)
    fields.refuse_unknown()
    return record


def _parse_passages(fields: Fields) -> PassageRecord:
    max_words = fields.integer("max_words", 1, MAX_PASSAGE_WORDS)
    record = PassageRecord(max_words=max_words, overlap=fields.integer("overlap", 0, (max_words - 1) // 2))
    fields.refuse_unknown()
    return record


def _parse_encoder(fields: Fields) -> EncoderRecord:
    record = EncoderRecord(
        name=fields.text("name", 1024),
        identity=fields.text("identity", 128),
        normalize=fields.boolean("normalise"),
    )
    fields.refuse_unknown()
    return record


def _parse_segment(fields: Fields) -> SegmentRecord:
    tombstones = fields.optional_child("tombstones")
    n_docs = fields.integer("n_docs", 1, _MAX_DOCS)
    segment = SegmentRecord(
        file=FileRecord.from_fields(fields.child("file")),
        tombstones=FileRecord.from_fields(tombstones) if tombstones else None,
        quantizer=fields.text("quantizer", 96),
        n_docs=n_docs,
        n_deleted=fields.integer("n_deleted", 0, n_docs),
    )
    fields.refuse_unknown()
    return segment
