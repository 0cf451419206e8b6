"""Small networks of many kinds with random weights, made by transformers, which exports are compared with."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.models.tiny_checkpoint import WORDS, tokenizer_object

N_POSITIONS, DIM, N_WORDS = 24, 32, len(WORDS)

_SIZES = {
    "vocab_size": N_WORDS,
    "hidden_size": DIM,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
_PADDED = {**_SIZES, "max_position_embeddings": N_POSITIONS + 2, "pad_token_id": 1, "type_vocab_size": 1}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {**_SIZES, "max_position_embeddings": N_POSITIONS},
    "distilbert": {
        "vocab_size": N_WORDS, "dim": DIM, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
        "max_position_embeddings": N_POSITIONS,
    },
    "roberta": _PADDED,
    "xlm-roberta": _PADDED,
    "camembert": _PADDED,
    "mpnet": {**_PADDED, "max_position_embeddings": 200, "relative_attention_num_buckets": 32},
    "electra": {  # torch traces it, which takes twice as long for two layers
        **_SIZES, "num_hidden_layers": 1, "embedding_size": 16, "max_position_embeddings": N_POSITIONS,
    },
    "modernbert": {
        **_SIZES, "max_position_embeddings": N_POSITIONS, "global_attn_every_n_layers": 2, "local_attention": 8,
        "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3,
    },
}  # fmt: skip

Array = npt.NDArray[np.float64]


class TorchNetwork:
    """A network in torch, and the folder that it is saved in."""

    def __init__(self, folder: Path, kind: str) -> None:
        torch = pytest.importorskip("torch", reason="the reference networks need torch")
        transformers = pytest.importorskip("transformers", reason="the networks need transformers")
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = transformers.AutoConfig.for_model(kind, **CONFIGS[kind])
            model = transformers.AutoModelForMaskedLM.from_config(config, attn_implementation="eager").eval()
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    spread = 0.3 if name.endswith("bias") or "orm" in name else 1.5 * parameter.shape[-1] ** -0.5
                    parameter.add_(torch.randn_like(parameter) * spread)
            model.save_pretrained(folder)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer_object()), "utf-8")
        self.folder, self._model, self._torch = folder, model, torch

    def run(self, ids: Array, mask: Array) -> tuple[Array, Array]:
        """Return the last hidden states (batch, length, dim) and the words' logits (batch, length, n_words)."""
        with self._torch.no_grad():
            found = self._model(
                input_ids=self._torch.from_numpy(ids),
                attention_mask=self._torch.from_numpy(mask),
                output_hidden_states=True,
            )
        return found.hidden_states[-1].double().numpy(), found.logits.double().numpy()
