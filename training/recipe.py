"""A recipe: everything that decides what a training run does, in one TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from quarry.formats.bundle.folder import MAX_WINDOW
from quarry.formats.errors import InvalidSetting
from quarry.training.alignment.objective import AlignmentSettings
from quarry.training.compression.preparation import CompressionSettings
from quarry.training.data.negatives import NegativeSettings
from quarry.training.data.sources import HELD_OUT, SourceSettings
from quarry.training.fixed_documents.objective import FixedDocumentsSettings
from quarry.training.loop.optimizer import OptimizerSettings
from quarry.training.loop.trainer import LoopSettings
from quarry.training.objectives.registry import ObjectiveSettings, TeacherSettings
from quarry.training.toml_tables import TableReader, add_place

__all__ = ["ModelSettings", "OutputSettings", "Recipe", "ValidationSettings", "read_recipe"]

_LEAST_WINDOW = 3  # a token and two special tokens
_MAX_SHRINKAGE = 1e6  # above that nothing is whitened


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The ``[model]`` table: the checkpoint to start from and how it reads texts.

    Attributes:
        checkpoint: a Hugging Face folder, or an encoder bundle, whose weights are read from its graph.
        frozen: parameters whose names start with one of these are not trained.
        precision: ``fp32`` or ``bf16``.
        device: ``cpu``, ``cuda``, ``cuda:1``.
        dropout: probability, below 1.
        rounds_weights: whether an encoder is trained and validated with linear weights rounded as in an int8
            export, and those of the final checkpoint are rounded, frozen ones among them; see
            `quarry.training.model.rounded_weights`. Where queries are trained alone, theirs.
        query_tokens: most tokens of a query in training; an encoder's special tokens are among them, those of a
            reranker's pairs are not.
        document_tokens: most tokens of a document in training, likewise.
        window: most tokens that the exported encoder, or reranker, reads at once; fewer if it has fewer positions.
        query_prefix: before queries.
        document_prefix: before documents.
    """

    checkpoint: Path
    frozen: tuple[str, ...] = ()
    precision: str = "bf16"
    device: str = "cpu"
    dropout: float = 0.0
    rounds_weights: bool = False
    query_tokens: int = 48
    document_tokens: int = 128
    window: int = 256
    query_prefix: str = ""
    document_prefix: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise InvalidSetting("dropout is out of range", expected="0 or more, below 1", actual=self.dropout)
        if not _LEAST_WINDOW <= self.window <= MAX_WINDOW:
            raise InvalidSetting(
                "window is out of range", expected=f"{_LEAST_WINDOW} to {MAX_WINDOW}", actual=self.window
            )


@dataclass(frozen=True, kw_only=True)
class ValidationSettings:
    """The ``[validation]`` table.

    Attributes:
        source: name of the source whose held-out articles are searched.
        n_documents: maximum number of documents.
        n_queries: maximum number of queries.
    """

    source: str
    n_documents: int = 500
    n_queries: int = 300

    def __post_init__(self) -> None:
        if min(self.n_documents, self.n_queries) < 1:
            raise InvalidSetting(
                "n_documents or n_queries is out of range",
                expected="1 or more",
                actual=min(self.n_documents, self.n_queries),
            )


@dataclass(frozen=True, kw_only=True)
class OutputSettings:
    """The ``[output]`` table.

    Attributes:
        name: the name of the encoder or reranker.
        licence: the license of the weights.
        original_share: share of the original weights in the final ones; see `interpolate_weights`.
        whitening: shrinkage of the projection that whitens the final encoder's vectors, above 0; None: no such
            projection. It is computed of documents of all sources; see `quarry.training.model.projection`.
    """

    name: str
    licence: str
    original_share: float = 0.0
    whitening: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.original_share <= 1:
            raise InvalidSetting("original_share is out of range", expected="0 to 1", actual=self.original_share)
        if self.whitening is not None and not 0 < self.whitening <= _MAX_SHRINKAGE:
            raise InvalidSetting(
                "whitening is out of range", expected=f"above 0, at most {_MAX_SHRINKAGE}", actual=self.whitening
            )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The tables of a recipe.

    Attributes:
        text: the file as it is.
        model: ``[model]``.
        objective: ``[objective]``.
        teachers: ``[[teachers]]``.
        data: ``[[data]]``.
        training: ``[training]``.
        optimizer: ``[optimizer]``.
        output: ``[output]``.
        validation: ``[validation]``, None without it.
        negatives: ``[negatives]``, None without it.
        compression: ``[compression]``, None without it.
        fixed_documents: ``[fixed_documents]``, None without it.
        alignment: ``[alignment]``, None without it.
    """

    text: str
    model: ModelSettings
    objective: ObjectiveSettings
    teachers: tuple[TeacherSettings, ...]
    data: tuple[SourceSettings, ...]
    training: LoopSettings
    optimizer: OptimizerSettings
    output: OutputSettings
    validation: ValidationSettings | None
    negatives: NegativeSettings | None
    compression: CompressionSettings | None
    fixed_documents: FixedDocumentsSettings | None = None
    alignment: AlignmentSettings | None = None

    def __post_init__(self) -> None:
        if self.is_reranker:
            self._check_reranker()
        for each in self.data:
            if each.group_size > self.batch_size(each):
                raise InvalidSetting(
                    f"[[data]]: group_size of the source {each.name!r} is larger than a batch",
                    expected=f"{self.batch_size(each)} at most",
                    actual=each.group_size,
                )
        if self.validation is not None:
            self._check_validation(self.validation.source)
        self._check_output()
        if self.model.rounds_weights and self.objective.mlm:
            raise InvalidSetting(
                "[model]: rounds_weights does not round the layers of the masked-language-model head",
                expected="mlm = false with rounds_weights",
            )
        passages_taught = any(each.passage_weight for each in self.teachers)
        if passages_taught and (self.objective.name != "passages" or self.compression is not None):
            raise InvalidSetting(
                "[[teachers]]: passage_weight compares the passages of documents",
                expected="the objective passages, and no [compression]",
            )
        if self.negatives is not None and not self.training.n_negatives and not self.has_fixed_documents:
            raise InvalidSetting("no hard negatives are taken", expected="training.n_negatives from 1", actual=0)
        if self.has_fixed_documents:
            self._check_fixed_documents()
        if self.alignment is not None:
            self._check_alignment()

    def _check_alignment(self) -> None:
        """Refuse what the vectors of teachers cannot be compared with."""
        objective = self.objective
        one_length = objective.name == "single_vector" or (
            objective.name == "passages" and len(objective.tokens_per_piece) == 1
        )
        if not one_length or not objective.normalize:
            raise InvalidSetting(
                "[alignment] compares vectors of length 1 with those of the same passages",
                expected="passages with one number in tokens_per_piece, or single_vector, and normalize = true",
            )
        if self.compression is not None or self.fixed_documents is not None or self.output.original_share:
            raise InvalidSetting(
                "[alignment] puts a layer behind the encoder, with other vectors than before",
                expected="no [compression], no [fixed_documents], and original_share = 0",
            )

    def _check_output(self) -> None:
        """Refuse changes of the final weights that contradict how they were trained."""
        output = self.output
        if self.compression is not None and output.original_share:
            raise InvalidSetting(
                "codes belong to the trained weights alone", expected="original_share = 0 with [compression]"
            )
        if output.whitening is not None and (self.has_fixed_documents or self.compression is not None):
            raise InvalidSetting(
                "documents have fixed vectors or codes, which whitening would change",
                expected="no whitening with [compression] or [fixed_documents]",
            )
        if output.whitening is not None and self.objective.name == "aggretriever":
            raise InvalidSetting(
                "whitening is of token vectors, of which aggretriever makes no mean",
                expected="no whitening with aggretriever",
            )

    def _check_fixed_documents(self) -> None:
        """Refuse what belongs to training that encodes documents."""
        if self.compression is not None and self.fixed_documents is not None:
            raise InvalidSetting(
                "documents have fixed vectors or codes", expected="one of both tables", actual="both"
            )
        place = "jpq" if self.fixed_documents is None else "[fixed_documents]"
        if self.negatives is not None:
            raise InvalidSetting(f"{place} finds its own negatives", expected="no [negatives]")
        if self.objective.name == "passages" and len(self.objective.tokens_per_piece) > 1:
            raise InvalidSetting(
                f"with {place} documents are encoded once, so passages have one length",
                expected="one number in tokens_per_piece",
                actual=self.objective.tokens_per_piece,
            )
        if self.fixed_documents is not None and (self.teachers or not self.objective.contrastive_weight):
            raise InvalidSetting(
                "with [fixed_documents] each query has its own candidates, which teachers do not score",
                expected="no [[teachers]], and no contrastive_weight of 0; original_weight distills",
            )

    def batch_size(self, source: SourceSettings) -> int:
        """Return the number of queries in a batch of a source."""
        return source.batch_size or self.training.batch_size

    def _check_validation(self, name: str) -> None:
        sources = {each.name: each for each in self.data}
        if name not in sources:
            raise InvalidSetting(
                "[validation]: the source is not there", expected=", ".join(sorted(sources)), actual=name
            )
        if not sources[name].can_validate:
            raise InvalidSetting(
                f"[validation]: the source {name!r} cannot validate", expected="kind beir with held_out above 0"
            )
        if f"{name}{HELD_OUT}" in sources:
            raise InvalidSetting(
                "[[data]]: the name of a source is that of the held-out part of another",
                actual=f"{name}{HELD_OUT}",
            )

    @property
    def is_reranker(self) -> bool:
        """Whether a cross-encoder is trained."""
        return self.objective.name == "cross_encoder"

    def _check_reranker(self) -> None:
        """Refuse what belongs to encoders."""
        present = {
            "[[teachers]]": self.teachers,
            "[compression]": self.compression,
            "[fixed_documents]": self.fixed_documents,
            "[alignment]": self.alignment,
            "output.original_share": self.output.original_share,
            "output.whitening": self.output.whitening,
            "model.query_prefix": self.model.query_prefix,
            "model.document_prefix": self.model.document_prefix,
            "model.rounds_weights": self.model.rounds_weights,
            "cluster_size": any(each.cluster_size for each in self.data),
        }
        wrong = [name for name, value in present.items() if value]
        if wrong:
            raise InvalidSetting("a cross_encoder is trained without it", actual=wrong[0])
        if self.objective != ObjectiveSettings(name="cross_encoder"):
            raise InvalidSetting("cross_encoder has no settings", expected="a name alone in [objective]")
        if self.negatives is None or self.negatives.every or not self.training.n_negatives:
            raise InvalidSetting(
                "a cross_encoder learns from hard negatives, which are found once",
                expected="[negatives] with every = 0, and training.n_negatives from 1",
            )

    @property
    def has_fixed_documents(self) -> bool:
        """Whether the encoder of queries is trained alone."""
        return self.fixed_documents is not None or (
            self.compression is not None and self.compression.method == "jpq"
        )


_TABLES = {
    "model": ModelSettings,
    "objective": ObjectiveSettings,
    "training": LoopSettings,
    "optimizer": OptimizerSettings,
    "output": OutputSettings,
}
_OPTIONAL = {
    "validation": ValidationSettings,
    "negatives": NegativeSettings,
    "compression": CompressionSettings,
    "fixed_documents": FixedDocumentsSettings,
    "alignment": AlignmentSettings,
}
_LISTS = {"data": SourceSettings, "teachers": TeacherSettings}


def read_recipe(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        InvalidSetting: there is no such file, it is not TOML, a table or a member is missing, unknown or of
            another type, a value is out of range, or two sources or teachers have one name.
    """
    try:
        text = path.read_text("utf-8")
        tables = tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise InvalidSetting(f"the recipe cannot be read: {error}", path=path) from error
    known = {*_TABLES, *_OPTIONAL, *_LISTS}
    if not tables.keys() <= known:
        unknown = sorted(tables.keys() - known)[0]
        raise InvalidSetting("unknown table", path=path, expected=", ".join(sorted(known)), actual=unknown)
    reader = TableReader(path)
    parsed: dict[str, object] = {
        name: reader.read(kind, tables.get(name, {}), name) for name, kind in _TABLES.items()
    }
    for name, optional in _OPTIONAL.items():
        parsed[name] = reader.read(optional, tables[name], name) if name in tables else None
    for name, each in _LISTS.items():
        entries = tables.get(name, [])
        if not isinstance(entries, list):
            raise InvalidSetting(f"{name} is not a list of tables", path=path, expected=f"[[{name}]]")
        parsed[name] = tuple(reader.read(each, entry, name) for entry in entries)
        names = [entry.get("name") for entry in entries]
        if len(set(names)) < len(names):
            raise InvalidSetting(f"two of [[{name}]] have one name", path=path, actual=names)
    if not parsed["data"]:
        raise InvalidSetting("the recipe has no data", path=path, expected="[[data]]")
    try:
        return Recipe(text=text, **parsed)  # type: ignore[arg-type]
    except InvalidSetting as error:
        raise add_place(error, path) from error
