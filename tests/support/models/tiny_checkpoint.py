"""A BERT checkpoint that is small enough for tests: random weights, sixty words, the files of a real one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from quarry.formats.bundle.folder import SourceRecord
from quarry.formats.bundle.reranker import RerankerSettings, write_reranker_bundle

N_LAYERS, N_HEADS, DIM, INNER, N_POSITIONS = 2, 4, 32, 64, 40
EPSILON = 1e-12
WORDS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *"abcdefghijklmnopqrstuvwxyz.,!?",
    *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"),
)

Weights = dict[str, npt.NDArray[np.float32]]


def random_weights(seed: int = 0) -> Weights:
    """Return weights whose effects are large enough to reveal a wrong transpose or a missing bias."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, scale: float) -> npt.NDArray[np.float32]:
        return rng.normal(0, scale, shape).astype(np.float32)

    weights: Weights = {}

    def linear(name: str, n_out: int, n_in: int) -> None:
        weights[f"{name}.weight"] = normal(n_out, n_in, scale=1.5 / n_in**0.5)
        weights[f"{name}.bias"] = normal(n_out, scale=0.5)

    def layer_norm(name: str) -> None:
        weights[f"{name}.weight"] = 1 + normal(DIM, scale=0.3)
        weights[f"{name}.bias"] = normal(DIM, scale=0.3)

    for kind, n_rows in (("word", len(WORDS)), ("position", N_POSITIONS), ("token_type", 2)):
        weights[f"embeddings.{kind}_embeddings.weight"] = normal(n_rows, DIM, scale=1.0)
    layer_norm("embeddings.LayerNorm")
    for number in range(N_LAYERS):
        layer = f"encoder.layer.{number}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", DIM, DIM)
        linear(f"{layer}.attention.output.dense", DIM, DIM)
        layer_norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", INNER, DIM)
        linear(f"{layer}.output.dense", DIM, INNER)
        layer_norm(f"{layer}.output.LayerNorm")
    return weights


def tokenizer_object() -> dict[str, object]:
    """Return a WordPiece tokenizer of letters that pads and truncates."""
    special = [
        {"id": i, "content": word, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for i, word in enumerate(WORDS[:5])
    ]  # fmt: skip
    frame = {word: {"id": word, "ids": [WORDS.index(word)], "tokens": [word]} for word in ("[CLS]", "[SEP]")}
    single = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ]
    second = [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    return {
        "version": "1.0",
        "truncation": {"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {
            "strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "[PAD]",
        },
        "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": [*single, *second],
                           "special_tokens": frame},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {word: i for i, word in enumerate(WORDS)}},
    }  # fmt: skip


def reranker_weights(seed: int = 0) -> Weights:
    """Return the weights of a cross-encoder: `random_weights` with a prefix, a pooler and a classifier."""
    rng = np.random.default_rng(seed + 1)
    shapes = {
        "bert.pooler.dense.weight": (DIM, DIM),
        "bert.pooler.dense.bias": (DIM,),
        "classifier.weight": (1, DIM),
        "classifier.bias": (1,),
    }
    head = {name: rng.normal(0, shape[-1] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    return {f"bert.{name}": values for name, values in random_weights(seed).items()} | head


CONFIG: Mapping[str, object] = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": DIM,
    "intermediate_size": INNER,
    "layer_norm_eps": EPSILON,
    "max_position_embeddings": N_POSITIONS,
    "num_attention_heads": N_HEADS,
    "num_hidden_layers": N_LAYERS,
    "position_embedding_type": "absolute",
    "type_vocab_size": 2,
    "vocab_size": len(WORDS),
}


RERANKER_CONFIG: Mapping[str, object] = {
    **CONFIG,
    "architectures": ["BertForSequenceClassification"],
    "id2label": {"0": "LABEL_0"},
    "label2id": {"LABEL_0": 0},
}


def write_reranker_checkpoint(
    folder: Path,
    *,
    weights: Weights | None = None,
    config: Mapping[str, object] = RERANKER_CONFIG,
    window: int = 24,
) -> Path:
    """Write a cross-encoder's folder and return it."""
    folder.mkdir(parents=True)
    files = {
        "config.json": config,
        "tokenizer.json": tokenizer_object(),
        "tokenizer_config.json": {"do_lower_case": True, "model_max_length": window},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), "utf-8")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Tiny\n", "utf-8")
    (folder / "LICENSE").write_text("Do what you like.\n", "utf-8")
    save_file(reranker_weights() if weights is None else weights, folder / "model.safetensors")
    return folder


def write_checkpoint(
    folder: Path,
    *,
    weights: Weights | None = None,
    config: Mapping[str, object] = CONFIG,
    pooling: str = "mean_tokens",
    normalize: bool = True,
    prompts: Mapping[str, str] | None = None,
) -> Path:
    """Write a sentence-transformers folder and return it."""
    (folder / "1_Pooling").mkdir(parents=True)
    modules = ["", "1_Pooling", "2_Normalize"][: 3 if normalize else 2]
    kinds = ("Transformer", "Pooling", "Normalize")
    files = {
        "config.json": config,
        "tokenizer.json": tokenizer_object(),
        "modules.json": [
            {"idx": i, "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(zip(modules, kinds, strict=False))
        ],
        "sentence_bert_config.json": {"max_seq_length": 16},
        "1_Pooling/config.json": {
            f"pooling_mode_{mode}": mode == pooling for mode in ("cls_token", "mean_tokens", "max_tokens")
        },
        "config_sentence_transformers.json": {"prompts": prompts or {}},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), "utf-8")
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n# Tiny\n", "utf-8")
    (folder / "LICENSE").write_text("Do what you like.\n", "utf-8")
    save_file(random_weights() if weights is None else weights, folder / "model.safetensors")
    return folder


def write_reranker(folder: Path, model: bytes) -> Path:
    """Write a bundle of a reranker with any graph, and the tokenizer of the checkpoint."""
    settings = RerankerSettings("tiny", "fp32", 64, SourceRecord("model.safetensors", "0" * 64), "mit", None)
    files = {"model.onnx": model, "tokenizer.json": json.dumps(tokenizer_object()).encode()}
    return write_reranker_bundle(folder, settings, files).path


def edit_json(path: Path, **changes: object) -> None:
    """Change members of the object in a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **changes}), "utf-8")
