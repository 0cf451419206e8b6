"""Reads a trained model: a Hugging Face folder, optionally with files of sentence-transformers or Quarry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from quarry.exporters.checkpoint.files import (
    optional_object,
    plain_tokenizer,
    read_card_field,
    read_object,
    read_tensors,
    require_file,
)
from quarry.exporters.checkpoint.head import Head
from quarry.exporters.checkpoint.head_reader import EncoderUse, read_use
from quarry.exporters.checkpoint.networks import (
    T5_KINDS,
    NetworkShape,
    read_network_shape,
    read_size,
    rename_to_bert,
)
from quarry.formats.bundle.encoder import Pooling
from quarry.formats.bundle.folder import MAX_WINDOW, BundleKind, SourceRecord, file_sha256
from quarry.formats.container.directory import Directory
from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.formats.vectors.quantizer import open_quantizer

__all__ = [
    "WEIGHTS_NAME",
    "Checkpoint",
    "Network",
    "checkpoint_kind",
    "quantizer_file",
    "read_checkpoint",
    "read_network",
    "read_reranker",
]

Weights = Mapping[str, npt.NDArray[np.float32]]

WEIGHTS_NAME = "model.safetensors"
_GRAPH_NAMES = ("onnx/model.onnx", "model.onnx")
_USUAL_LENGTH = 512  # of encoders, if a folder has only a graph and no length
_CLASSIFIER = "ForSequenceClassification"
_DEFAULT_N_LABELS = 2  # of transformers, if config.json has no labels


@dataclass(frozen=True, slots=True)
class Network:
    """A network that can be built without torch.

    Attributes:
        path: the checkpoint's folder.
        shape: its sizes.
        weights: fp32 tensors by their BertModel names, without a leading ``bert.``.
    """

    path: Path
    shape: NetworkShape
    weights: Weights


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A trained model as its folder describes it.

    Attributes:
        path: the folder.
        config: the contents of config.json.
        source: file name and SHA-256 of the weights.
        tokenizer: the contents of tokenizer.json, without padding and truncation.
        window: maximum input length in tokens, special tokens included.
        name: the field ``model_name`` of the README's front matter, or else the name of the folder.
        license_name: the license in the README's front matter, or ``unknown``.
        use: how an encoder is used; None for a reranker.
        graph: the ONNX graph, if the folder has one and no weights.
    """

    path: Path
    config: Mapping[str, object]
    source: SourceRecord
    tokenizer: bytes
    window: int
    name: str
    license_name: str
    use: EncoderUse | None
    graph: Path | None = None

    @property
    def encoder_use(self) -> EncoderUse:
        """The use of the encoder; only for encoders."""
        return cast("EncoderUse", self.use)

    @property
    def head(self) -> Head:
        """The layers that follow the encoder's network."""
        return self.encoder_use.head

    @property
    def n_hidden(self) -> int:
        """Dimension of the network's token vectors.

        Raises:
            CorruptFile: config.json does not have it.
        """
        names = [name for name in ("dim", "d_model") if name in self.config]
        return read_size(self.config, names[0] if names else "hidden_size", self.path)


def checkpoint_kind(path: str | Path) -> BundleKind:
    """Return the kind of model in a folder: a sequence classifier is a reranker, everything else an encoder.

    Raises:
        InvalidSetting: there is neither config.json nor a graph.
        CorruptFile: config.json is not a JSON object.
    """
    return _find_kind(_read_config(Path(path)))


def read_checkpoint(path: str | Path, pooling: Pooling | None = None, normalize: bool | None = None) -> Checkpoint:
    """Read an encoder: config.json, tokenizer.json, the SHA-256 of the weights, and the files of `head_reader`.

    Without model.safetensors the folder's graph is used, ``onnx/model.onnx`` or ``model.onnx``; the SHA-256 is
    then of the graph and of the files with its weights.

    Args:
        path: the folder.
        pooling: ``mean``, ``weightedmean``, ``cls``, ``lasttoken`` or ``max`` in place of the folder's own,
            without linear layers.
        normalize: whether pooled vectors are scaled to L2 norm 1; None: as the folder says.

    Raises:
        InvalidSetting: a file is missing, the head is not supported, or the model is a reranker.
        CorruptFile: a file is not valid.
    """
    folder = Path(path)
    config = _config_of_kind(folder, "encoder")
    n_words = config.get("vocab_size")
    use = read_use(folder, n_words if type(n_words) is int else 0)
    head = use.head if pooling is None else Head(pooling, use.head.normalize)
    if normalize is not None:
        head = replace(head, normalize=normalize)
    longest = _read_max_length(config, folder, use.window)
    window = longest if use.window is None else min(use.window, longest)
    return _make_checkpoint(folder, config, window, replace(use, head=head))


def read_reranker(path: str | Path) -> Checkpoint:
    """Read a cross-encoder: config.json, tokenizer.json and, if present, tokenizer_config.json.

    Raises:
        InvalidSetting: a file is missing, or the model is not a sequence classifier with one label.
        CorruptFile: a file is not valid.
    """
    folder = Path(path)
    config = _config_of_kind(folder, "reranker")
    n_labels = _count_labels(config, folder)
    if n_labels != 1:
        raise InvalidSetting("a reranker has one label (config.json)", path=folder, expected=1, actual=n_labels)
    length = optional_object(folder, "tokenizer_config.json").get("model_max_length")
    longest = _read_max_length(config, folder)
    return _make_checkpoint(folder, config, min(length, longest) if type(length) is int else longest, None)


def read_network(checkpoint: Checkpoint, kinds: tuple[str, ...] | None = None) -> Network:
    """Read the shape and weights of a network that can be built without torch.

    Args:
        checkpoint: the checkpoint.
        kinds: accepted values of ``model_type``; None: all that can be built.

    Raises:
        InvalidSetting: the network is of another kind.
        CorruptFile: a size is not valid, or the weights are not a safetensors file.
    """
    limits = {} if kinds is None else {"kinds": kinds}
    shape = read_network_shape(checkpoint.config, checkpoint.path, **limits)
    tensors = read_tensors(checkpoint.path / WEIGHTS_NAME)
    kind = str(checkpoint.config["model_type"])
    return Network(
        checkpoint.path, shape, {rename_to_bert(name, kind): tensor for name, tensor in tensors.items()}
    )


def _make_checkpoint(
    folder: Path, config: Mapping[str, object], window: int, use: EncoderUse | None
) -> Checkpoint:
    graph = None if use is None else _find_graph(folder)
    return Checkpoint(
        path=folder,
        config=config,
        source=_record_source(folder, graph),
        tokenizer=plain_tokenizer(
            require_file(folder, "tokenizer.json"), lower_case=use is not None and use.lower_case
        ),
        window=window,
        name=read_card_field(folder, "model_name") or folder.resolve().name,
        license_name=read_card_field(folder, "license") or "unknown",
        use=use,
        graph=graph,
    )


def _record_source(folder: Path, graph: Path | None) -> SourceRecord:
    if graph is None:
        return SourceRecord(WEIGHTS_NAME, file_sha256(require_file(folder, WEIGHTS_NAME)))
    from quarry.exporters.checkpoint.files import find_data_paths

    return SourceRecord(graph.name, file_sha256(graph, *find_data_paths(graph)))


def _find_graph(folder: Path) -> Path | None:
    """Return the graph of a folder without weights, or None."""
    if (folder / WEIGHTS_NAME).is_file():
        return None
    return next((folder / name for name in _GRAPH_NAMES if (folder / name).is_file()), None)


def _read_config(folder: Path) -> dict[str, object]:
    """Return the contents of config.json; a folder with a graph may have none."""
    return optional_object(folder, "config.json") if _find_graph(folder) else read_object(folder, "config.json")


def _config_of_kind(folder: Path, kind: BundleKind) -> dict[str, object]:
    config = _read_config(folder)
    actual = _find_kind(config)
    if actual != kind:
        raise InvalidSetting(f"the checkpoint is not of kind {kind}", path=folder, expected=kind, actual=actual)
    return config


def _find_kind(config: Mapping[str, object]) -> BundleKind:
    names = config.get("architectures")
    classifies = isinstance(names, list) and any(str(name).endswith(_CLASSIFIER) for name in names)
    return "reranker" if classifies else "encoder"


def _count_labels(config: Mapping[str, object], folder: Path) -> int:
    """Return ``num_labels``, or else the length of ``id2label``, or else the library's default."""
    if "num_labels" in config:
        return read_size(config, "num_labels", folder)
    names = config.get("id2label")
    return len(names) if isinstance(names, dict) else _DEFAULT_N_LABELS


def _read_max_length(config: Mapping[str, object], folder: Path, window: int | None = None) -> int:
    """Return the maximum input length in tokens; RoBERTa loses the positions up to the padding token's id.

    Networks with relative positions only have none: it is then the window, if that is a limit.
    """
    if config.get("model_type") in T5_KINDS:
        return window if window is not None and window <= MAX_WINDOW else _USUAL_LENGTH
    if "max_position_embeddings" not in config and _find_graph(folder):
        return _USUAL_LENGTH
    n_positions = read_size(config, "max_position_embeddings", folder)
    try:
        return read_network_shape(config, folder).n_positions
    except InvalidSetting:
        return n_positions


def quantizer_file(checkpoint: Checkpoint) -> dict[str, Path]:
    """The file by its name in the bundle, which is the same; nothing if the checkpoint names no quantizer.

    Raises:
        InvalidSetting: the file is missing.
        FormatError: it is damaged.
        CorruptFile: it is for vectors of another length than the checkpoint's.
    """
    name = checkpoint.encoder_use.quantizer
    if name is None:
        return {}
    path = require_file(checkpoint.path, name)
    dim = checkpoint.head.dim(checkpoint.n_hidden)
    quantizer = open_quantizer(Directory(checkpoint.path), name).quantizer
    if quantizer.input_dim != dim:
        raise CorruptFile(
            "the quantizer is for vectors of another length", path=path, expected=dim, actual=quantizer.input_dim
        )
    return {name: path}
