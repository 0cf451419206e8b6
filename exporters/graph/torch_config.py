"""Refuses unsafe values in a config.json before transformers builds the network; see `torch_trace`.

transformers trusts the file: it downloads code that is named there, or builds layers until memory runs out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = ["check_config"]

_LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "encoder_layers", "num_encoder_layers")
_MOST = 2**24  # tokens, dimensions or words, more than any network has


def check_config(config: Mapping[str, object], n_tensors: int, folder: Path) -> None:
    """Refuse a configuration before transformers reads it.

    Args:
        config: the contents of config.json.
        n_tensors: number of tensors in the file of weights.
        folder: the checkpoint's folder.

    Raises:
        InvalidSetting: the weights are quantized, or it names third-party code, such as kernels in a repository.
        CorruptFile: it has more layers than the file has tensors, or a size above 2^24.
    """
    if not isinstance(config.get("model_type"), str):
        raise CorruptFile(
            "config.json: bad 'model_type'", path=folder, expected="a string", actual=config.get("model_type")
        )
    for key, value in _list_members(config):
        if key == "quantization_config" and value is not None:
            raise InvalidSetting(
                "quantized weights cannot be exported", path=folder, actual=f"config.json, {key!r}"
            )
        if key.endswith("_implementation") and "/" in str(value):
            raise InvalidSetting(
                f"config.json, {key!r} names third-party code", path=folder, actual=repr(value)[:200]
            )
        most = n_tensors if key in _LAYERS else _MOST
        if type(value) is int and value > most and (key in _LAYERS or _is_size(key)):
            raise CorruptFile(f"config.json: bad {key!r}", path=folder, expected=f"at most {most}", actual=value)


def _is_size(key: str) -> bool:
    return key.endswith(("_size", "_dim", "_embeddings", "_positions", "_heads", "_buckets"))


def _list_members(config: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the members of an object and of all objects inside it."""
    left: list[object] = [config]
    while left:
        each = left.pop()
        if isinstance(each, Mapping):
            yield from each.items()
            left += each.values()
        elif isinstance(each, list):
            left += each
