"""The network of a reranker under training: pairs of a query and a text in, scores out."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from quarry.training.model.checkpoint_files import COPIED_NAMES, WEIGHTS_NAME
from quarry.training.model.network import Network, Precision, load_pretrained
from quarry.training.model.pairs import PairBatch

__all__ = ["CrossEncoder", "load_cross_encoder", "write_cross_encoder"]

_BACKBONE = "bert."


@dataclass(frozen=True, eq=False)
class CrossEncoder(Network):
    """A model that gives one logit for a pair (Nogueira and Cho 2019): a linear layer on the pooled [CLS]."""

    def scores(self, pairs: PairBatch) -> torch.Tensor:
        """Score pairs: (n_pairs,) float32."""
        placed = pairs.to(self.device)
        with self._autocast():
            found = self.model(
                input_ids=placed.ids, attention_mask=placed.mask, token_type_ids=placed.types
            ).logits[:, 0]
        return found.float()


def load_cross_encoder(
    folder: Path,
    *,
    precision: Precision = "fp32",
    device: str = "cpu",
    frozen: tuple[str, ...] = (),
    dropout: float = 0.0,
    seed: int = 0,
) -> CrossEncoder:
    """Load a cross-encoder, or make one of an encoder of the BERT family.

    Args:
        folder: with config.json, model.safetensors and tokenizer.json.
        precision: of matrix products.
        device: of the weights.
        frozen: parameters whose names, without ``bert.``, start with one of these are not trained.
        dropout: probability of the dropout of hidden states and attention, instead of the checkpoint's.
        seed: of the layers that an encoder lacks: the classifier, often the pooler.

    Raises:
        InvalidSetting: a file is missing, the precision is unknown, or no parameter begins with one of `frozen`.
    """
    from transformers import AutoModelForSequenceClassification

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = load_pretrained(AutoModelForSequenceClassification, folder, precision, dropout, num_labels=1)
    network = CrossEncoder(model.to(device), folder, precision)
    names = {name for name, _ in model.named_parameters()}
    network.freeze(tuple(_BACKBONE + each if each not in names else each for each in frozen))
    return network


def write_cross_encoder(network: CrossEncoder, folder: Path, window: int, card: str) -> None:
    """Write weights in float32, tokenizer and configuration into a new folder.

    Args:
        network: the weights.
        folder: to make.
        window: most tokens of a pair that the exported reranker reads at once.
        card: README.md.
    """
    folder.mkdir(parents=True)
    for name in COPIED_NAMES:
        if (network.folder / name).is_file():
            shutil.copyfile(network.folder / name, folder / name)
    config = json.loads((network.folder / "config.json").read_text("utf-8"))
    config |= {"architectures": [type(network.model).__name__], "id2label": {"0": "LABEL_0"}}
    config |= {"label2id": {"LABEL_0": 0}}
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    about = folder / "tokenizer_config.json"
    tokenizer = json.loads(about.read_text("utf-8")) if about.is_file() else {}
    about.write_text(json.dumps({**tokenizer, "model_max_length": window}, indent=1), "utf-8")
    (folder / "README.md").write_text(card, "utf-8")
    save_file(network.weights(), folder / WEIGHTS_NAME, {"format": "pt"})
