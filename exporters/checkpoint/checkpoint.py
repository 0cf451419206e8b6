"""Reads a trained model: a Hugging Face folder, with or without what sentence-transformers or Quarry add."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from quarry.exporters.checkpoint.files import (
    existing,
    licence,
    optional_object,
    plain_tokenizer,
    read_object,
    read_tensors,
)
from quarry.exporters.checkpoint.head import Head
from quarry.exporters.checkpoint.head_reader import EncoderUse, read_use
from quarry.exporters.checkpoint.networks import NetworkShape, bert_name, network_shape
from quarry.formats.bundle.encoder import Pooling
from quarry.formats.bundle.folder import BundleKind, SourceRecord, file_sha256
from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = [
    "WEIGHTS_NAME",
    "Checkpoint",
    "Network",
    "checkpoint_kind",
    "read_checkpoint",
    "read_network",
    "read_reranker",
]

Weights = Mapping[str, npt.NDArray[np.float32]]

WEIGHTS_NAME = "model.safetensors"
_GRAPH_NAMES = ("onnx/model.onnx", "model.onnx")
_USUAL_LENGTH = 512  # of encoders, where a folder with nothing but a graph does not say
_CLASSIFIER = "ForSequenceClassification"
_DEFAULT_N_LABELS = 2  # of transformers, where config.json says nothing


@dataclass(frozen=True, slots=True)
class Network:
    """A network that can be built without torch.

    Attributes:
        path: the folder it comes from.
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
        source: file name and digest of the weights.
        tokenizer: the contents of tokenizer.json, without padding and truncation.
        window: most tokens read at once, special tokens included.
        licence: what the README's front matter names, ``unknown`` without one.
        use: how an encoder is used; None for a reranker.
        graph: the ONNX graph, where the folder holds one and no weights.
    """

    path: Path
    config: Mapping[str, object]
    source: SourceRecord
    tokenizer: bytes
    window: int
    licence: str
    use: EncoderUse | None
    graph: Path | None = None

    @property
    def encoder_use(self) -> EncoderUse:
        """How an encoder is used; a reranker is none."""
        return cast("EncoderUse", self.use)

    @property
    def head(self) -> Head:
        """What follows an encoder's network."""
        return self.encoder_use.head

    @property
    def n_hidden(self) -> int:
        """Length of the network's token vectors.

        Raises:
            CorruptFile: config.json does not say.
        """
        return _integer(self.config, "dim" if "dim" in self.config else "hidden_size", self.path)


def checkpoint_kind(path: str | Path) -> BundleKind:
    """Tell what a folder holds: a sequence classifier is a reranker, everything else an encoder.

    Raises:
        InvalidSetting: there is neither config.json nor a graph.
        CorruptFile: config.json is no JSON object.
    """
    return _kind_from(_any_config(Path(path)))


def read_checkpoint(path: str | Path, pooling: Pooling | None = None, normalise: bool | None = None) -> Checkpoint:
    """Read an encoder: config.json, tokenizer.json, the weights' digest, and the files of `head_reader`.

    Without model.safetensors the folder's graph is taken, ``onnx/model.onnx`` or ``model.onnx``, and its digest is
    that of the graph and the files its weights lie in.

    Args:
        path: the folder.
        pooling: ``mean``, ``cls`` or ``max`` instead of what the folder says, without any linear layer.
        normalise: whether vectors get L2 norm 1, instead of what the folder says.

    Raises:
        InvalidSetting: a file is missing, the head cannot be exported, or it is a reranker.
        CorruptFile: a file does not hold what it should.
    """
    folder = Path(path)
    config = _config(folder, "encoder")
    n_words = config.get("vocab_size")
    use = read_use(folder, n_words if type(n_words) is int else 0)
    head = use.head if pooling is None else Head(pooling, use.head.normalise)
    if normalise is not None:
        head = replace(head, normalise=normalise)
    longest = _longest(config, folder)
    window = longest if use.window is None else min(use.window, longest)
    return _checkpoint(folder, config, window, replace(use, head=head))


def read_reranker(path: str | Path) -> Checkpoint:
    """Read a cross-encoder: config.json, tokenizer.json and, where present, tokenizer_config.json.

    Raises:
        InvalidSetting: a file is missing, it is no sequence classifier, or it has more than one label.
        CorruptFile: a file does not hold what it should.
    """
    folder = Path(path)
    config = _config(folder, "reranker")
    n_labels = _n_labels(config, folder)
    if n_labels != 1:
        raise InvalidSetting(
            "a reranker gives one score: config.json, labels", path=folder, expected=1, actual=n_labels
        )
    length = optional_object(folder, "tokenizer_config.json").get("model_max_length")
    longest = _longest(config, folder)
    return _checkpoint(folder, config, min(length, longest) if type(length) is int else longest, None)


def read_network(checkpoint: Checkpoint, kinds: tuple[str, ...] | None = None) -> Network:
    """Read shape and weights of a network that can be built without torch.

    Args:
        checkpoint: where they are.
        kinds: values of ``model_type`` that will do; None for all that can be built.

    Raises:
        InvalidSetting: the network is of another kind.
        CorruptFile: a size is no size, or the weights are no safetensors file.
    """
    limits = {} if kinds is None else {"kinds": kinds}
    shape = network_shape(checkpoint.config, checkpoint.path, **limits)
    tensors = read_tensors(checkpoint.path / WEIGHTS_NAME)
    kind = str(checkpoint.config["model_type"])
    return Network(checkpoint.path, shape, {bert_name(name, kind): tensor for name, tensor in tensors.items()})


def _checkpoint(folder: Path, config: Mapping[str, object], window: int, use: EncoderUse | None) -> Checkpoint:
    graph = None if use is None else _graph(folder)
    return Checkpoint(
        path=folder,
        config=config,
        source=_source(folder, graph),
        tokenizer=plain_tokenizer(existing(folder, "tokenizer.json")),
        window=window,
        licence=licence(folder),
        use=use,
        graph=graph,
    )


def _source(folder: Path, graph: Path | None) -> SourceRecord:
    if graph is None:
        return SourceRecord(WEIGHTS_NAME, file_sha256(existing(folder, WEIGHTS_NAME)))
    from quarry.exporters.checkpoint.external_data import data_paths

    return SourceRecord(graph.name, file_sha256(graph, *data_paths(graph)))


def _graph(folder: Path) -> Path | None:
    """The graph of a folder without weights."""
    if (folder / WEIGHTS_NAME).is_file():
        return None
    return next((folder / name for name in _GRAPH_NAMES if (folder / name).is_file()), None)


def _any_config(folder: Path) -> dict[str, object]:
    """The contents of config.json, which a folder with a graph may lack."""
    return optional_object(folder, "config.json") if _graph(folder) else read_object(folder, "config.json")


def _config(folder: Path, kind: BundleKind) -> dict[str, object]:
    config = _any_config(folder)
    found = _kind_from(config)
    if found != kind:
        raise InvalidSetting(f"the checkpoint is no {kind}", path=folder, expected=kind, actual=found)
    return config


def _kind_from(config: Mapping[str, object]) -> BundleKind:
    names = config.get("architectures")
    classifies = isinstance(names, list) and any(str(name).endswith(_CLASSIFIER) for name in names)
    return "reranker" if classifies else "encoder"


def _n_labels(config: Mapping[str, object], folder: Path) -> int:
    """Return the number of labels: ``num_labels``, else what ``id2label`` lists, else the library's default."""
    if "num_labels" in config:
        return _integer(config, "num_labels", folder)
    names = config.get("id2label")
    return len(names) if isinstance(names, dict) else _DEFAULT_N_LABELS


def _integer(config: Mapping[str, object], key: str, folder: Path) -> int:
    value = config.get(key)
    if type(value) is not int or value < 1:
        raise CorruptFile(f"config.json: bad {key!r}", path=folder, expected="a positive integer", actual=value)
    return value


def _longest(config: Mapping[str, object], folder: Path) -> int:
    """Return the longest input in tokens; RoBERTa's kind loses the positions up to the padding token's number."""
    if "max_position_embeddings" not in config and _graph(folder):
        return _USUAL_LENGTH
    n_positions = _integer(config, "max_position_embeddings", folder)
    try:
        return network_shape(config, folder).n_positions
    except InvalidSetting:
        return n_positions
