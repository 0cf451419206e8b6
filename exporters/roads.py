"""The ways from a checkpoint to the graph of its network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from exporters.checkpoint import Checkpoint, read_network

if TYPE_CHECKING:
    from exporters.head_graph import Backbone

__all__ = ["ROADS", "open_road"]

ROADS = ("auto", "direct")


def open_road(checkpoint: Checkpoint, road: str) -> Callable[[], Backbone]:
    """Read a network; what is returned makes its graph, a new one at every call.

    Args:
        checkpoint: where it is.
        road: ``direct``: built from the weights; ``auto`` is the same so far.

    Raises:
        InvalidSetting: the network cannot be built from its weights.
        CorruptFile: a file of the checkpoint does not hold what it should.
    """
    from exporters.bert_graph import build_backbone

    del road
    aggregation = checkpoint.head.aggregation
    mlm = aggregation is not None and aggregation.mlm
    network = read_network(checkpoint)
    return lambda: build_backbone(network, mlm)
