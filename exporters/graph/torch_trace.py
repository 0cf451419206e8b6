"""Traces networks that `bert` cannot build with torch, and compares the graph with the network."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import onnx

from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
from quarry.engine.encoding.tokenizer import Ids, TextTokenizer
from quarry.engine.process.libraries import requiring
from quarry.exporters.checkpoint.checkpoint import WEIGHTS_NAME, Checkpoint
from quarry.exporters.checkpoint.files import count_tensors
from quarry.exporters.checkpoint.networks import T5_KINDS, read_size
from quarry.exporters.parity.encoder import compute_cosines
from quarry.exporters.parity.sample_texts import sample_texts
from quarry.formats.errors import CorruptFile, InvalidSetting

if TYPE_CHECKING:
    import onnx

    from quarry.exporters.graph.head import Backbone


__all__ = ["check_config", "check_traced", "trace"]

Vectors = npt.NDArray[np.float32]

_OPSET = 20  # of ONNX
_HIDDEN, _LOGITS = "last_hidden_state", "logits"
_INPUTS = ("input_ids", "attention_mask")
_EXAMPLE = (2, 7)  # batch and length of the example; torch specializes on 0 and 1
_MOST_TEXTS = 4096  # of a batch of a traced graph
_MOST_CHARACTERS = 400  # of another library's error


def trace(checkpoint: Checkpoint, mlm: bool) -> Callable[[], Backbone]:
    """Trace the network of a checkpoint and return a function that copies its graph.

    Args:
        checkpoint: a folder that transformers can load, with weights in model.safetensors; code in the folder is
            not executed.
        mlm: whether to add the masked-language-model head.

    Raises:
        BackendUnavailable: torch, transformers or onnxscript is not installed.
        InvalidSetting: transformers does not know the network, torch cannot trace it, the graph computes other
            vectors than torch, or `quarry.exporters.graph.torch_trace.check_config` refuses the configuration.
        CorruptFile: the configuration or the weights are not valid.
    """
    model = _load(checkpoint, mlm)
    n_hidden, n_words = checkpoint.n_hidden, read_size(checkpoint.config, "vocab_size", checkpoint.path)
    graph = _export(model, checkpoint, mlm, n_words)
    check_traced(graph, _make_runner(model), checkpoint, n_words)
    return lambda: _make_backbone(graph, n_hidden, n_words if mlm else 0)


def _make_backbone(graph: onnx.ModelProto, n_hidden: int, n_words: int) -> Backbone:
    from quarry.exporters.graph.builder import Graph
    from quarry.exporters.graph.head import Backbone

    return Backbone(Graph.extend(graph, "head_"), _HIDDEN, n_hidden, _LOGITS if n_words else "", n_words)


def _load(checkpoint: Checkpoint, mlm: bool) -> Any:  # noqa: ANN401 - a torch module, and torch may be missing
    needed = f"a network of the kind {checkpoint.config.get('model_type')!r} is exported by torch"
    with requiring(needed, "'.[export-torch]' in a checkout of Quarry", checkpoint.path):
        import onnxscript  # noqa: F401
        import torch
        import transformers
    check_config(checkpoint.config, count_tensors(checkpoint.path / WEIGHTS_NAME), checkpoint.path)
    encoder = T5_KINDS.get(str(checkpoint.config.get("model_type")), "AutoModel")
    kind = getattr(transformers, "AutoModelForMaskedLM" if mlm else encoder)
    with _errors_in(checkpoint, "transformers cannot load"), _suppress_output():
        model, info = kind.from_pretrained(
            checkpoint.path,
            attn_implementation="eager",
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
    outputs = _wrap_outputs(model.eval(), mlm)
    _check_complete(model, outputs, sorted(info["missing_keys"]), checkpoint)
    return outputs


def _check_complete(model: Any, outputs: Any, missing: list[str], checkpoint: Checkpoint) -> None:  # noqa: ANN401
    """Refuse a network whose vectors depend on missing weights, which transformers initializes at random."""
    import torch

    with torch.no_grad(), _errors_in(checkpoint):
        for name, values in model.named_parameters():
            if name in missing:
                values.fill_(torch.nan)
        vectors = outputs(torch.zeros((1, 3), dtype=torch.int64), torch.ones((1, 3), dtype=torch.int64))
    finite = all(bool(each.isfinite().all()) for each in (vectors if isinstance(vectors, tuple) else (vectors,)))
    if missing and not finite:
        raise CorruptFile(
            f"the weights lack {missing[0]!r}",
            path=checkpoint.path,
            expected=f"all of a network of the kind {checkpoint.config.get('model_type')!r}",
            actual=f"{len(missing)} missing",
        )


def _wrap_outputs(model: Any, mlm: bool) -> Any:  # noqa: ANN401
    """Wrap a transformers model: from token ids and mask to hidden states (and logits)."""
    import torch

    class Outputs(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:  # noqa: ANN401
            outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=mlm)
            return (outputs.hidden_states[-1], outputs.logits) if mlm else outputs.last_hidden_state

    return Outputs()


def _export(model: Any, checkpoint: Checkpoint, mlm: bool, n_words: int) -> onnx.ModelProto:  # noqa: ANN401
    """Trace the model into a graph with dynamic batch and length."""
    import torch

    ids = torch.from_numpy(np.random.default_rng(0).integers(0, n_words, _EXAMPLE))
    free = {
        0: torch.export.Dim("batch", min=1, max=_MOST_TEXTS),
        1: torch.export.Dim("length", min=1, max=checkpoint.window),
    }
    with _suppress_output(), _errors_in(checkpoint):
        program = torch.onnx.export(
            model,
            (ids, torch.ones_like(ids)),
            dynamo=True,
            opset_version=_OPSET,
            input_names=list(_INPUTS),
            output_names=[_HIDDEN, _LOGITS][: 1 + mlm],
            dynamic_shapes=(free, free),
            external_data=False,
            verbose=False,
        )
    return cast("onnx.ModelProto", program.model_proto)


def _make_runner(model: Any) -> Callable[[Ids, Ids], Vectors]:  # noqa: ANN401
    """Return a function that runs the model on numpy arrays."""
    import torch

    def run(ids: Ids, mask: Ids) -> Vectors:
        with torch.no_grad():
            outputs = model(torch.from_numpy(ids), torch.from_numpy(mask))
        return cast("Vectors", (outputs[0] if isinstance(outputs, tuple) else outputs).numpy())

    return run


@contextmanager
def _errors_in(checkpoint: Checkpoint, problem: str = "torch cannot run or trace") -> Iterator[None]:
    """Raise errors of the network or the tracer as errors in the checkpoint."""
    try:
        yield
    except Exception as error:  # torch and transformers raise exceptions of many kinds
        text = " ".join(f"{type(error).__name__}: {error}".split())[:_MOST_CHARACTERS]
        raise InvalidSetting(f"{problem} the network: {text}", path=checkpoint.path) from error


@contextmanager
def _suppress_output() -> Iterator[None]:
    """Suppress output, logging and warnings of the tracer."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


_LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "encoder_layers", "num_encoder_layers")
_MOST = 2**24  # tokens, dimensions or words, more than any network has


def check_config(config: Mapping[str, object], n_tensors: int, folder: Path) -> None:
    """Refuse unsafe values in a config.json before transformers builds the network.

    transformers trusts the file: it downloads code that is named there, or builds layers until memory runs out.

    Args:
        config: the contents of config.json.
        n_tensors: number of tensors in the file of weights.
        folder: the checkpoint's folder.

    Raises:
        InvalidSetting: the weights are quantized, or it names third-party code, such as kernels in a repository.
        CorruptFile: it has more layers than the file has tensors, or a size above 2^24.
    """
    if not isinstance(config.get("model_type"), str):
        raise CorruptFile(
            "config.json: bad 'model_type'", path=folder, expected="a string", actual=config.get("model_type")
        )
    for key, value in _list_members(config):
        if key == "quantization_config" and value is not None:
            raise InvalidSetting(
                "quantized weights cannot be exported", path=folder, actual=f"config.json, {key!r}"
            )
        if key.endswith("_implementation") and "/" in str(value):
            raise InvalidSetting(
                f"config.json, {key!r} names third-party code", path=folder, actual=repr(value)[:200]
            )
        most = n_tensors if key in _LAYERS else _MOST
        if type(value) is int and value > most and (key in _LAYERS or _is_size(key)):
            raise CorruptFile(f"config.json: bad {key!r}", path=folder, expected=f"at most {most}", actual=value)


def _is_size(key: str) -> bool:
    return key.endswith(("_size", "_dim", "_embeddings", "_positions", "_heads", "_buckets"))


def _list_members(config: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the members of an object and of all objects inside it."""
    left: list[object] = [config]
    while left:
        each = left.pop()
        if isinstance(each, Mapping):
            yield from each.items()
            left += each.values()
        elif isinstance(each, list):
            left += each


RunNetwork = Callable[[Ids, Ids], Vectors]

_LEAST_COSINE = 0.9999  # of a vector of the graph with that of the network, both in fp32
_KEPT = 0.7  # share of random tokens that the mask keeps
_LONGEST = 2048  # random tokens: torch's memory grows with the square of the length
_N_TEXTS = 8  # that are compared


def check_traced(graph: onnx.ModelProto, run: RunNetwork, checkpoint: Checkpoint, n_words: int) -> None:
    """Refuse a graph whose token vectors or mean vectors differ from torch's.

    They are compared on random tokens with random masks, at lengths from 1 to the window, and on real texts.

    Args:
        graph: computes ``last_hidden_state`` from ``input_ids`` and ``attention_mask``.
        run: the network: (batch, length) int64 ids and mask to (batch, length, dim) float32 hidden states.
        checkpoint: the network's checkpoint.
        n_words: size of the vocabulary.

    Raises:
        InvalidSetting: a vector differs; the message has the largest difference and its text.
    """
    session = import_onnxruntime().InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    cosines: dict[str, float] = {}
    for what, ids, mask in (*_make_random_inputs(n_words, checkpoint.window), *_tokenize_texts(checkpoint)):
        (vectors,) = session.run(["last_hidden_state"], {"input_ids": ids, "attention_mask": mask})
        cosines[what] = _find_least_cosine(vectors, run(ids, mask), mask)
    worst = min(cosines, key=lambda what: np.nan_to_num(cosines[what], nan=-np.inf))
    if not cosines[worst] >= _LEAST_COSINE:
        raise InvalidSetting(
            f"the traced graph computes other vectors than torch; the largest difference is in {worst}",
            path=checkpoint.path,
            expected=f"cosines of at least {_LEAST_COSINE}",
            actual=f"{cosines[worst]:.6f}",
        )


def _make_random_inputs(n_words: int, window: int) -> Iterator[tuple[str, Ids, Ids]]:
    rng = np.random.default_rng(1)
    for shape in ((1, 1), (3, 5), (2, min(window, _LONGEST))):
        mask = (rng.random(shape) < _KEPT).astype(np.int64)
        mask[:, rng.integers(shape[1])] = 1  # at least one token
        yield f"one of {shape} random tokens", rng.integers(0, n_words, shape), mask


def _tokenize_texts(checkpoint: Checkpoint) -> Iterator[tuple[str, Ids, Ids]]:
    tokenizer = TextTokenizer(checkpoint.path / "tokenizer.json")
    for text in sample_texts(_N_TEXTS):
        ids = np.array([tokenizer.encode_with_special_tokens(text).ids[: checkpoint.window]], np.int64)
        yield repr(text[:200]), ids, np.ones_like(ids)


def _find_least_cosine(actual: Vectors, expected: Vectors, mask: Ids) -> float:
    """Return the smallest cosine of token vectors and of texts' means; NaN if a vector is not finite."""
    means = [(vectors * mask[..., np.newaxis]).sum(axis=1) for vectors in (actual, expected)]
    pairs = [(actual[mask == 1], expected[mask == 1]), means]
    return float(np.concatenate([compute_cosines(*pair) for pair in pairs]).min())
