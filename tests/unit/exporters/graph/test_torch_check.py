"""A traced graph is compared with the network it was traced from, here a substitute for a torch module."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.models.tiny_checkpoint import WORDS, write_checkpoint

from quarry.exporters.checkpoint.checkpoint import Checkpoint, read_checkpoint
from quarry.exporters.graph.torch_trace import check_traced
from quarry.exporters.parity.sample_texts import sample_texts
from quarry.formats.errors import InvalidSetting

Array = npt.NDArray[np.int64]
TABLE = np.random.default_rng(0).normal(size=(len(WORDS), 8)).astype(np.float32)


def network(ids: Array, mask: Array) -> npt.NDArray[np.float32]:
    return TABLE[ids] * mask[..., np.newaxis].astype(np.float32)


@pytest.fixture(scope="module")
def graph() -> ModelProto:
    """Return the same network as an ONNX graph."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["vectors"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "axis"], ["column"]),
        helper.make_node("Mul", ["vectors", "column"], ["last_hidden_state"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["b", "l", 8])
    constants = [numpy_helper.from_array(TABLE, "table"), numpy_helper.from_array(np.array([2]), "axis")]
    whole = helper.make_graph(nodes, "g", inputs, [output], constants)
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return read_checkpoint(write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny"))


def test_the_same_is_the_same(graph: ModelProto, checkpoint: Checkpoint) -> None:
    seen: list[tuple[int, ...]] = []

    def run(ids: Array, mask: Array) -> npt.NDArray[np.float32]:
        seen.append(ids.shape)
        assert (mask.sum(axis=1) > 0).all()
        return network(ids, mask)

    check_traced(graph, run, checkpoint, len(WORDS))
    assert seen[:3] == [(1, 1), (3, 5), (2, checkpoint.window)]
    assert len(seen) == 3 + 8


def test_a_difference_in_one_text_is_named(graph: ModelProto, checkpoint: Checkpoint) -> None:
    calls = iter(range(100))

    def run(ids: Array, mask: Array) -> npt.NDArray[np.float32]:
        found = network(ids, mask)
        if next(calls) == 3 + 5:  # the sixth text
            found[0, 2] = -found[0, 2]
        return found

    text = repr(sample_texts(8)[5])[:20].replace("(", r"\(").replace("*", r"\*")
    with pytest.raises(
        InvalidSetting, match=rf"other vectors than torch; the largest difference is in {text}.*found -1\.0"
    ):
        check_traced(graph, run, checkpoint, len(WORDS))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_numbers_are_a_difference(
    graph: ModelProto, checkpoint: Checkpoint, value: float
) -> None:
    def run(ids: Array, mask: Array) -> npt.NDArray[np.float32]:
        found = network(ids, mask)
        if ids.shape == (3, 5):
            found[0] = value
        return found

    with pytest.raises(InvalidSetting, match=r"random tokens.*found nan"), np.errstate(all="ignore"):
        check_traced(graph, run, checkpoint, len(WORDS))


def test_what_the_mask_leaves_out_does_not_matter(graph: ModelProto, checkpoint: Checkpoint) -> None:
    def run(ids: Array, mask: Array) -> npt.NDArray[np.float32]:
        return np.where(mask[..., np.newaxis] == 1, network(ids, mask), np.float32(7))

    check_traced(graph, run, checkpoint, len(WORDS))
