"""Sources of the graph of a checkpoint's network: weights, a trace by torch, or a stored graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quarry.exporters.checkpoint.checkpoint import Checkpoint, read_network
from quarry.exporters.checkpoint.networks import read_network_shape
from quarry.formats.errors import InvalidSetting

if TYPE_CHECKING:
    from quarry.exporters.graph.head import Backbone

__all__ = ["GRAPH_SOURCES", "GraphSource", "open_graph_source"]

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
    from quarry.exporters.graph.onnx_folder import open_graph

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
