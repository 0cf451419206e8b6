"""Trains a network for an objective, step by step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tqdm import tqdm

from quarry.formats.errors import CorruptFile, InvalidSetting
from quarry.training.data.batches import Batch
from quarry.training.data.mixture import Mixture
from quarry.training.loop.checkpoints import Checkpoints
from quarry.training.loop.gradient_cache import GradientCache
from quarry.training.loop.history import History
from quarry.training.loop.optimizer import OptimizerSettings, learning_rate, make_optimizer, set_learning_rate
from quarry.training.loop.validation import ValidationSet, validate
from quarry.training.model.checkpoint_files import WEIGHTS_NAME, EncoderFiles, write_checkpoint
from quarry.training.model.network import EncoderNetwork
from quarry.training.model.tokens import TextBatcher
from quarry.training.objectives.objective import Objective, StepTargets
from quarry.training.objectives.teachers import Teacher

__all__ = ["LoopSettings", "Student", "Trainer"]

_QUERIES = "query"


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """The ``[training]`` table of a recipe.

    Attributes:
        steps: of the whole run, 1 at least.
        batch_size: queries in a batch.
        chunk_size: texts encoded with a graph at a time; see `GradientCache`.
        n_negatives: hard negatives of each query.
        seed: of every random choice.
        checkpoint_every: steps between checkpoints.
        validate_every: steps between validations; 0: none.
    """

    steps: int
    batch_size: int = 32
    chunk_size: int = 64
    n_negatives: int = 0
    seed: int = 0
    checkpoint_every: int = 50
    validate_every: int = 0

    def __post_init__(self) -> None:
        least = {"steps": 1, "batch_size": 2, "chunk_size": 1, "n_negatives": 0, "seed": 0}
        least |= {"checkpoint_every": 1, "validate_every": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise InvalidSetting(
                    f"{name} is out of range", expected=f"{low} or more", actual=getattr(self, name)
                )


@dataclass(frozen=True)
class Student:
    """Networks that are trained, and how texts reach them.

    Attributes:
        network: the encoder.
        objective: what for.
        queries: tokenizes queries.
        documents: tokenizes documents.
        files: what a checkpoint says beside its weights.
        document_network: the encoder of documents if it is another one, which is not trained.
    """

    network: EncoderNetwork
    objective: Objective
    queries: TextBatcher
    documents: TextBatcher
    files: EncoderFiles
    document_network: EncoderNetwork | None = None

    def write(self, folder: Path) -> None:
        """Write the checkpoint of an encoder; of two, that of queries lies in a folder of it."""
        if self.document_network is None:
            write_checkpoint(self.network, self.files, folder, self.objective.save)
            return

        def save_parts(within: Path) -> dict[str, object]:
            return {**self.objective.save(within), "query_checkpoint": _QUERIES}

        write_checkpoint(self.document_network, self.files, folder, save_parts)
        write_checkpoint(self.network, self.files, folder / _QUERIES)

    def trained_weights(self, folder: Path) -> Path:
        """The file of the weights under training in a checkpoint that `write` wrote."""
        return (folder if self.document_network is None else folder / _QUERIES) / WEIGHTS_NAME


@dataclass
class Trainer:
    """One run: from its latest checkpoint, or from the start, to its last step.

    A run that was killed and resumed ends with the same weights as one that was not, on the same machine with the
    same number of threads: the batch, the draws and the learning rate of a step depend on its number alone, and a
    checkpoint keeps weights and optimizer in full.

    Attributes:
        folder: of the run: ``checkpoints``, ``history.jsonl``.
        student: what is trained.
        mixture: the batches.
        teachers: whose scores are distilled, by name.
        settings: of the loop.
        optimizer_settings: of the optimizer.
        validation: held-out data, or None.
        before_step: is called with the number of each step before its batch is drawn (to mine negatives).
    """

    folder: Path
    student: Student
    mixture: Mixture
    teachers: Mapping[str, Teacher]
    settings: LoopSettings
    optimizer_settings: OptimizerSettings
    validation: ValidationSet | None = None
    before_step: Callable[[int], None] = lambda _: None
    history: History = field(init=False)

    def __post_init__(self) -> None:
        student = self.student
        self.history = History(self.folder / "history.jsonl")
        self._checkpoints = Checkpoints(self.folder / "checkpoints")
        self._optimizer = make_optimizer(student.network, student.objective, self.optimizer_settings)
        self._cache = GradientCache(
            student.network, student.objective, self.settings.chunk_size, self.settings.seed
        )

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
                if is_last or done % self.settings.checkpoint_every == 0:
                    self._save(done)
                if is_last or (self.settings.validate_every and done % self.settings.validate_every == 0):
                    self._validate(done)

    def _step(self, step: int) -> dict[str, str]:
        started = time.perf_counter()
        self.before_step(step)
        student = self.student
        student.network.model.train()
        batch = self.mixture.batch(step)
        queries = student.queries.batch(batch.queries)
        documents = student.documents.batch(batch.documents) if student.objective.encodes_documents else None
        self._optimizer.zero_grad(set_to_none=True)
        terms = self._cache.backward(queries, documents, self._targets(batch, step), step)
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

    def _targets(self, batch: Batch, step: int) -> StepTargets:
        place = self.student.network.device
        return StepTargets(
            targets=torch.from_numpy(batch.targets).to(place),
            relevant=torch.from_numpy(batch.relevant).to(place),
            documents=torch.from_numpy(batch.numbers).to(place),
            source=batch.source,
            teacher_scores={name: each.scores(batch, step).to(place) for name, each in self.teachers.items()},
            positives=tuple(torch.from_numpy(each).to(place) for each in batch.positives),
        )

    def _validate(self, step: int) -> None:
        if self.validation is None:
            return
        student = self.student
        encoders = (student.network, student.document_network or student.network)
        found = validate(self.validation, encoders, student.objective, student.queries, student.documents, step)
        # The record belongs to the step before, with which it is dropped or kept when the run resumes.
        self.history.append({"step": max(0, step - 1), "ndcg_10": found})

    def _save(self, step: int) -> None:
        own = {name: parameter.detach() for name, (parameter, _) in self.student.objective.parameters().items()}
        state = {"step": step, "optimizer": self._optimizer.state_dict(), "objective": own}
        self._checkpoints.save(step, state, self.student.write)

    def _resume(self) -> int:
        """Load the latest checkpoint; return the number of finished steps."""
        latest = self._checkpoints.latest()
        if latest is None:
            return 0
        step, folder = latest
        state = self._checkpoints.load(folder)
        try:
            self._load(folder, state)
        except (RuntimeError, ValueError, KeyError) as error:
            raise CorruptFile(f"the checkpoint is not of this model: {error}", path=folder) from error
        return step

    def _load(self, folder: Path, state: dict[str, Any]) -> None:
        self.student.network.load_weights(load_file(self.student.trained_weights(folder)))
        for name, (parameter, _) in self.student.objective.parameters().items():
            with torch.no_grad():
                parameter.copy_(state["objective"][name])
        self._optimizer.load_state_dict(state["optimizer"])
