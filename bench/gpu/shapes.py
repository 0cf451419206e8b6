"""Creates checkpoints with random weights in the shapes of well-known encoders, as fast as trained ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quarry.engine.bundled import default_bundle_path
from quarry.formats.bundle.folder import TOKENIZER_NAME

__all__ = ["DRY_SHAPE", "N_POSITIONS", "EncoderShape", "make_weights", "write_checkpoint"]

N_POSITIONS = 512
_WINDOW = 256
_SPREAD = 0.05  # of weights
_README = "---\nlicense: mit\n---\n"


@dataclass(frozen=True)
class EncoderShape:
    """The sizes of a BERT network.

    Attributes:
        name: the name of the encoder that has it.
        n_layers: number of layers.
        dim: dimension of a token vector.
        n_inner: dimension within a layer.
        n_heads: number of attention heads.
    """

    name: str
    n_layers: int
    dim: int
    n_inner: int
    n_heads: int

    def count_operations(self, length: int) -> float:
        """Return floating-point operations per token for texts of `length` tokens, without embeddings."""
        products = 4 * self.dim**2 + 2 * self.dim * self.n_inner + 2 * length * self.dim
        return 2.0 * self.n_layers * products


DRY_SHAPE = EncoderShape("tiny", 2, 64, 128, 2)


def write_checkpoint(folder: Path, shape: EncoderShape) -> Path:
    """Write a sentence-transformers folder with the bundled encoder's tokenizer and return it.

    Raises:
        ImportError: safetensors is not installed.
    """
    from safetensors.numpy import save_file

    tokenizer = (default_bundle_path() / TOKENIZER_NAME).read_text("utf-8")
    n_words = len(json.loads(tokenizer)["model"]["vocab"])
    (folder / "1_Pooling").mkdir(parents=True)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": number, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    files = {
        "config.json": json.dumps(_make_config(shape, n_words)),
        TOKENIZER_NAME: tokenizer,
        "modules.json": json.dumps(modules),
        "sentence_bert_config.json": json.dumps({"max_seq_length": _WINDOW}),
        "1_Pooling/config.json": json.dumps({"pooling_mode_mean_tokens": True}),
        "README.md": _README,
    }
    for name, content in files.items():
        (folder / name).write_text(content, "utf-8")
    save_file(dict(make_weights(shape, n_words)), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _make_config(shape: EncoderShape, n_words: int) -> dict[str, object]:
    return {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_act": "gelu",
        "hidden_size": shape.dim,
        "intermediate_size": shape.n_inner,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": N_POSITIONS,
        "num_attention_heads": shape.n_heads,
        "num_hidden_layers": shape.n_layers,
        "position_embedding_type": "absolute",
        "type_vocab_size": 2,
        "vocab_size": n_words,
    }


def make_weights(shape: EncoderShape, n_words: int) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """Yield tensors by their BertModel names: normally distributed, layer normalizations near the identity."""
    generator = np.random.default_rng(shape.dim)
    for name, size in _list_tensors(shape, n_words):
        values = generator.standard_normal(size, np.float32) * np.float32(_SPREAD)
        yield name, values + 1 if name.endswith("LayerNorm.weight") else values


def _list_tensors(shape: EncoderShape, n_words: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    dim, inner = shape.dim, shape.n_inner
    for kind, n_rows in (("word", n_words), ("position", N_POSITIONS), ("token_type", 2)):
        yield f"embeddings.{kind}_embeddings.weight", (n_rows, dim)
    yield from _weight_and_bias("embeddings.LayerNorm", (dim,))
    for number in range(shape.n_layers):
        layer = f"encoder.layer.{number}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            yield from _weight_and_bias(f"{layer}.attention.{part}", (dim, dim))
        yield from _weight_and_bias(f"{layer}.attention.output.LayerNorm", (dim,))
        yield from _weight_and_bias(f"{layer}.intermediate.dense", (inner, dim))
        yield from _weight_and_bias(f"{layer}.output.dense", (dim, inner))
        yield from _weight_and_bias(f"{layer}.output.LayerNorm", (dim,))


def _weight_and_bias(name: str, size: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", size
    yield f"{name}.bias", size[:1]
