"""Trains what has the interface of a learner, step by step, and keeps checkpoints of the run."""

from __future__ import annotations

import math
import pickle
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from tqdm import tqdm

from quarry.formats.container.directory import sync_folder, sync_tree
from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.training.data.batches import Batch, Mixture
from quarry.training.loop.history import History
from quarry.training.loop.optimizer import OptimizerSettings, learning_rate, make_optimizer, set_learning_rate
from quarry.training.model.network import Network, read_weights

__all__ = ["Checkpoints", "Learner", "LoopSettings", "Trainer"]


class Learner(Protocol):
    """A network, and the gradient of a batch of queries and documents.

    Attributes:
        network: what is trained.
    """

    @property
    def network(self) -> Network: ...  # noqa: D102

    def parameters(self) -> Mapping[str, tuple[torch.nn.Parameter, float]]:
        """Trained parameters beside the network's, by name, each with its factor of the learning rate."""
        ...

    def backward(self, batch: Batch, step: int) -> dict[str, float]:
        """Add the gradients of a batch to the parameters' and return the terms of the loss by name.

        Random draws depend on the learner's seed and the step's number alone.
        """
        ...

    def validate(self) -> float | None:
        """nDCG@10 of the network as it is on held-out queries; None without any."""
        ...

    def write(self, folder: Path) -> None:
        """Write the checkpoint into a new folder."""
        ...

    def trained_weights(self, folder: Path) -> Path:
        """The folder of the network's weights in a checkpoint that `write` wrote: that, or one in it."""
        ...


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """The ``[training]`` table of a recipe.

    Attributes:
        steps: those of the whole run; 0: weights stay, and the run makes of them what `OutputSettings` says.
        batch_size: queries in a batch.
        chunk_size: texts, or pairs of a reranker, in one graph; see `GradientCache`.
        n_negatives: hard negatives of each query.
        seed: the seed of every random choice.
        checkpoint_every: steps between checkpoints.
        validate_every: steps between validations; 0: only before the first step and after the last.
    """

    steps: int
    batch_size: int = 32
    chunk_size: int = 64
    n_negatives: int = 0
    seed: int = 0
    checkpoint_every: int = 50
    validate_every: int = 0

    def __post_init__(self) -> None:
        least = {"steps": 0, "batch_size": 2, "chunk_size": 1, "n_negatives": 0, "seed": 0}
        least |= {"checkpoint_every": 1, "validate_every": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise InvalidSetting(
                    f"{name} is out of range", expected=f"{low} or more", actual=getattr(self, name)
                )


@dataclass
class Trainer:
    """One run: from its latest checkpoint, or from the start, to its last step.

    A run that was killed and resumed ends with the same weights as one that was not, on the same machine with the
    same number of threads: the batch, the draws and the learning rate of a step depend on its number alone, and a
    checkpoint keeps weights and optimizer in full.

    Attributes:
        folder: the folder of the run: ``checkpoints``, ``history.jsonl``.
        learner: what is trained.
        mixture: the batches.
        settings: the settings of the loop.
        optimizer_settings: the settings of the optimizer.
        before_step: is called with the number of each step before its batch is drawn (to mine negatives).
    """

    folder: Path
    learner: Learner
    mixture: Mixture
    settings: LoopSettings
    optimizer_settings: OptimizerSettings
    before_step: Callable[[int], None] = lambda _: None
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.history = History(self.folder / "history.jsonl")
        self._checkpoints = Checkpoints(self.folder / "checkpoints")
        self._optimizer = make_optimizer(self.learner.network, self.learner.parameters(), self.optimizer_settings)

    def run(self, *, show_progress: bool) -> None:
        """Train to the last step.

        Raises:
            CorruptFile: the latest checkpoint cannot be read, or is of another model.
            InvalidSetting: training diverged.
        """
        first = self._resume()
        self.history.rewind(first)
        if first == 0:
            self._validate(0)
        steps = range(first, self.settings.steps)
        with tqdm(steps, initial=first, total=self.settings.steps, unit="step", disable=not show_progress) as bar:
            for step in bar:
                bar.set_postfix(self._step(step))
                done = step + 1
                is_last = done == self.settings.steps
                if is_last or (self.settings.validate_every and done % self.settings.validate_every == 0):
                    self._validate(done)
                if is_last or done % self.settings.checkpoint_every == 0:
                    self._save(done)

    def _step(self, step: int) -> dict[str, str]:
        started = time.perf_counter()
        self.before_step(step)
        self.learner.network.model.train()
        batch = self.mixture.batch(step)
        self._optimizer.zero_grad(set_to_none=True)
        terms = self.learner.backward(batch, step)
        trained = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        norm = float(torch.nn.utils.clip_grad_norm_(trained, self.optimizer_settings.max_norm))
        if not math.isfinite(norm):
            raise InvalidSetting(
                f"training diverged at step {step}: the gradient is not finite; its checkpoints stay",
                path=self.folder,
                expected="a smaller learning rate or scale",
                actual=terms,
            )
        rate = learning_rate(self.optimizer_settings, step, self.settings.steps)
        set_learning_rate(self._optimizer, rate)
        self._optimizer.step()
        duration = time.perf_counter() - started
        self.history.append(
            {"step": step, "source": batch.source, "terms": terms, "norm": norm, "rate": rate, "seconds": duration}
        )
        return {"loss": f"{sum(terms.values()):.3f}"}

    def _validate(self, step: int) -> None:
        measured = self.learner.validate()
        if measured is None:
            return
        # The record belongs to the step before, with which it is dropped or kept when the run resumes.
        self.history.append({"step": max(0, step - 1), "ndcg_10": measured})

    def _save(self, step: int) -> None:
        own = {name: parameter.detach() for name, (parameter, _) in self.learner.parameters().items()}
        state = {"step": step, "optimizer": self._optimizer.state_dict(), "objective": own}
        self._checkpoints.save(step, state, self.learner.write)

    def _resume(self) -> int:
        """Load the latest checkpoint; return the number of finished steps."""
        latest = self._checkpoints.latest()
        if latest is None:
            return 0
        step, folder = latest
        state = self._checkpoints.load(folder)
        try:
            self._load(folder, state)
        except (OSError, SafetensorError) as error:
            raise CorruptFile(f"the weights of the checkpoint cannot be read: {error}", path=folder) from error
        except (RuntimeError, ValueError, KeyError) as error:
            raise CorruptFile(f"the checkpoint is not of this model: {error}", path=folder) from error
        return step

    def _load(self, folder: Path, state: dict[str, Any]) -> None:
        self.learner.network.load_weights(read_weights(self.learner.trained_weights(folder)))
        for name, (parameter, _) in self.learner.parameters().items():
            with torch.no_grad():
                parameter.copy_(state["objective"][name])
        self._optimizer.load_state_dict(state["optimizer"])


_NAME = re.compile(r"step-(\d{8})")
_STATE_NAME = "state.pt"
_N_KEPT = 2  # of the latest checkpoints


class Checkpoints:
    """The checkpoints of a run: folders ``step-00000100`` that are written aside and renamed when complete.

    Args:
        folder: the folder of the checkpoints.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def latest(self) -> tuple[int, Path] | None:
        """The number of finished steps and the folder of the latest checkpoint; None when there is none."""
        complete = self._complete()
        return complete[-1] if complete else None

    def save(self, step: int, state: dict[str, Any], write_model: Callable[[Path], None]) -> Path:
        """Write a checkpoint after `step` steps; after a power loss it is whole or not there.

        Args:
            step: number of finished steps.
            state: tensors and plain values.
            write_model: writes the model's files into a folder, which it makes.
        """
        target = self._folder / f"step-{step:08d}"
        partial = self._folder / f".{target.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_model(partial)
        torch.save(state, partial / _STATE_NAME)
        sync_tree(partial)
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
        sync_folder(self._folder)
        for _, old in self._complete()[:-_N_KEPT]:
            shutil.rmtree(old)
        return target

    def load(self, folder: Path) -> dict[str, Any]:
        """Read the state of a checkpoint; nothing in it is executed.

        Raises:
            CorruptFile: it cannot be read.
        """
        try:
            state: dict[str, Any] = torch.load(folder / _STATE_NAME, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError) as error:
            raise CorruptFile(
                f"the state of the run cannot be read: {error}", path=folder / _STATE_NAME
            ) from error
        return state

    def _complete(self) -> list[tuple[int, Path]]:
        if not self._folder.is_dir():
            return []
        named = [(_NAME.fullmatch(path.name), path) for path in self._folder.iterdir()]
        return sorted((int(match[1]), path) for match, path in named if match)
