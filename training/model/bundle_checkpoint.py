"""Makes a Hugging Face checkpoint of a bundle's graph, so that an encoder is trained on without its first weights.

The graphs that ``quarry export`` builds for BERT keep the names of the weights. int8 weights become
``scale * (code - zero point)``, the values that the graph computes with; the product of queries, keys and values
is divided into three, and the scale of attention, which the export multiplies into the first, is taken out.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.engine.process.libraries import requiring
from quarry.formats.bundle.encoder import EncoderBundle, EncoderSettings, load_bundle
from quarry.formats.container.directory import sync_folder, sync_tree
from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.training.model.checkpoint_files import EncoderFiles
from quarry.training.model.network import WEIGHTS_NAME
from quarry.training.model.projection import HEAD_NAME

__all__ = ["bundle_checkpoint", "is_bundle"]

_COPIED_NAMES = ("LICENSE", "NOTICE")
_EMBEDDINGS = ("word", "position", "token_type")
_PARTS = ("query", "key", "value")
_ATTENTION = re.compile(r"(encoder\.layer\.(\d+)\.attention\.self)\.(weight|bias)")
_LINEAR = re.compile(r"encoder\.layer\.\d+\.(attention\.output|intermediate|output)\.dense\.weight")
_KEPT = re.compile(
    r"embeddings\.LayerNorm\.(weight|bias)"
    r"|encoder\.layer\.\d+\.((attention\.output|intermediate|output)\.dense\.bias|(attention\.)?output\.LayerNorm\.(weight|bias))"
)

_PROJECTION = re.compile(r"projection_0\.(weight|bias)")

Floats = npt.NDArray[np.float32]


def is_bundle(folder: Path) -> bool:
    """Whether a folder holds a bundle, not a checkpoint."""
    return (folder / "bundle.json").is_file()


def bundle_checkpoint(bundle: Path, out: Path) -> Path:
    """Write a checkpoint with the weights of a bundle; ``quarry export`` makes such a bundle of it again.

    Args:
        bundle: the folder of an encoder bundle in int8 or fp32 whose network is a BERT.
        out: the folder to make; what is there already is taken as it is, and the bundle is not read.

    Returns:
        `out`.

    Raises:
        InvalidSetting: the bundle has another kind of network, precision or head, such as two layers behind the
            network, or a quantizer.
        CorruptFile: a file is damaged, or the graph lacks a weight.
        BackendUnavailable: the package onnx is not installed.
        QuarryError: the bundle cannot be read; see `quarry.formats.bundle.encoder.load_bundle`.
    """
    if out.is_dir():
        return out
    opened = load_bundle(bundle)
    _check_settings(opened)
    opened.verify_files()  # damaged weights would be trained on
    network = _read_network(opened.model_path)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    from safetensors.numpy import save_file

    save_file(dict(network.weights), partial / WEIGHTS_NAME, {"format": "pt"})
    if network.projection:
        save_file(dict(network.projection), partial / HEAD_NAME, {"format": "pt"})
    (partial / "config.json").write_text(json.dumps(network.config(), indent=1), "utf-8")
    (partial / "quarry.json").write_text(json.dumps(_use(opened.settings).settings(), indent=1), "utf-8")
    (partial / "README.md").write_text(_use(opened.settings).card, "utf-8")
    shutil.copyfile(bundle / "tokenizer.json", partial / "tokenizer.json")
    for name in _COPIED_NAMES:
        if (bundle / name).is_file():
            shutil.copyfile(bundle / name, partial / name)
    sync_tree(partial)
    partial.rename(out)
    sync_folder(out.parent)
    return out


def _check_settings(bundle: EncoderBundle) -> None:
    settings = bundle.settings
    unsupported = (
        f"precision {settings.precision}"
        if settings.precision not in ("int8", "fp32")
        else "a second network for queries"
        if settings.query_source is not None
        else f"pooling {settings.pooling}"
        if settings.pooling == "aggretriever"
        else "a trained quantizer"
        if settings.quantizer is not None
        else None
    )
    if unsupported is not None:
        raise InvalidSetting(
            "the bundle cannot be trained on",
            path=bundle.path,
            expected="int8 or fp32, one network without a quantizer",
            actual=unsupported,
        )


def _use(settings: EncoderSettings) -> EncoderFiles:
    card = f"---\nlicense: {settings.license}\nmodel_name: {settings.name}\n---\n# {settings.name}\n\n"
    return EncoderFiles(
        settings.pooling,
        settings.normalize,
        settings.beta,
        settings.trained_representation or ("pieces" if settings.pooling == "mean" else "passages"),
        settings.window,
        settings.query_prefix,
        settings.document_prefix,
        f"{card}From a bundle in {settings.precision}.\n",
        settings.representation_settings,
    )


@dataclass(frozen=True)
class _Network:
    weights: Mapping[str, Floats]
    n_heads: int
    epsilon: float
    projection: Mapping[str, Floats] = field(default_factory=dict)

    def config(self) -> dict[str, object]:
        """The members of config.json."""
        words, positions, types = (self.weights[f"embeddings.{each}_embeddings.weight"] for each in _EMBEDDINGS)
        layers = {name.split(".")[2] for name in self.weights if name.startswith("encoder.layer.")}
        return {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "hidden_act": "gelu",
            "hidden_size": words.shape[1],
            "initializer_range": 0.02,
            "intermediate_size": len(self.weights["encoder.layer.0.intermediate.dense.bias"]),
            "layer_norm_eps": self.epsilon,
            "max_position_embeddings": len(positions),
            "num_attention_heads": self.n_heads,
            "num_hidden_layers": len(layers),
            "pad_token_id": 0,
            "type_vocab_size": len(types),
            "vocab_size": len(words),
        }


def _read_network(path: Path) -> _Network:
    with requiring("training from a bundle needs a library that is not installed", "onnx", path):
        import onnx
        from google.protobuf.message import DecodeError
        from onnx import numpy_helper

    try:
        graph = onnx.load(path).graph
        stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    except (DecodeError, ValueError, TypeError, onnx.checker.ValidationError) as error:
        raise CorruptFile(f"the graph cannot be read: {error}", path=path) from error
    heads = {stored[node.input[1]].tolist()[2] for node in graph.node if _splits_heads(node, stored)}
    epsilons = {
        attribute.f
        for node in graph.node
        if node.op_type == "LayerNormalization"
        for attribute in node.attribute
        if attribute.name == "epsilon"
    }
    operators = {node.op_type for node in graph.node}
    is_bert = len(heads) == len(epsilons) == 1 and "Gelu" in operators and "CumSum" not in operators
    if (
        not is_bert
        or not {f"{each}_table" for each in _EMBEDDINGS} <= set(_names(stored))
        or "distance_table" in stored
    ):
        raise InvalidSetting(
            "the bundle's network cannot be trained on",
            path=path,
            expected="a graph of BERT made by `quarry export`",
        )
    projection = {
        f"projection.{name.rpartition('.')[2]}": np.ascontiguousarray(_value(stored, name).T)
        for name in _names(stored)
        if _PROJECTION.fullmatch(name)
    }
    commutes = "token_vectors" in {output.name for output in graph.output}
    if projection and (not commutes or any(name.startswith("projection_1.") for name in stored)):
        raise InvalidSetting(
            "the layers behind the bundle's network cannot be trained on",
            path=path,
            expected="one linear layer without an activation",
        )
    n_heads = int(heads.pop())
    try:
        weights = dict(_weights(stored, n_heads))
        network = _Network(weights, n_heads, float(f"{epsilons.pop():.6g}"), projection)
        network.config()
    except KeyError as error:
        raise CorruptFile("the graph lacks a weight", path=path, expected=error.args[0]) from error
    return network


def _splits_heads(node: object, stored: Mapping[str, npt.NDArray[np.generic]]) -> bool:
    """Whether a node gives (batch, length, n_heads, dim of a head)."""
    op, inputs = getattr(node, "op_type", ""), list(getattr(node, "input", ()))
    return op == "Reshape" and inputs[1] in stored and stored[inputs[1]].shape == (4,)


def _names(stored: Mapping[str, npt.NDArray[np.generic]]) -> Iterator[str]:
    """Names of weights without the suffixes of their quantized parts."""
    for name in stored:
        if not name.endswith(("_scale", "_zero_point")):
            yield name.removesuffix("_quantized")


def _weights(stored: Mapping[str, npt.NDArray[np.generic]], n_heads: int) -> Iterator[tuple[str, Floats]]:
    """The weights by their names in a checkpoint."""
    for name in _names(stored):
        merged = _ATTENTION.fullmatch(name)
        if merged is not None:
            value = _value(stored, name)
            parts = np.split(value.T if merged[3] == "weight" else value, len(_PARTS))
            parts[0] = _undo_scale(parts[0], np.float32((len(parts[0]) // n_heads) ** -0.5))
            for part, each in zip(_PARTS, parts, strict=True):
                yield f"{merged[1]}.{part}.{merged[3]}", np.ascontiguousarray(each, np.float32)
        elif _LINEAR.fullmatch(name):
            yield name, np.ascontiguousarray(_value(stored, name).T)
        elif _KEPT.fullmatch(name):
            yield name, _value(stored, name)
        elif name.removesuffix("_table") in _EMBEDDINGS:
            yield f"embeddings.{name.removesuffix('_table')}_embeddings.weight", _value(stored, name)


def _undo_scale(product: Floats, scale: np.float32) -> Floats:
    """The numbers whose float32 products with a scale are these, so that a second export gives the same again.

    Where there is no such number, the product of the one returned is off by one unit in the last place.
    """
    scaled = np.asarray(product / scale, np.float32)
    for towards in (-np.inf, np.inf):
        near = np.nextafter(scaled, np.float32(towards))
        scaled = np.where((scaled * scale != product) & (near * scale == product), near, scaled)
    return scaled


def _value(stored: Mapping[str, npt.NDArray[np.generic]], name: str) -> Floats:
    """The float32 value of a weight, quantized per tensor or per output channel (the last axis) or not."""
    if name in stored:
        return np.asarray(stored[name], np.float32)
    codes, scale, zero = (stored[f"{name}_{part}"] for part in ("quantized", "scale", "zero_point"))
    return (codes.astype(np.float32) - zero.astype(np.float32)) * scale.astype(np.float32)
