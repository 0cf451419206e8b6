"""The network of a reranker under training: pairs of a query and a text in, scores out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.training.model.checkpoint_files import write_network
from quarry.training.model.network import Network, Precision, check_request, load_pretrained, move
from quarry.training.model.tokens import PairBatch, PairBatcher

__all__ = ["CrossEncoder", "check_lengths", "load_cross_encoder", "write_cross_encoder"]

_BACKBONE = "bert."
_CONFIG_NAME = "config.json"
_TOKENIZER_CONFIG_NAME = "tokenizer_config.json"
_EXPORTED: Mapping[str, object] = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
}
"""Members of config.json that a reranker's graph is built for; all but the first may be missing."""


@dataclass(frozen=True, eq=False)
class CrossEncoder(Network):
    """A model that gives one logit for a pair (Nogueira and Cho 2019): a linear layer on the pooled [CLS]."""

    def scores(self, pairs: PairBatch) -> torch.Tensor:
        """Score pairs: (n_pairs,) float32."""
        placed = pairs.to(self.device)
        with self._autocast():
            logits = self.model(
                input_ids=placed.ids, attention_mask=placed.mask, token_type_ids=placed.types
            ).logits[:, 0]
        return logits.float()


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
        precision: the precision of matrix products.
        device: the device of the weights.
        frozen: parameters whose names, without ``bert.``, start with one of these are not trained.
        dropout: probability of the dropout of hidden states and attention, instead of the checkpoint's.
        seed: the seed of the layers that an encoder lacks: the classifier, often the pooler.

    Raises:
        InvalidSetting: a file is missing, precision or device is unknown, no parameter begins with one of
            `frozen`, or the network is of a kind that cannot be exported as a reranker.
        CorruptFile: weights or configuration cannot be read, or contradict each other.
    """
    from transformers import AutoModelForSequenceClassification

    check_request(folder, precision)
    _read_settings(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = load_pretrained(AutoModelForSequenceClassification, folder, dropout, num_labels=1)
    network = CrossEncoder(move(model, device), folder, precision)
    names = [name for name, _ in model.named_parameters()]
    inner = {each for each in frozen if any(name.startswith(_BACKBONE + each) for name in names)}
    network.freeze(tuple(_BACKBONE + each if each in inner else each for each in frozen))
    return network


def check_lengths(network: CrossEncoder, pairs: PairBatcher, window: int) -> None:
    """Check that the network reads the pairs of training, and an exported reranker those of its window.

    Args:
        network: reads them.
        pairs: makes those of training.
        window: most tokens of a pair that the exported reranker reads at once.

    Raises:
        InvalidSetting: they are longer than the network reads, or the window has no room for a text.
        CorruptFile: the network has fewer token types than pairs.
    """
    config = network.model.config
    if pairs.max_tokens > config.max_position_embeddings:
        raise InvalidSetting(
            "pairs are longer than the checkpoint reads",
            path=network.folder,
            expected=f"query_tokens, document_tokens and {pairs.frame.n_tokens} special tokens of at most "
            f"{config.max_position_embeddings} in all",
            actual=pairs.max_tokens,
        )
    least = 2 * pairs.frame.n_tokens + 1  # half is the query's
    if min(window, config.max_position_embeddings) < least:
        raise InvalidSetting(
            "the window has no room for text beside query and special tokens",
            expected=f"{least} tokens at least",
            actual=window,
        )
    n_types = 1 + max(int(each.max()) for each in pairs.frame.types if len(each))
    if config.type_vocab_size < n_types:
        raise CorruptFile(
            "config.json: the tokenizer gives a pair more token types",
            path=network.folder,
            expected=f"type_vocab_size of {n_types} at least",
            actual=config.type_vocab_size,
        )


def write_cross_encoder(network: CrossEncoder, folder: Path, window: int, card: str) -> None:
    """Write weights in float32, tokenizer and configuration into a new folder.

    Args:
        network: the weights.
        folder: to make.
        window: most tokens of a pair that the exported reranker reads at once.
        card: README.md.
    """
    config, tokenizer = _read_settings(network.folder)
    config |= {"architectures": [type(network.model).__name__], "id2label": {"0": "LABEL_0"}}
    config |= {"label2id": {"LABEL_0": 0}}
    config.pop("num_labels", None)
    tokenizer |= {"model_max_length": window}
    write_network(network, folder, card)
    for name, content in ((_CONFIG_NAME, config), (_TOKENIZER_CONFIG_NAME, tokenizer)):
        (folder / name).write_text(json.dumps(content, indent=1), "utf-8")


def _read_settings(folder: Path) -> tuple[dict[str, object], dict[str, object]]:
    """The members of config.json and of tokenizer_config.json, which may be missing.

    Raises:
        InvalidSetting: a reranker's graph cannot be built for the network.
        CorruptFile: a file is not a JSON object.
    """
    config, tokenizer = (_read_object(folder / name) for name in (_CONFIG_NAME, _TOKENIZER_CONFIG_NAME))
    for name, only in _EXPORTED.items():
        value = config.get(name, None if name == "model_type" else only)
        if value != only:
            raise InvalidSetting(
                f"a reranker of this kind of network cannot be exported: config.json, {name!r}",
                path=folder,
                expected=only,
                actual=value,
            )
    return config, tokenizer


def _read_object(path: Path) -> dict[str, object]:
    """The members of a JSON object; none without the file."""
    if not path.is_file():
        return {}
    try:
        parsed = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CorruptFile(f"the file is not valid JSON: {error}", path=path) from error
    if not isinstance(parsed, dict):
        raise CorruptFile("the file is not a JSON object", path=path, actual=type(parsed).__name__)
    return parsed
