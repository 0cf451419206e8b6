"""Sources of the graph of a checkpoint's network: its weights, a trace by torch, or a graph in its folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, compose, version_converter

from quarry.engine.encoding.runtimes.onnx_session import INPUT_NAMES
from quarry.exporters.checkpoint.checkpoint import Checkpoint, read_network
from quarry.exporters.checkpoint.files import read_model
from quarry.exporters.checkpoint.networks import read_network_shape
from quarry.exporters.graph.builder import OPSET, Graph
from quarry.exporters.graph.head import Backbone
from quarry.formats.errors import CorruptFile, InvalidSetting

if TYPE_CHECKING:
    from quarry.exporters.graph.head import Backbone


__all__ = ["GRAPH_SOURCES", "GraphSource", "open_graph", "open_graph_source"]

GRAPH_SOURCES = ("auto", "direct", "torch")


@dataclass(frozen=True, slots=True)
class GraphSource:
    """A network that has been read.

    Attributes:
        n_hidden: dimension of its token vectors.
        build: builds its graph, a new one at every call.
    """

    n_hidden: int
    build: Callable[[], Backbone]


def open_graph_source(checkpoint: Checkpoint, kind: str = "auto") -> GraphSource:
    """Read the network of a checkpoint.

    Args:
        checkpoint: the checkpoint; if it has a graph and no weights, that graph is used.
        kind: ``direct``: built from the weights without torch; ``torch``: traced by torch; ``auto``: direct if
            the kind of network allows it, otherwise torch.

    Raises:
        InvalidSetting: the network cannot be built from its weights although ``direct`` was requested, or the
            checkpoint has only a graph and the head needs more than that.
        BackendUnavailable: torch is needed and not installed.
        CorruptFile: a file of the checkpoint is not valid.
    """
    aggregation = checkpoint.head.aggregation
    mlm = aggregation is not None and aggregation.mlm
    if checkpoint.graph is not None:
        return _open_stored_graph(checkpoint.graph, mlm)
    if kind == "direct" or (kind == "auto" and _is_direct(checkpoint)):
        from quarry.exporters.graph.bert import build_backbone

        network = read_network(checkpoint)
        return GraphSource(network.shape.dim, lambda: build_backbone(network, mlm))
    from quarry.exporters.graph.torch_trace import trace

    return GraphSource(checkpoint.n_hidden, trace(checkpoint, mlm))


def _open_stored_graph(path: Path, mlm: bool) -> GraphSource:
    from quarry.exporters.graph.sources import open_graph

    if mlm:
        raise InvalidSetting("this head needs the masked-language-model head, and so the weights", path=path)
    build = open_graph(path)
    return GraphSource(build().n_hidden, build)


def _is_direct(checkpoint: Checkpoint) -> bool:
    try:
        read_network_shape(checkpoint.config, checkpoint.path)
    except InvalidSetting:
        return False
    return True


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
        CorruptFile: see `quarry.exporters.checkpoint.files.read_model`.
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
