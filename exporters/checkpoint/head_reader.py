"""Reads an encoder's head from the files of sentence-transformers or of Quarry.

sentence-transformers has modules.json and the folders it names: pooling by mean, maximum or [CLS], linear layers,
normalization. Without modules.json the pooling is the mean, without normalization, as in that library.

``quarry.json`` describes a model trained for Quarry and overrides all other files. It is a JSON object with
exactly these members::

    format            1
    pooling           "mean", "cls", "max" or "aggretriever"
    normalise         whether vectors are scaled to L2 norm 1
    window            maximum input length in tokens, special tokens included
    query_prefix      prepended to queries; document_prefix: to documents
    beta              inverse temperature of the softmax aggregation, or null
    representation    name of the representation it was trained for, or null
    agg_dims, mlm     only with "aggretriever": dimension of agg*, whether the masked-language-model head is used

and those of these that it needs::

    agg_signed                false, only with "aggretriever": agg+ instead of agg*
    representation_settings   object of integers: settings of the representation
    quantizer                 name of the quantizer file beside it that it was trained with
    query_checkpoint          name of a folder in it with the checkpoint of a separate encoder for queries

``head.safetensors`` has the head's weights: ``projection.weight`` and optionally ``projection.bias`` of a linear
layer after the pooling (no file: no layer), or for Aggretriever ``terms.weight``, ``terms.bias``, ``cls.weight``
and ``cls.bias``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from quarry.engine.arguments import lone_surrogate
from quarry.exporters.checkpoint.files import (
    optional_object,
    read_json,
    read_object,
    read_tensors,
    require_file,
    subfolder,
)
from quarry.exporters.checkpoint.head import Activation, Aggregation, Head, Projection
from quarry.formats.bundle.encoder import Pooling, read_representation_settings
from quarry.formats.bundle.folder import MAX_WINDOW
from quarry.formats.container.fields import Fields
from quarry.formats.container.fields import read_json as read_strict_json
from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = ["SETTINGS_NAME", "EncoderUse", "read_use"]

SETTINGS_NAME = "quarry.json"
_HEAD_NAME = "head.safetensors"
_PROMPTS_NAME = "config_sentence_transformers.json"
_WINDOW_NAME = "sentence_bert_config.json"
_MAX_SETTINGS_BYTES = 64 * 1024
_MAX_AGG_DIMS = 16384
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_MAX_PROMPT = 1024
_LEAST_WINDOW = 3  # a token and two special tokens

_POOLING_MODES: Mapping[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
_ACTIVATIONS: Mapping[str, Activation] = {"Identity": "identity", "Tanh": "tanh", "ReLU": "relu"}

Tensors = Mapping[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class EncoderUse:
    """Settings of an encoder apart from its network.

    Attributes:
        head: what follows the network.
        window: maximum input length in tokens, or None.
        query_prefix: prepended to queries.
        document_prefix: prepended to documents.
        beta: inverse temperature of the softmax aggregation; None: maximum.
        representation: name of the representation it was trained for, or None.
        representation_settings: of that representation.
        quantizer: name of the quantizer's file that it was trained with, or None.
        query_checkpoint: name of the folder with the encoder for queries, None if it is the same one.
    """

    head: Head
    window: int | None
    query_prefix: str
    document_prefix: str
    beta: float | None = None
    representation: str | None = None
    representation_settings: Mapping[str, int] = field(default_factory=dict)
    quantizer: str | None = None
    query_checkpoint: str | None = None


def read_use(folder: Path, n_words: int) -> EncoderUse:
    """Read how the encoder in a folder is used.

    Args:
        folder: the checkpoint.
        n_words: size of its vocabulary.

    Raises:
        InvalidSetting: a module, a pooling or an activation is not supported, or a file is missing.
        CorruptFile: a file is not valid.
    """
    path = folder / SETTINGS_NAME
    if path.is_file():
        return _read_own_use(folder, Fields.from_json(read_strict_json(path, _MAX_SETTINGS_BYTES), path), n_words)
    prompts = _read_prompts(folder)
    return EncoderUse(
        _head_from_modules(folder),
        _read_window(folder),
        _check_prompt(folder, prompts.get("query")),
        _check_prompt(folder, prompts.get("document", prompts.get("passage"))),
    )


def _read_own_use(folder: Path, fields: Fields, n_words: int) -> EncoderUse:
    fields.integer("format", 1, 1)
    pooling = cast("Pooling", fields.text("pooling", pattern=re.compile("mean|cls|max|aggretriever")))
    normalize = fields.boolean("normalise")
    if pooling == "aggretriever":
        head = Head(pooling, normalize, aggregation=_read_aggregation(folder, fields, n_words))
    else:
        head = Head(pooling, normalize, _read_projections(folder))
    use = EncoderUse(
        head,
        fields.integer("window", _LEAST_WINDOW, MAX_WINDOW),
        fields.text("query_prefix"),
        fields.text("document_prefix"),
        fields.optional_number("beta", 1e-6, 1e6),
        fields.optional_text("representation"),
        read_representation_settings(fields) if fields.has("representation_settings") else {},
        fields.text("quantizer", pattern=_FILE_NAME) if fields.has("quantizer") else None,
        fields.text("query_checkpoint", pattern=_FILE_NAME) if fields.has("query_checkpoint") else None,
    )
    fields.refuse_unknown()
    return use


def _read_aggregation(folder: Path, fields: Fields, n_words: int) -> Aggregation:
    path = require_file(folder, _HEAD_NAME)
    tensors = read_tensors(path)
    terms, cls = (_read_layer(tensors, name, path, biased=True) for name in ("terms", "cls"))
    if len(terms.weights) != 1:
        raise CorruptFile("terms.weight has one row", path=path, actual=terms.weights.shape)
    n_dims, mlm = fields.integer("agg_dims", 1, _MAX_AGG_DIMS), fields.boolean("mlm")
    signed = fields.boolean("agg_signed") if fields.has("agg_signed") else True
    return Aggregation(n_dims, terms, cls, n_words, mlm, signed)


def _read_projections(folder: Path) -> tuple[Projection, ...]:
    path = folder / _HEAD_NAME
    return (_read_layer(read_tensors(path), "projection", path),) if path.is_file() else ()


def _read_layer(
    tensors: Tensors, name: str, path: Path, *, activation: Activation = "identity", biased: bool = False
) -> Projection:
    """Return a linear layer from the tensors of a file."""
    weights, biases = tensors.get(f"{name}.weight"), tensors.get(f"{name}.bias")
    fits = weights is not None and weights.ndim == 2 and (biases is None or biases.shape == weights.shape[:1])
    if weights is None or not fits or (biased and biases is None):
        raise CorruptFile(
            f"the weights of the linear layer {name!r} do not fit",
            path=path,
            expected=f"{name}.weight (n_out, n_in) and {name}.bias (n_out,)",
            actual={key: value.shape for key, value in tensors.items()},
        )
    return Projection(weights, biases, activation)


def _head_from_modules(folder: Path) -> Head:
    pooling: Pooling = "mean"
    normalize = False
    projections: list[Projection] = []
    for kind, name in _read_modules(folder):
        if normalize or kind not in ("Transformer", "Pooling", "Dense", "Normalize"):
            raise InvalidSetting("this module is not supported", path=folder, actual=kind)
        if kind == "Pooling":
            pooling = _read_pooling(read_object(subfolder(folder, name), "config.json"), folder)
        elif kind == "Dense":
            projections.append(_read_dense(subfolder(folder, name)))
        normalize = kind == "Normalize"
    return Head(pooling, normalize, tuple(projections))


def _read_modules(folder: Path) -> list[tuple[str, str]]:
    """Return the kinds and folders of sentence-transformers' modules, in order."""
    path = folder / "modules.json"
    modules = read_json(path) if path.is_file() else []
    try:
        return [(str(module["type"]).rsplit(".", 1)[-1], str(module["path"])) for module in cast("Any", modules)]
    except (TypeError, KeyError) as error:
        raise CorruptFile("not a list of modules with type and path", path=path) from error


def _read_dense(folder: Path) -> Projection:
    named = str(read_object(folder, "config.json").get("activation_function", "Tanh")).rsplit(".", 1)[-1]
    if named not in _ACTIVATIONS:
        raise InvalidSetting(
            "this activation is not supported", path=folder, expected=" or ".join(_ACTIVATIONS), actual=named
        )
    path = require_file(folder, "model.safetensors")
    return _read_layer(read_tensors(path), "linear", path, activation=_ACTIVATIONS[named])


def _read_pooling(config: Mapping[str, object], folder: Path) -> Pooling:
    """Read a pooling module's configuration in its older (flags) or newer (names) form."""
    modes = sorted(key for key, value in config.items() if key.startswith("pooling_mode_") and value is True)
    named = config.get("pooling_mode")
    if not modes and isinstance(named, str):
        modes = [next((key for key, value in _POOLING_MODES.items() if value == named), named)]
    if len(modes) != 1 or modes[0] not in _POOLING_MODES:
        expected = "mean, CLS or maximum"
        raise InvalidSetting("this pooling is not supported", path=folder, expected=expected, actual=modes)
    return _POOLING_MODES[modes[0]]


def _read_window(folder: Path) -> int | None:
    found = optional_object(folder, _WINDOW_NAME).get("max_seq_length")
    if found is not None and (type(found) is not int or found < _LEAST_WINDOW):
        expected = f"an integer from {_LEAST_WINDOW}, or null"
        raise CorruptFile("bad 'max_seq_length'", path=folder / _WINDOW_NAME, expected=expected, actual=found)
    return found


def _read_prompts(folder: Path) -> dict[str, object]:
    prompts = optional_object(folder, _PROMPTS_NAME).get("prompts", {})
    if not isinstance(prompts, dict):
        raise CorruptFile("bad prompts", path=folder / _PROMPTS_NAME, expected="an object", actual=prompts)
    return prompts


def _check_prompt(folder: Path, prompt: object) -> str:
    text = str(prompt or "")
    if len(text) > _MAX_PROMPT or lone_surrogate(text) is not None:
        expected = f"at most {_MAX_PROMPT} characters of Unicode"
        raise CorruptFile("bad prompt", path=folder / _PROMPTS_NAME, expected=expected, actual=repr(text[:80]))
    return text
