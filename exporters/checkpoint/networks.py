"""Kinds of networks whose graph can be built without torch: sizes and names of weights.

All are variants of BERT: weights are renamed to BERT's names, and `NetworkShape` describes the other differences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = ["DIRECT_KINDS", "T5_KINDS", "NetworkShape", "read_network_shape", "read_size", "rename_to_bert"]


@dataclass(frozen=True, slots=True)
class NetworkShape:
    """The sizes of an encoder.

    Attributes:
        n_layers: transformer layers.
        n_heads: attention heads of a layer.
        dim: dimension of a token vector, a multiple of ``n_heads``.
        n_positions: maximum input length in tokens.
        epsilon: what is added to the variance in the layer normalizations.
        padding_id: id of the padding token if positions skip padding and start after this id, as in RoBERTa; None
            if they start at 0.
        token_types: whether there are token type embeddings.
        n_buckets: the number of buckets of relative positions, each with a bias per head; None without these.
    """

    n_layers: int
    n_heads: int
    dim: int
    n_positions: int
    epsilon: float
    padding_id: int | None = None
    token_types: bool = True
    n_buckets: int | None = None


@dataclass(frozen=True, slots=True)
class _Kind:
    """Differences of a kind of network from BERT.

    Attributes:
        prefix: the prefix of the names of weights in a checkpoint with a task head.
        renamed: replacements that give BERT's names, as regular expressions, in order.
        keys: names of BERT's sizes in config.json, if they differ.
        padded_positions: whether positions are numbered as in RoBERTa.
        token_types: whether there are token type embeddings.
        distances: whether attention has a bias by relative position.
    """

    prefix: str
    renamed: tuple[tuple[str, str], ...] = ()
    keys: tuple[tuple[str, str], ...] = ()
    padded_positions: bool = False
    token_types: bool = True
    distances: bool = False


_OLD_NAMES = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
_PREDICTIONS = (
    (r"^lm_head\.dense\.", "cls.predictions.transform.dense."),
    (r"^lm_head\.layer_norm\.", "cls.predictions.transform.LayerNorm."),
    (r"^lm_head\.", "cls.predictions."),
)
_ROBERTA = _Kind("roberta.", _PREDICTIONS, padded_positions=True)
_KINDS: Mapping[str, _Kind] = {
    "bert": _Kind("bert."),
    "distilbert": _Kind(
        "distilbert.",
        (
            (r"^transformer\.", "encoder."),
            (r"attention\.q_lin\.", "attention.self.query."),
            (r"attention\.k_lin\.", "attention.self.key."),
            (r"attention\.v_lin\.", "attention.self.value."),
            (r"attention\.out_lin\.", "attention.output.dense."),
            (r"sa_layer_norm\.", "attention.output.LayerNorm."),
            (r"ffn\.lin1\.", "intermediate.dense."),
            (r"ffn\.lin2\.", "output.dense."),
            (r"output_layer_norm\.", "output.LayerNorm."),
            (r"^vocab_transform\.", "cls.predictions.transform.dense."),
            (r"^vocab_layer_norm\.", "cls.predictions.transform.LayerNorm."),
            (r"^vocab_projector\.bias", "cls.predictions.bias"),
            (r"^vocab_projector\.weight", "cls.predictions.decoder.weight"),
        ),
        keys=(
            ("num_hidden_layers", "n_layers"),
            ("num_attention_heads", "n_heads"),
            ("hidden_size", "dim"),
            ("hidden_act", "activation"),
        ),
        token_types=False,
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "mpnet": _Kind(
        "mpnet.",
        (
            (r"attention\.attn\.q\.", "attention.self.query."),
            (r"attention\.attn\.k\.", "attention.self.key."),
            (r"attention\.attn\.v\.", "attention.self.value."),
            (r"attention\.attn\.o\.", "attention.output.dense."),
            (r"attention\.LayerNorm\.", "attention.output.LayerNorm."),
            *_PREDICTIONS,
        ),
        padded_positions=True,
        token_types=False,
        distances=True,
    ),
}

DIRECT_KINDS = tuple(_KINDS)
"""Values of ``model_type`` in config.json."""

T5_KINDS = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
"""Values of ``model_type`` of networks whose encoder alone is used -> its class in transformers."""

_PADDING_ID = 1  # of RoBERTa and MPNet, if config.json has none
_N_BUCKETS = 32  # the default of transformers for MPNet
_BUCKETS = "relative_attention_num_buckets"


def read_network_shape(
    config: Mapping[str, object], folder: Path, kinds: tuple[str, ...] = DIRECT_KINDS
) -> NetworkShape:
    """Read the sizes of a network from its config.json.

    Raises:
        InvalidSetting: the kind is not in `kinds`, or the network has a feature that the graph builder does not
            support; the message names the member of config.json.
        CorruptFile: a size is missing or not valid.
    """
    name = config.get("model_type")
    if name not in kinds:
        raise _make_error(folder, "model_type", " or ".join(kinds), name)
    kind = _KINDS[name]
    named = dict(kind.keys)
    for key, only in (("hidden_act", "gelu"), ("position_embedding_type", "absolute"), ("is_decoder", False)):
        value = config.get(named.get(key, key), only)
        if value != only:
            raise _make_error(folder, named.get(key, key), only, value)
    n_layers, n_heads, dim = (
        read_size(config, named.get(key, key), folder)
        for key in ("num_hidden_layers", "num_attention_heads", "hidden_size")
    )
    if dim % n_heads:
        raise CorruptFile(
            "config.json: the number of heads does not divide the hidden size",
            path=folder,
            actual=f"{dim} / {n_heads}",
        )
    padding_id = 0
    if kind.padded_positions:
        padding_id = read_size({"pad_token_id": _PADDING_ID, **config}, "pad_token_id", folder, least=0)
    lost = padding_id + 1 if kind.padded_positions else 0
    n_positions = read_size(config, "max_position_embeddings", folder, least=lost + 1)
    return NetworkShape(
        n_layers=n_layers,
        n_heads=n_heads,
        dim=dim,
        n_positions=n_positions - lost,
        epsilon=_read_epsilon(config, folder),
        padding_id=padding_id if kind.padded_positions else None,
        token_types=kind.token_types,
        n_buckets=read_size({_BUCKETS: _N_BUCKETS, **config}, _BUCKETS, folder) if kind.distances else None,
    )


def rename_to_bert(name: str, model_type: str) -> str:
    """Return the name in BertModel of a weight in another kind of network."""
    kind = _KINDS[model_type]
    name = name.removeprefix(kind.prefix)
    for pattern, replacement in (*kind.renamed, *_OLD_NAMES):
        name = re.sub(pattern, replacement, name)
    return name


def _make_error(folder: Path, key: str, expected: object, actual: object) -> InvalidSetting:
    return InvalidSetting(
        f"this kind of network is not supported: config.json, {key!r}",
        path=folder,
        expected=expected,
        actual=actual,
    )


def read_size(config: Mapping[str, object], key: str, folder: Path, least: int = 1) -> int:
    """Return an integer of a config.json.

    Raises:
        CorruptFile: it is missing, no integer, or below the least.
    """
    value = config.get(key)
    if type(value) is not int or value < least:
        expected = f"an integer of at least {least}"
        raise CorruptFile(f"config.json: bad {key!r}", path=folder, expected=expected, actual=value)
    return value


def _read_epsilon(config: Mapping[str, object], folder: Path) -> float:
    value = config.get("layer_norm_eps", 1e-12)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
        raise CorruptFile("config.json: bad 'layer_norm_eps'", path=folder, expected="0 to 1", actual=value)
    return float(value)
