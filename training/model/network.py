"""The transformer under training."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.training.model.projection import HEAD_NAME, PROJECTION, read_projection, read_projection_weights
from quarry.training.model.tokens import TokenBatch

__all__ = [
    "WEIGHTS_NAME",
    "EncoderNetwork",
    "Network",
    "Precision",
    "check_request",
    "load_network",
    "load_pretrained",
    "move",
    "read_weights",
]

WEIGHTS_NAME = "model.safetensors"

Precision = str
"""``fp32``, or ``bf16``: matrix products in bfloat16 by autocast, weights and sums in float32."""

_PRECISIONS = ("fp32", "bf16")
_PREDICTOR = "cls.predictions."  # in the names of its weights
_TIED = ("decoder.weight", "decoder.bias")
_OFFSET_POSITIONS = {"camembert", "mpnet", "roberta", "xlm-roberta"}  # begin behind the padding token's id
_DROPOUTS = (  # names of the probabilities, by kind of network
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
    *("dropout", "attention_dropout", "seq_classif_dropout"),
)
_NEW_LAYERS = ("pooler.", "classifier.", f"{_PREDICTOR}decoder.")  # that a checkpoint may lack, or has elsewhere


@dataclass(frozen=True, eq=False)
class Network:
    """A transformers model and the folder it was loaded from.

    Attributes:
        model: the model.
        folder: the folder of the checkpoint; its tokenizer.json belongs to the model.
        precision: the precision of matrix products.
    """

    model: torch.nn.Module
    folder: Path
    precision: Precision

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer of the checkpoint."""
        return self.folder / "tokenizer.json"

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.model.parameters()).device

    def trained_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Names and values of the parameters that are not frozen, each once."""
        seen: set[int] = set()
        for name, value in self._named_parameters():
            if value.requires_grad and id(value) not in seen:
                seen.add(id(value))
                yield name, value

    def freeze(self, prefixes: tuple[str, ...]) -> None:
        """Train all parameters but those whose names start with one of the prefixes.

        Raises:
            InvalidSetting: no parameter starts with one of them.
        """
        parameters = list(self._named_parameters())
        for prefix in prefixes:
            if not any(name.startswith(prefix) for name, _ in parameters):
                raise InvalidSetting("no parameter to freeze has this name", path=self.folder, actual=repr(prefix))
        for _, parameter in parameters:
            parameter.requires_grad = True
        for name, parameter in parameters:
            if prefixes and name.startswith(prefixes):  # one that has two names is frozen by either
                parameter.requires_grad = False

    def weights(self) -> dict[str, torch.Tensor]:
        """Copies of all weights by their names in a checkpoint: float32, on the CPU."""
        floats = {name: values for name, values in self._state().items() if values.is_floating_point()}
        return {name: values.detach().cpu().float().contiguous().clone() for name, values in floats.items()}

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take over weights that `weights` returned.

        Raises:
            ValueError: some are missing, unknown, or of another shape.
        """
        expected = self.weights()
        wrong = sorted(expected.keys() ^ weights.keys())
        wrong += [name for name in expected.keys() & weights.keys() if expected[name].shape != weights[name].shape]
        if wrong:
            raise ValueError(f"the weights do not fit: {', '.join(wrong[:3])}")
        self._load(weights)

    def files(self) -> dict[str, dict[str, torch.Tensor]]:
        """The weights by the names of the files that a checkpoint has them in."""
        return {WEIGHTS_NAME: self.weights()}

    def _named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        yield from self.model.named_parameters()

    def _state(self) -> dict[str, torch.Tensor]:
        return dict(self.model.state_dict())

    def _load(self, weights: Mapping[str, torch.Tensor]) -> None:
        self.model.load_state_dict(dict(weights), strict=False)

    def _autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()


@dataclass(frozen=True, eq=False)
class EncoderNetwork(Network):
    """A model that gives ``last_hidden_state`` for ``input_ids`` and ``attention_mask``.

    Attributes:
        predictor: the masked-language-model head, None unless it was requested.
        projection: a linear layer that follows the model, None if there is none.
    """

    predictor: torch.nn.Module | None = None
    projection: torch.nn.Linear | None = None

    @property
    def dim(self) -> int:
        """Length of a token vector."""
        return int(self.model.config.hidden_size) if self.projection is None else self.projection.out_features

    @property
    def max_tokens(self) -> int | None:
        """Most tokens that the network has positions for; None if they are not limited."""
        config = self.model.config
        positions: int | None = getattr(config, "max_position_embeddings", None)
        if positions is None or config.model_type not in _OFFSET_POSITIONS:
            return positions
        return positions - int(config.pad_token_id) - 1

    def hidden(self, tokens: TokenBatch) -> torch.Tensor:
        """The last hidden states, projected: (n_texts, longest, dim) float32; those of padding mean nothing."""
        placed = tokens.to(self.device)
        with self._autocast():
            states = self.model(input_ids=placed.ids, attention_mask=placed.mask).last_hidden_state.float()
        return states if self.projection is None else self.projection(states)

    def files(self) -> dict[str, dict[str, torch.Tensor]]:
        """The weights by the names of files; those of the projection are in one of their own."""
        (name, weights), *_ = super().files().items()
        head = {each: weights.pop(each) for each in list(weights) if each.startswith(PROJECTION)}
        return {name: weights, HEAD_NAME: head} if head else {name: weights}

    def word_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits over the vocabulary, by the masked-language-model head: (n_texts, longest, n_words) float32."""
        assert self.predictor is not None
        with self._autocast():
            logits: torch.Tensor = self.predictor(hidden)
        return logits.float()

    def _named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        yield from super()._named_parameters()
        if self.predictor is not None:
            for name, value in self.predictor.named_parameters():
                yield f"{_PREDICTOR}{name}", value
        if self.projection is not None:
            for name, value in self.projection.named_parameters():
                yield f"{PROJECTION}{name}", value

    def _state(self) -> dict[str, torch.Tensor]:
        state = super()._state()
        if self.predictor is not None:
            tied = _TIED if self._has_tied_words() else _TIED[1:]
            head = self.predictor.state_dict().items()
            state |= {f"{_PREDICTOR}{name}": value for name, value in head if name not in tied}
        if self.projection is not None:
            state |= {f"{PROJECTION}{name}": value for name, value in self.projection.state_dict().items()}
        return state

    def _load(self, weights: Mapping[str, torch.Tensor]) -> None:
        own = {name: values for name, values in weights.items() if not name.startswith((_PREDICTOR, PROJECTION))}
        super()._load(own)
        for prefix, part in ((_PREDICTOR, self.predictor), (PROJECTION, self.projection)):
            if part is not None:
                head = {
                    name.removeprefix(prefix): values
                    for name, values in weights.items()
                    if name.startswith(prefix)
                }
                part.load_state_dict(head, strict=False)

    def _has_tied_words(self) -> bool:
        """Whether the head predicts words by the vectors that the network reads them with."""
        assert self.predictor is not None
        words = self.model.get_submodule("embeddings.word_embeddings").get_parameter("weight")
        return self.predictor.get_submodule("decoder").get_parameter("weight") is words


def load_network(
    folder: Path,
    *,
    precision: Precision = "fp32",
    device: str = "cpu",
    frozen: tuple[str, ...] = (),
    dropout: float = 0.0,
    mlm: bool = False,
) -> EncoderNetwork:
    """Load a Hugging Face checkpoint, with the projection behind it if it has one.

    Attention is computed eagerly: on CPUs the backward pass of the fused kernel takes nearly twice as long.

    Args:
        folder: with config.json, model.safetensors and tokenizer.json.
        precision: the precision of matrix products.
        device: the device of the weights.
        frozen: parameters whose name starts with one of these are not trained.
        dropout: probability of the dropout of hidden states and attention, instead of the checkpoint's.
        mlm: whether to load the masked-language-model head, too.

    Raises:
        InvalidSetting: a file is missing, precision or device is unknown, no parameter begins with one of
            `frozen`, or there is no masked-language-model head of BERT's kind.
        CorruptFile: weights or configuration cannot be read, or contradict each other.
    """
    from transformers import AutoModel, AutoModelForMaskedLM

    check_request(folder, precision)
    if mlm:
        _check_predictor(folder)
    model = load_pretrained(AutoModelForMaskedLM if mlm else AutoModel, folder, dropout)
    predictor = move(model.get_submodule("cls.predictions"), device) if mlm else None
    if mlm:
        model = model.base_model
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # it follows the last hidden states, and is random when a checkpoint has none
    projection = read_projection(folder, int(model.config.hidden_size))
    if projection is not None:
        if mlm:
            raise InvalidSetting(
                "the masked-language-model head cannot be used with a projection", path=folder / HEAD_NAME
            )
        move(projection, device)
    network = EncoderNetwork(move(model, device), folder, precision, predictor, projection)
    network.freeze(frozen)
    return network


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a network, as `Network.weights` returns them, from the files of a checkpoint.

    Raises:
        OSError, SafetensorError: a file cannot be read.
    """
    return load_file(folder / WEIGHTS_NAME) | read_projection_weights(folder)


class _AutoModel(Protocol):
    @classmethod
    def from_pretrained(
        cls, path: str, /, **settings: object
    ) -> tuple[torch.nn.Module, Mapping[str, Collection[object]]]: ...


def load_pretrained(kind: type[_AutoModel], folder: Path, dropout: float, **config: object) -> torch.nn.Module:
    """Load a model of transformers in float32, without messages; see `load_network`.

    Args:
        kind: one of the library's ``Auto`` classes.
        folder: the folder of the checkpoint, with the files that `check_request` looks for.
        dropout: probability.
        config: values that replace those of config.json.

    Raises:
        CorruptFile: weights or configuration cannot be read, or contradict each other.
    """
    from transformers import AutoConfig

    try:
        with _silent():
            settings = AutoConfig.from_pretrained(str(folder), local_files_only=True, **config)
            for name in _DROPOUTS:
                if hasattr(settings, name):
                    setattr(settings, name, dropout)
            model, report = kind.from_pretrained(
                str(folder),
                config=settings,
                attn_implementation="eager",
                dtype=torch.float32,
                local_files_only=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CorruptFile(f"the checkpoint cannot be loaded: {error}", path=folder) from error
    _check_loaded(folder, report)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    return model


def _check_loaded(folder: Path, report: Mapping[str, Collection[object]]) -> None:
    """Refuse a checkpoint of whose weights some were left random, but for `_NEW_LAYERS`."""
    unfit = sorted(map(str, report["mismatched_keys"]))
    if unfit:
        raise CorruptFile(
            "the shape of a weight contradicts config.json, or the model has more than one label",
            path=folder / "model.safetensors",
            actual=unfit[0],
        )
    lost = sorted(name for name in map(str, report["missing_keys"]) if not any(new in name for new in _NEW_LAYERS))
    if lost:
        raise CorruptFile("the checkpoint lacks a weight", path=folder / "model.safetensors", expected=lost[0])


def move(model: torch.nn.Module, device: str) -> torch.nn.Module:
    """Move a model to a device.

    Raises:
        InvalidSetting: there is no such device.
    """
    try:
        return model.to(device)
    except (AssertionError, RuntimeError) as error:
        raise InvalidSetting(
            f"the device cannot be used: {error}", expected="cpu, cuda, cuda:1", actual=repr(device)
        ) from error


def check_request(folder: Path, precision: Precision) -> None:
    """Check what a checkpoint is loaded from.

    Raises:
        InvalidSetting: a file is missing, or the precision is unknown.
    """
    if precision not in _PRECISIONS:
        raise InvalidSetting("unknown precision", expected=" or ".join(_PRECISIONS), actual=repr(precision))
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise InvalidSetting("the checkpoint lacks a file", path=folder, expected=name)


def _check_predictor(folder: Path) -> None:
    from safetensors import safe_open

    path = folder / "model.safetensors"
    try:
        with safe_open(path, "pt") as file:
            names = set(file.keys())
    except SafetensorError as error:
        raise CorruptFile(f"the weights cannot be read: {error}", path=path) from error
    if f"{_PREDICTOR}bias" not in names:
        raise InvalidSetting(
            "the checkpoint has no masked-language-model head of BERT's kind",
            path=folder / "model.safetensors",
            expected=f"{_PREDICTOR}bias",
        )


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
