"""The transformer under training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from quarry.formats.errors import InvalidSetting
from quarry.training.model.tokens import TokenBatch

__all__ = ["EncoderNetwork", "Precision", "load_network"]

Precision = str
"""``fp32``, or ``bf16``: matrix products in bfloat16 by autocast, weights and sums in float32."""

_PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True, eq=False)
class EncoderNetwork:
    """A transformers model and the folder it was loaded from.

    Attributes:
        model: gives ``last_hidden_state`` for ``input_ids`` and ``attention_mask``.
        folder: of the checkpoint; its tokenizer.json belongs to the model.
        precision: of matrix products.
    """

    model: torch.nn.Module
    folder: Path
    precision: Precision

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer of the checkpoint."""
        return self.folder / "tokenizer.json"

    @property
    def dim(self) -> int:
        """Length of a token vector."""
        return int(self.model.config.hidden_size)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    def hidden(self, tokens: TokenBatch) -> torch.Tensor:
        """The last hidden states: (n_texts, longest, dim) float32; those of padding mean nothing."""
        placed = tokens.to(self.device)
        is_bf16 = self.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16) if is_bf16 else nullcontext():
            found = self.model(input_ids=placed.ids, attention_mask=placed.mask).last_hidden_state
        return found.float()

    def trained_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Names and values of the parameters that are not frozen."""
        return ((name, value) for name, value in self.model.named_parameters() if value.requires_grad)


def load_network(
    folder: Path,
    *,
    precision: Precision = "fp32",
    device: str = "cpu",
    frozen: tuple[str, ...] = (),
    dropout: float = 0.0,
) -> EncoderNetwork:
    """Load a Hugging Face checkpoint.

    Attention is computed eagerly: on CPUs the backward pass of the fused kernel takes nearly twice as long.

    Args:
        folder: with config.json, model.safetensors and tokenizer.json.
        precision: of matrix products.
        device: where to put the weights.
        frozen: parameters whose name starts with one of these are not trained.
        dropout: probability of the dropout of hidden states and attention, instead of the checkpoint's.

    Raises:
        InvalidSetting: a file is missing, the precision is unknown, or no parameter begins with one of `frozen`.
    """
    from transformers import AutoModel

    if precision not in _PRECISIONS:
        raise InvalidSetting("unknown precision", expected=" or ".join(_PRECISIONS), actual=repr(precision))
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise InvalidSetting("the checkpoint lacks a file", path=folder, expected=name)
    with _silent():
        model = AutoModel.from_pretrained(
            str(folder),
            attn_implementation="eager",
            dtype=torch.float32,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            local_files_only=True,
        )
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # it follows the last hidden states, and is random when a checkpoint has none
    names = [name for name, _ in model.named_parameters()]
    for prefix in frozen:
        if not any(name.startswith(prefix) for name in names):
            raise InvalidSetting("no parameter to freeze has this name", path=folder, actual=repr(prefix))
    for name, parameter in model.named_parameters():
        parameter.requires_grad = not name.startswith(frozen)
    return EncoderNetwork(model.to(device), folder, precision)


@contextmanager
def _silent() -> Iterator[None]:
    """Without the warnings, the report of missing weights and the progress bar of transformers."""
    from transformers.utils import logging

    level, shows_progress = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if shows_progress:
            logging.enable_progress_bar()
