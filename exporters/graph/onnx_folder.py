"""Reads the network of a checkpoint that has a graph, ``onnx/model.onnx`` or ``model.onnx``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import TensorProto, compose, version_converter

from quarry.engine.encoding.runtimes.onnx_session import INPUT_NAMES
from quarry.exporters.checkpoint.external_data import read_model
from quarry.exporters.graph.builder import OPSET, Graph
from quarry.exporters.graph.head import Backbone
from quarry.formats.errors import CorruptFile, InvalidSetting

__all__ = ["open_graph"]

_HIDDEN_NAMES = ("token_vectors", "last_hidden_state", "token_embeddings")
_PREFIX = "source."
_LEAST_OPSET = 18  # of the operators in heads
_STANDARD = ("", "ai.onnx")


def open_graph(path: Path) -> Callable[[], Backbone]:
    """Read a graph and return a function that copies it.

    Inputs, int64: ``input_ids``, and optionally ``attention_mask`` and ``token_type_ids``. One output must be the
    last hidden states, (batch, length, dim) float32: ``last_hidden_state`` or ``token_embeddings``, or the only
    output of that rank. Other outputs are dropped; the head is built from the checkpoint.

    Raises:
        CorruptFile: see `quarry.exporters.checkpoint.external_data.read_model`.
        InvalidSetting: it has other inputs or no such output, or cannot be converted to a newer opset.
    """
    model = _convert_to_opset(_read_checked(path), path)
    inputs = {value.name for value in model.graph.input}
    if "input_ids" not in inputs or not inputs <= INPUT_NAMES:
        raise InvalidSetting(
            "the graph's inputs are not those of an encoder",
            path=path,
            expected=sorted(INPUT_NAMES),
            actual=sorted(inputs),
        )
    hidden, n_hidden = _find_hidden(model, path)
    named = compose.add_prefix(
        model, _PREFIX, rename_inputs=False
    )  # no name may equal one in the head or an output
    return lambda: Backbone(Graph.extend(named, ""), _PREFIX + hidden, n_hidden)


def _read_checked(path: Path) -> onnx.ModelProto:
    model = read_model(path)
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:  # the checker's errors have no public common class
        raise CorruptFile(f"not a valid graph: {str(error)[:300]}", path=path) from error
    return model


def _convert_to_opset(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """Convert a graph of standard operators to an opset that heads can use."""
    version = next((entry.version for entry in model.opset_import if entry.domain in _STANDARD), 0)
    if version >= _LEAST_OPSET:
        return model
    try:
        return version_converter.convert_version(model, OPSET)
    except Exception as error:  # the converter's errors have no public common class
        raise InvalidSetting(
            f"the graph cannot be converted to opset {OPSET}: {error}",
            path=path,
            expected=_LEAST_OPSET,
            actual=version,
        ) from error


def _find_hidden(model: onnx.ModelProto, path: Path) -> tuple[str, int]:
    """Return the name of the output with the last hidden states, and their dimension."""
    outputs = {value.name: value.type.tensor_type for value in model.graph.output}
    fitting = {
        name: kind.shape.dim[2].dim_value
        for name, kind in outputs.items()
        if kind.elem_type == TensorProto.FLOAT and len(kind.shape.dim) == 3 and kind.shape.dim[2].dim_value > 0
    }
    chosen = [name for name in _HIDDEN_NAMES if name in fitting] or list(fitting)
    if len(chosen) != 1 and not (chosen and chosen[0] in _HIDDEN_NAMES):
        raise InvalidSetting(
            "no output of the graph is the last hidden states",
            path=path,
            expected=f"one of {', '.join(_HIDDEN_NAMES)}, (batch, length, dim) float32",
            actual=", ".join(outputs),
        )
    return chosen[0], fitting[chosen[0]]
