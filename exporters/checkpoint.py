"""Reads a trained model: a Hugging Face folder, with or without sentence-transformers' additions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from formats.bundle_folder import BundleKind, SourceRecord
from formats.encoder_bundle import Pooling
from formats.errors import CorruptFile, InvalidSetting

__all__ = ["BertShape", "Checkpoint", "Network", "checkpoint_kind", "read_checkpoint", "read_reranker"]

Weights = Mapping[str, npt.NDArray[np.float32]]

_WEIGHTS_NAME = "model.safetensors"
_CLASSIFIER = "ForSequenceClassification"
_DEFAULT_N_LABELS = 2  # of transformers, where config.json says nothing

# File and member that name the longest input.
_LENGTH_OF_ENCODERS = ("sentence_bert_config.json", "max_seq_length")
_LENGTH_OF_RERANKERS = ("tokenizer_config.json", "model_max_length")
_POOLING_MODES: Mapping[str, Pooling] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


@dataclass(frozen=True, slots=True)
class BertShape:
    """The sizes of a BERT encoder.

    Attributes:
        n_layers: transformer layers.
        n_heads: attention heads of a layer.
        dim: length of a token vector, a multiple of ``n_heads``.
        n_positions: longest input in tokens.
        epsilon: of the layer normalisations.
    """

    n_layers: int
    n_heads: int
    dim: int
    n_positions: int
    epsilon: float


@dataclass(frozen=True, slots=True)
class Network:
    """A trained network as its folder describes it.

    Attributes:
        path: the folder.
        source: file name and digest of the weights.
        shape: sizes of the network.
        weights: fp32 tensors by their BertModel names, without a leading ``bert.``.
        tokenizer: the contents of tokenizer.json, without padding and truncation.
        window: most tokens read at once, special tokens included.
        licence: what the README's front matter names, ``unknown`` without one.
    """

    path: Path
    source: SourceRecord
    shape: BertShape
    weights: Weights
    tokenizer: bytes
    window: int
    licence: str


@dataclass(frozen=True, slots=True)
class Checkpoint(Network):
    """A trained encoder: a network and what follows it.

    Attributes:
        pooling: how token vectors become one vector.
        normalise: whether that vector gets L2 norm 1.
        query_prefix: put before queries.
        document_prefix: put before documents.
    """

    pooling: Pooling
    normalise: bool
    query_prefix: str
    document_prefix: str


def checkpoint_kind(path: str | Path) -> BundleKind:
    """Tell what a folder holds: a sequence classifier is a reranker, everything else an encoder.

    Raises:
        InvalidSetting: there is no config.json.
        CorruptFile: it is no JSON object.
    """
    return _kind_from(_read_object(Path(path), "config.json"))


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read config.json, model.safetensors, tokenizer.json and, where present, sentence-transformers' files.

    A folder without modules.json is taken as mean pooled and not normalised, as sentence-transformers does.

    Raises:
        InvalidSetting: a file is missing, or the network is of a kind that cannot be exported: not BERT, another
            activation than GELU, relative positions, a pooling other than mean or CLS, a projection; or it is a
            reranker.
        CorruptFile: a file does not hold what it should.
    """
    network = _read_network(Path(path), "encoder", _LENGTH_OF_ENCODERS)
    pooling, normalise = _head_from(network.path)
    prompts = _prompts(network.path)
    return Checkpoint(
        **{field.name: getattr(network, field.name) for field in fields(Network)},
        pooling=pooling,
        normalise=normalise,
        query_prefix=prompts.get("query", ""),
        document_prefix=prompts.get("document", prompts.get("passage", "")),
    )


def read_reranker(path: str | Path) -> Network:
    """Read config.json, model.safetensors, tokenizer.json and, where present, tokenizer_config.json.

    Raises:
        InvalidSetting: a file is missing, or the network is of a kind that cannot be exported: no sequence
            classifier, more than one label, not BERT, another activation than GELU, relative positions.
        CorruptFile: a file does not hold what it should.
    """
    network = _read_network(Path(path), "reranker", _LENGTH_OF_RERANKERS)
    n_labels = _n_labels(_read_object(network.path, "config.json"), network.path)
    if n_labels != 1:
        raise InvalidSetting(
            "a reranker gives one score: config.json, labels", path=network.path, expected=1, actual=n_labels
        )
    return network


def _read_network(folder: Path, kind: BundleKind, length: tuple[str, str]) -> Network:
    config = _read_object(folder, "config.json")
    found = _kind_from(config)
    if found != kind:
        raise InvalidSetting(f"the checkpoint is no {kind}", path=folder, expected=kind, actual=found)
    shape = _shape_from(config, folder)
    weights_path = _existing(folder, _WEIGHTS_NAME)
    return Network(
        path=folder,
        source=SourceRecord(_WEIGHTS_NAME, _sha256(weights_path)),
        shape=shape,
        weights=_read_weights(weights_path),
        tokenizer=_plain_tokenizer(_existing(folder, "tokenizer.json")),
        window=_window(folder, shape, *length),
        licence=_licence(folder),
    )


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


def _existing(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise InvalidSetting("the checkpoint lacks a file", path=folder, expected=name)
    return path


def _read_json(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise CorruptFile(f"not JSON: {error}", path=path) from None


def _read_object(folder: Path, name: str) -> dict[str, object]:
    path = _existing(folder, name)
    value = _read_json(path)
    if not isinstance(value, dict):
        raise CorruptFile("not a JSON object", path=path, actual=type(value).__name__)
    return value


def _optional_object(folder: Path, name: str) -> dict[str, object]:
    return _read_object(folder, name) if (folder / name).is_file() else {}


def _integer(config: Mapping[str, object], key: str, folder: Path) -> int:
    value = config.get(key)
    if type(value) is not int or value < 1:
        raise CorruptFile(f"config.json: bad {key!r}", path=folder, expected="a positive integer", actual=value)
    return value


def _shape_from(config: Mapping[str, object], folder: Path) -> BertShape:
    for key, only, default in (
        ("model_type", "bert", None),
        ("hidden_act", "gelu", "gelu"),
        ("position_embedding_type", "absolute", "absolute"),
        ("is_decoder", False, False),
    ):
        if config.get(key, default) != only:
            raise InvalidSetting(
                f"this kind of network cannot be exported: config.json, {key!r}",
                path=folder,
                expected=only,
                actual=config.get(key, default),
            )
    return BertShape(
        n_layers=_integer(config, "num_hidden_layers", folder),
        n_heads=_integer(config, "num_attention_heads", folder),
        dim=_integer(config, "hidden_size", folder),
        n_positions=_integer(config, "max_position_embeddings", folder),
        epsilon=float(cast("float", config.get("layer_norm_eps", 1e-12))),
    )


def _head_from(folder: Path) -> tuple[Pooling, bool]:
    """Read what follows the network: pooling, and whether the result is normalised."""
    pooling: Pooling = "mean"
    normalise = False
    for kind, subfolder in _modules(folder):
        if kind == "Pooling":
            pooling = _pooling_from(_read_object(folder / subfolder, "config.json"), folder)
        elif kind == "Normalize":
            normalise = True
        elif kind != "Transformer":
            raise InvalidSetting("this module cannot be exported", path=folder, actual=kind)
    return pooling, normalise


def _modules(folder: Path) -> list[tuple[str, str]]:
    """Return kind and folder of sentence-transformers' modules, in order."""
    path = folder / "modules.json"
    modules = _read_json(path) if path.is_file() else []
    try:
        return [(str(module["type"]).rsplit(".", 1)[-1], str(module["path"])) for module in cast("Any", modules)]
    except (TypeError, KeyError) as error:
        raise CorruptFile("not a list of modules with type and path", path=path) from error


def _pooling_from(config: Mapping[str, object], folder: Path) -> Pooling:
    """Read a pooling module's configuration, of the older (flags) or the newer (names) kind."""
    modes = sorted(key for key, value in config.items() if key.startswith("pooling_mode_") and value is True)
    named = config.get("pooling_mode")
    if not modes and isinstance(named, str):
        modes = [{"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}.get(named, named)]
    if len(modes) != 1 or modes[0] not in _POOLING_MODES:
        raise InvalidSetting("this pooling cannot be exported", path=folder, expected="mean or CLS", actual=modes)
    return _POOLING_MODES[modes[0]]


def _prompts(folder: Path) -> dict[str, str]:
    name = "config_sentence_transformers.json"
    prompts = _optional_object(folder, name).get("prompts", {})
    if not isinstance(prompts, dict):
        raise CorruptFile("bad prompts", path=folder / name, expected="an object", actual=prompts)
    return {key: str(prompt or "") for key, prompt in prompts.items()}


def _window(folder: Path, shape: BertShape, name: str, key: str) -> int:
    length = _optional_object(folder, name).get(key)
    return min(length, shape.n_positions) if type(length) is int else shape.n_positions


def _licence(folder: Path) -> str:
    """Return what the front matter of README.md, between two lines of dashes, calls ``license``."""
    readme = folder / "README.md"
    lines = readme.read_text("utf-8", errors="replace").splitlines() if readme.is_file() else []
    if lines[:1] == ["---"]:
        for line in takewhile("---".__ne__, lines[1:]):
            key, _, value = line.partition(":")
            if key == "license" and value.strip():
                return value.strip()
    return "unknown"


def _plain_tokenizer(path: Path) -> bytes:
    """Return a tokenizer that neither pads nor truncates."""
    tokenizer = _read_json(path)
    if not isinstance(tokenizer, dict) or "model" not in tokenizer:
        raise CorruptFile("not a tokenizer", path=path)
    tokenizer["padding"] = tokenizer["truncation"] = None
    return json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_weights(path: Path) -> Weights:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise CorruptFile(f"not a safetensors file: {error}", path=path) from None
    return {_bert_name(name): np.asarray(tensor, np.float32) for name, tensor in tensors.items()}


def _bert_name(name: str) -> str:
    """Return the BertModel name of a tensor; old checkpoints call layer normalisation's gamma and beta."""
    name = name.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
