"""Reads an encoder's head from the files of sentence-transformers or of Quarry.

sentence-transformers has modules.json and the folders it names: pooling by mean, maximum or [CLS], linear layers,
normalization. Without modules.json the pooling is the mean, without normalization, as in that library. The prompt
of queries is "query", that of documents "document", "passage" or "corpus", the first that there is; otherwise it
is the one that `default_prompt_name` names, unless that is a prompt of the other side. Settings that change
vectors and are not supported are refused by their names.

``quarry.json`` describes a model trained for Quarry and overrides all other files. It is a JSON object with
exactly these members::

    format            1
    pooling           "mean", "weightedmean", "cls", "lasttoken", "max" or "aggretriever"
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
from itertools import chain
from pathlib import Path
from typing import Any, cast, get_args

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
_PROMPT_NAMES = (("query",), ("document", "passage", "corpus"))  # of queries, of documents; the first one counts
_NETWORK_NAMES = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_TOKENIZER_CONFIG = "tokenizer_config.json"
_MAX_SETTINGS_BYTES = 64 * 1024  # of a file with settings of a layer
_MAX_AGG_DIMS = 16384  # of the vectors of Aggretriever
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_MAX_PROMPT = 1024  # characters
_LEAST_WINDOW = 3  # a token and two special tokens

_AFTER = {"Transformer": "", "Pooling": "T?", "Dense": "T?P?D*", "Normalize": "T?P?D*"}
"""Modules by kind: what may come before, as a regular expression of the initials of their kinds."""

_MODALITY = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
_USUAL: Mapping[str, object] = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    **{name: {} for name in ("processing_kwargs", "tokenizer_args", "processor_kwargs")},
    **dict.fromkeys(("query_length", "document_length", "query_expansion")),
}
_USUAL_DENSE: Mapping[str, object] = {
    "use_residual": False,
    **dict.fromkeys(("module_input_name", "module_output_name"), "sentence_embedding"),
}

_POOLING_FLAGS: Mapping[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
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
        representation_settings: the settings of that representation.
        quantizer: name of the quantizer's file that it was trained with, or None.
        query_checkpoint: name of the folder with the encoder for queries, None if it is the same one.
        include_prompt: whether the pooling includes the tokens of a prefix, and those before it.
        lower_case: whether texts are changed to lower case first.
        cut_queries: whether queries longer than the window are cut.
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
    include_prompt: bool = True
    lower_case: bool = False
    cut_queries: bool = False


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
    head, include_prompt = _head_from_modules(folder)
    network = _read_network_settings(folder)
    query_prefix, document_prefix = (_read_prompt(folder, names) for names in _PROMPT_NAMES)
    # sentence-transformers numbers the tokens with those of the prompt
    is_counted = head.pooling == "weightedmean"
    if not include_prompt and (is_counted or not head.has_token_vectors) and (query_prefix or document_prefix):
        raise InvalidSetting(
            "'include_prompt' false is not supported with a layer that follows the pooling, or with weightedmean",
            path=folder,
            expected="linear layers without activation, or no prompts",
        )
    return EncoderUse(
        head,
        _read_window(folder, network),
        query_prefix,
        document_prefix,
        include_prompt=include_prompt or not (query_prefix or document_prefix),
        lower_case=_read_flag(network, "do_lower_case", folder, default=False),
        cut_queries=True,
    )


def _read_own_use(folder: Path, fields: Fields, n_words: int) -> EncoderUse:
    fields.integer("format", 1, 1)
    pooling = cast("Pooling", fields.text("pooling", pattern=re.compile("|".join(get_args(Pooling)))))
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


def _head_from_modules(folder: Path) -> tuple[Head, bool]:
    """Return the head, and whether the pooling includes prompts."""
    pooling: Pooling = "mean"
    include_prompt = True
    projections: list[Projection] = []
    kinds: list[str] = []
    for kind, name in _read_modules(folder):
        before = "".join(each[0] for each in kinds)  # T, P, D and N for the kinds below
        if not re.fullmatch(_AFTER.get(kind, "(?!)"), before):
            raise InvalidSetting("this module is not supported", path=folder, actual=f"{kind} after {kinds}")
        if kind == "Pooling":
            config = read_object(subfolder(folder, name), "config.json")
            pooling = _read_pooling(config, folder)
            include_prompt = _read_flag(config, "include_prompt", folder, default=True)
        elif kind == "Dense":
            projections.append(_read_dense(subfolder(folder, name)))
        kinds.append(kind)
    return Head(pooling, "Normalize" in kinds, tuple(projections)), include_prompt


def _read_modules(folder: Path) -> list[tuple[str, str]]:
    """Return the kinds and folders of sentence-transformers' modules, in order."""
    path = folder / "modules.json"
    modules = read_json(path) if path.is_file() else []
    try:
        return [(str(module["type"]).rsplit(".", 1)[-1], str(module["path"])) for module in cast("Any", modules)]
    except (TypeError, KeyError) as error:
        raise CorruptFile("not a list of modules with type and path", path=path) from error


def _read_dense(folder: Path) -> Projection:
    config = read_object(folder, "config.json")
    _refuse_unusual(config, _USUAL_DENSE, folder / "config.json")
    named = str(config.get("activation_function", "Tanh")).rsplit(".", 1)[-1]
    if named not in _ACTIVATIONS:
        raise InvalidSetting(
            "this activation is not supported", path=folder, expected=" or ".join(_ACTIVATIONS), actual=named
        )
    path = require_file(folder, "model.safetensors")
    return _read_layer(read_tensors(path), "linear", path, activation=_ACTIVATIONS[named])


def _read_pooling(config: Mapping[str, object], folder: Path) -> Pooling:
    """Read a pooling module's configuration in its older (flags) or newer (names) form."""
    named = config.get("pooling_mode")
    modes = named if isinstance(named, list) else [named]
    if named is None:
        flags = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
        modes = [_POOLING_FLAGS.get(key, key) for key in sorted(flags)]
    if len(modes) != 1 or modes[0] not in _POOLING_FLAGS.values():
        raise InvalidSetting(
            "this pooling is not supported: 'pooling_mode'",
            path=folder,
            expected=" or ".join(_POOLING_FLAGS.values()),
            actual=modes,
        )
    return cast("Pooling", modes[0])


def _read_flag(config: Mapping[str, object], name: str, folder: Path, default: bool) -> bool:
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise CorruptFile(f"bad {name!r}", path=folder, expected="true or false", actual=value)
    return value


def _read_network_settings(folder: Path) -> dict[str, object]:
    """Read the settings of the module Transformer; refuse those that change vectors in a way not supported."""
    name = next((name for name in _NETWORK_NAMES if (folder / name).is_file()), _NETWORK_NAMES[0])
    settings = optional_object(folder, name)
    _refuse_unusual(settings, _USUAL, folder / name)
    modality = settings.get("modality_config", _MODALITY)
    if not isinstance(modality, dict) or modality.get("text") != _MODALITY["text"]:
        raise InvalidSetting(
            "this 'modality_config' is not supported", path=folder / name, expected=_MODALITY, actual=modality
        )
    return settings


def _refuse_unusual(settings: Mapping[str, object], usual: Mapping[str, object], path: Path) -> None:
    for key, expected in usual.items():
        value = settings.get(key)
        if value and value != expected:
            raise InvalidSetting(f"{key!r} is not supported", path=path, expected=expected, actual=value)


def _read_window(folder: Path, settings: Mapping[str, object]) -> int | None:
    """Read the window: of the module until version 5 of sentence-transformers, of the tokenizer since."""
    for name, key, value in (
        (_NETWORK_NAMES[0], "max_seq_length", settings.get("max_seq_length")),
        (_TOKENIZER_CONFIG, "model_max_length", _read_tokenizer_length(folder)),
    ):
        if value is None:
            continue
        if type(value) is not int or value < _LEAST_WINDOW:
            expected = f"an integer from {_LEAST_WINDOW}, or null"
            raise CorruptFile(f"bad {key!r}", path=folder / name, expected=expected, actual=value)
        return value
    return None


def _read_tokenizer_length(folder: Path) -> object:
    length = optional_object(folder, _TOKENIZER_CONFIG).get("model_max_length")
    return int(length) if isinstance(length, float) and length.is_integer() else length  # 1e30: no limit


def _read_prompt(folder: Path, names: tuple[str, ...]) -> str:
    """Return the prompt with the first of these names that there is, or else the default one."""
    config = optional_object(folder, _PROMPTS_NAME)
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise CorruptFile("bad prompts", path=folder / _PROMPTS_NAME, expected="an object", actual=prompts)
    default = config.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise CorruptFile(
            "bad 'default_prompt_name'",
            path=folder / _PROMPTS_NAME,
            expected=f"one of {sorted(prompts)}, or null",
            actual=default,
        )
    others = [each for each in chain(*_PROMPT_NAMES) if each not in names]
    candidates = [*names, *([] if default in others else [default])]
    return _check_prompt(folder, next((prompts[name] for name in candidates if name in prompts), ""))


def _check_prompt(folder: Path, prompt: object) -> str:
    text = "" if prompt is None else prompt
    if not isinstance(text, str) or len(text) > _MAX_PROMPT or lone_surrogate(text) is not None:
        expected = f"at most {_MAX_PROMPT} characters of Unicode"
        raise CorruptFile("bad prompt", path=folder / _PROMPTS_NAME, expected=expected, actual=repr(text)[:80])
    return text
