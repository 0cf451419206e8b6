"""The ways from a checkpoint to the graph of its network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quarry.exporters.checkpoint.checkpoint import Checkpoint, read_network
from quarry.exporters.checkpoint.networks import network_shape
from quarry.formats.errors import InvalidSetting

if TYPE_CHECKING:
    from quarry.exporters.graph.head import Backbone

__all__ = ["ROADS", "Road", "open_road"]

ROADS = ("auto", "direct", "torch")


@dataclass(frozen=True, slots=True)
class Road:
    """A network that has been read.

    Attributes:
        n_hidden: length of its token vectors.
        backbone: makes its graph, a new one at every call.
    """

    n_hidden: int
    backbone: Callable[[], Backbone]


def open_road(checkpoint: Checkpoint, road: str) -> Road:
    """Read a network.

    Args:
        checkpoint: where it is.
        road: ``direct``: built from the weights; ``torch``: traced by it; ``auto``: direct where it can be. A
            folder that holds a graph and no weights gives that graph.

    Raises:
        InvalidSetting: the network cannot be built from its weights, and that was asked for; or there is only a
            graph, and it does not fit.
        BackendUnavailable: torch is wanted and not installed.
        CorruptFile: a file of the checkpoint does not hold what it should.
    """
    aggregation = checkpoint.head.aggregation
    mlm = aggregation is not None and aggregation.mlm
    if checkpoint.graph is not None:
        return _given(checkpoint.graph, mlm)
    if road == "direct" or (road == "auto" and _is_direct(checkpoint)):
        from quarry.exporters.graph.bert import build_backbone

        network = read_network(checkpoint)
        return Road(network.shape.dim, lambda: build_backbone(network, mlm))
    from quarry.exporters.graph.torch_trace import trace

    return Road(checkpoint.n_hidden, trace(checkpoint, mlm))


def _given(path: Path, mlm: bool) -> Road:
    from quarry.exporters.graph.onnx_folder import open_graph

    if mlm:
        raise InvalidSetting("this head needs the masked-language-model head, and so the weights", path=path)
    backbone = open_graph(path)
    return Road(backbone().n_hidden, backbone)


def _is_direct(checkpoint: Checkpoint) -> bool:
    try:
        network_shape(checkpoint.config, checkpoint.path)
    except InvalidSetting:
        return False
    return True
