"""Aggretriever: one vector of the [CLS] vector and of the weights of vocabulary entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.training.model.projection import HEAD_NAME
from quarry.training.model.tokens import TokenBatch
from quarry.training.objectives.losses import contrastive_loss
from quarry.training.objectives.objective import StepTargets, Use
from quarry.training.objectives.ranking import RankingObjective, RankingSettings
from quarry.training.objectives.scoring import DocumentRows, normalize_rows

__all__ = ["Aggretriever", "AggretrieverSettings"]

_FIRST_DEVIATION = 0.02  # of the weights of new layers, as BERT's

WordLogits = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class AggretrieverSettings:
    """The settings of Aggretriever's vector.

    Attributes:
        n_cls: dimensions of the [CLS] part; 128 in the paper.
        n_dims: the number of dimensions of the aggregated part; 640 in the paper.
        signed: whether half of each dimension's words count as negative: agg* (Eq. 9), otherwise agg+ (Eq. 6).
        part_weight: the weight of the losses of either part alone, 0 or more; 0.5 in the paper.
    """

    n_cls: int = 128
    n_dims: int = 640
    signed: bool = True
    part_weight: float = 0.5

    def __post_init__(self) -> None:
        if not (1 <= self.n_cls <= 16384 and 1 <= self.n_dims <= 16384 and self.part_weight >= 0):
            raise InvalidSetting("a setting of Aggretriever is out of range", actual=self)


class Aggretriever(RankingObjective):
    """Queries and documents are [CLS] and aggregated words (Lin et al. 2022, section 3), in this order.

    A token's weight is a linear layer of its vector, negative ones counting as 0 (Eq. 5); [CLS] has none. With
    the masked-language-model head it goes to the words that are predicted at its place, by their probabilities
    (Eq. 4), otherwise to the token itself (the ablation of Table 6, row 3). The largest weight of each word
    (Eq. 5), then of each slice of the vocabulary (Eq. 6), is kept. The paper divides the vocabulary at random;
    here a word's slice is its number modulo the number of slices, as in the authors' code, so that nothing needs
    to be stored. With `signed` a dimension has two slices, of which the second counts as negative (Eq. 9). The
    loss is that of the whole vector and of either part (section 3.2); in the paper vectors are not normalized and
    `scale` is 1.

    The layers start at random, the weights of tokens equal, or from the checkpoint if it has some.

    Args:
        ranking: see `RankingSettings`; its pooling is not used.
        settings: sizes of the vector.
        n_hidden: dimension of the network's token vectors.
        seed: the seed of new layers.
        word_logits: the masked-language-model head, (n, longest, n_hidden) to (n, longest, n_words); None: none.
        checkpoint: the folder that may have layers to start from.
        device: the device of the layers.

    Raises:
        InvalidSetting: the checkpoint's layers have other sizes.
    """

    def __init__(
        self,
        ranking: RankingSettings,
        settings: AggretrieverSettings,
        n_hidden: int,
        seed: int,
        word_logits: WordLogits | None = None,
        checkpoint: Path | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(ranking)
        self.parts, self._word_logits = settings, word_logits
        self._layers = _new_layers(settings, n_hidden, seed, device)
        path = None if checkpoint is None else checkpoint / HEAD_NAME
        if path is not None and path.is_file():
            try:
                weights = load_file(path)
            except SafetensorError as error:
                raise CorruptFile(f"the weights cannot be read: {error}", path=path) from error
            self._take_over(weights, path)

    @property
    def representation(self) -> str:
        """``pooled``."""
        return "pooled"

    def represent_queries(self, hidden: torch.Tensor, tokens: TokenBatch) -> torch.Tensor:
        """Make the vectors of queries; see `Objective.represent_queries`."""
        return normalize_rows(self._vectors(hidden, tokens), self.settings.normalize)

    def document_rows(self, hidden: torch.Tensor, tokens: TokenBatch, step: int | None) -> DocumentRows:
        """One row for each document; see `RankingObjective.document_rows`."""
        del step
        return DocumentRows(self._vectors(hidden, tokens), (1,) * len(tokens))

    def loss(
        self, queries: torch.Tensor, documents: DocumentRows | None, step: StepTargets
    ) -> dict[str, torch.Tensor]:
        """L + lambda_1 L_agg + lambda_2 L_[CLS] (section 3.2), and the teachers' terms; see `Objective.loss`."""
        terms = super().loss(queries, documents, step)
        weight = self.parts.part_weight * self.settings.contrastive_weight
        if documents is not None and weight:
            low = self.parts.n_cls
            for name, part in (("[CLS]", slice(0, low)), ("aggregated", slice(low, None))):
                scores = queries[:, part] @ documents.values[:, part].T
                total = contrastive_loss(scores, step.targets, step.relevant, self.settings.scale)
                terms[f"contrastive, {name} alone"] = weight * total
        return terms

    def parameters(self) -> dict[str, tuple[torch.nn.Parameter, float]]:
        """The layers of the head."""
        return {name: (value, 1.0) for name, value in self._layers.items()}

    def use(self) -> Use:
        """The entries of the checkpoint; see `Objective.use`."""
        return Use("aggretriever", self.settings.normalize, self.settings.beta, self.representation)

    def save(self, folder: Path) -> dict[str, object]:
        """Write the layers; see `Objective.save`."""
        layers = {name: value.detach().cpu().float().contiguous() for name, value in self._layers.items()}
        save_file(layers, folder / HEAD_NAME)
        members: dict[str, object] = {"agg_dims": self.parts.n_dims, "mlm": self._word_logits is not None}
        return members if self.parts.signed else {**members, "agg_signed": False}

    def _vectors(self, hidden: torch.Tensor, tokens: TokenBatch) -> torch.Tensor:
        """(n_texts, n_cls + n_dims): [CLS], then the aggregated words."""
        layers = self._layers
        cls = torch.nn.functional.linear(hidden[:, 0], layers["cls.weight"], layers["cls.bias"])
        weights = torch.nn.functional.linear(hidden, layers["terms.weight"], layers["terms.bias"])[:, :, 0].relu()
        is_word = tokens.mask.to(hidden.device, copy=True)
        is_word[:, 0] = 0
        slots = self._slots(hidden, tokens, weights * is_word)
        if not self.parts.signed:
            return torch.cat([cls, slots], 1)
        positive, negative = slots.unflatten(1, (self.parts.n_dims, 2)).unbind(2)
        return torch.cat([cls, torch.where(positive > negative, positive, -negative)], 1)

    def _slots(self, hidden: torch.Tensor, tokens: TokenBatch, weights: torch.Tensor) -> torch.Tensor:
        """The largest weight of a word of each slice: (n_texts, n_slots), 0 or more."""
        n_slots = self.parts.n_dims * (2 if self.parts.signed else 1)
        if self._word_logits is None:
            nothing = weights.new_zeros((len(weights), n_slots))
            return nothing.scatter_reduce(1, tokens.ids.to(hidden.device) % n_slots, weights, "amax")
        best = (self._word_logits(hidden).softmax(2) * weights[:, :, None]).amax(1)
        padded = torch.nn.functional.pad(best, (0, -best.shape[1] % n_slots))
        return padded.unflatten(1, (-1, n_slots)).amax(1)

    def _take_over(self, weights: Mapping[str, torch.Tensor], path: Path) -> None:
        for name, value in self._layers.items():
            if name not in weights or weights[name].shape != value.shape:
                raise InvalidSetting(
                    f"the layer {name!r} of the checkpoint does not fit", path=path, expected=tuple(value.shape)
                )
            with torch.no_grad():
                value.copy_(weights[name])


def _new_layers(
    settings: AggretrieverSettings, n_hidden: int, seed: int, device: torch.device | str
) -> dict[str, torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)

    def normal(n_out: int) -> torch.Tensor:
        return _FIRST_DEVIATION * torch.randn((n_out, n_hidden), generator=generator)

    layers = {
        "terms.weight": normal(1),
        "terms.bias": torch.ones(1),
        "cls.weight": normal(settings.n_cls),
        "cls.bias": torch.zeros(settings.n_cls),
    }
    return {name: torch.nn.Parameter(value.to(device)) for name, value in layers.items()}
