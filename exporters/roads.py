"""The ways from a checkpoint to the graph of its network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from exporters.checkpoint import Checkpoint, read_network
from exporters.networks import network_shape
from formats.errors import InvalidSetting

if TYPE_CHECKING:
    from exporters.head_graph import Backbone

__all__ = ["ROADS", "open_road"]

ROADS = ("auto", "direct", "torch")


def open_road(checkpoint: Checkpoint, road: str) -> Callable[[], Backbone]:
    """Read a network; what is returned makes its graph, a new one at every call.

    Args:
        checkpoint: where it is.
        road: ``direct``: built from the weights; ``torch``: traced by it; ``auto``: direct where it can be.

    Raises:
        InvalidSetting: the network cannot be built from its weights, and that was asked for.
        BackendUnavailable: torch is wanted and not installed.
        CorruptFile: a file of the checkpoint does not hold what it should.
    """
    aggregation = checkpoint.head.aggregation
    mlm = aggregation is not None and aggregation.mlm
    if road == "direct" or (road == "auto" and _is_direct(checkpoint)):
        from exporters.bert_graph import build_backbone

        network = read_network(checkpoint)
        return lambda: build_backbone(network, mlm)
    from exporters.torch_graph import trace

    return trace(checkpoint, mlm)


def _is_direct(checkpoint: Checkpoint) -> bool:
    try:
        network_shape(checkpoint.config, checkpoint.path)
    except InvalidSetting:
        return False
    return True
