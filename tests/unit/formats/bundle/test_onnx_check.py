"""Forbidden parts of a bundle's graph are found before a runtime reads it."""

from __future__ import annotations

import random
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.indexes.format_samples import write_over

from quarry.engine.bundled import default_bundle_path
from quarry.formats.bundle.onnx_check import check_graph
from quarry.formats.errors import CorruptFile

WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)


def external(location, offset="0", length="24", **more):
    tensor = numpy_helper.from_array(WEIGHTS, "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": offset, "length": length, **more}.items():
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    return tensor


def model(*nodes, tensors=(), **more):
    chosen = nodes or (helper.make_node("Identity", ["x"], ["y"]),)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph(list(chosen), "g", [value], [], list(tensors))
    return helper.make_model(graph, **more)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onnx"


def refused(path, made, match, data=()):
    write_over(path, made if isinstance(made, bytes) else made.SerializeToString())
    with pytest.raises(CorruptFile, match=match) as caught:
        check_graph(path, dict(data))
    assert caught.value.path == path


def accepted(path, made, data=()):
    write_over(path, made.SerializeToString())
    check_graph(path, dict(data))


def test_the_bundled_graph_is_fine():
    check_graph(default_bundle_path() / "model.onnx", {})


@pytest.mark.parametrize("domain", ["", "ai.onnx", "com.microsoft"])
def test_known_domains(path, domain):
    accepted(path, model(helper.make_node("Gelu", ["x"], ["y"], domain=domain)))


@pytest.mark.parametrize("domain", ["ai.onnx.ml", "my.own", "com.microsoft.nchwc", "com.microsoft ", "\udcff"])
def test_other_domains(path, domain):
    made = model(helper.make_node("Gelu", ["x"], ["y"], domain="PLACE.HOLDER" if "\udcff" in domain else domain))
    blob = made.SerializeToString().replace(b"PLACE.HOLDER", b"PLACE.HOLD\xff\xff")
    refused(path, blob, "an operator of a domain that is not allowed")


def nested(node, depth):
    for _ in range(depth):
        inner = helper.make_graph([node], "inner", [], [])
        node = helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)
    return node


def test_a_domain_deep_inside(path):
    refused(path, model(nested(helper.make_node("Evil", [], [], domain="evil"), 2)), r"found evil\.Evil")


def test_graphs_nested_too_deep(path):
    accepted(path, model(nested(helper.make_node("Identity", ["x"], ["y"]), 4)))
    refused(path, model(nested(helper.make_node("Identity", ["x"], ["y"]), 9)), "nested too deep")


def test_functions_and_training(path):
    opsets = [helper.make_opsetid("", 20)]
    function = helper.make_function("", "F", ["x"], ["y"], [helper.make_node("Identity", ["x"], ["y"])], opsets)
    refused(path, model(functions=[function]), "functions or training")
    made = model()
    made.training_info.add()
    refused(path, made, "functions or training")


@pytest.mark.parametrize("operator", ["Loop", "Scan", "GreedySearch"])
def test_operators_that_may_never_end_are_refused(path, operator):
    refused(path, model(nested(helper.make_node(operator, ["x"], ["y"]), 1)), f"never end.*found {operator}")


@pytest.mark.parametrize("operator", ["EPContext", "Snpe", "PythonOp", "PythonOpGrad", "TritonOp"])
@pytest.mark.parametrize("domain", ["com.microsoft", ""])
def test_references_to_files_or_code_outside_the_graph(path, operator, domain):
    node = helper.make_node(
        operator, ["x"], ["y"], domain=domain, ep_cache_context="../../secret.bin", embed_mode=0
    )
    for depth in (0, 2):
        refused(path, model(nested(node, depth)), rf"the operator {operator} .*found {domain}\.{operator}")


# Operators of ONNX Runtime whose attributes of texts or graphs are harmless: activations, modes, kinds of padding.
HARMLESS = {
    *("AttnLSTM", "CDist", "CausalConvWithState", "ConvTransposeWithDynamicPads", "CropAndResize"),
    *("DynamicQuantizeLSTM", "DynamicSparseAttention", "FusedConv", "FusedGemm", "FusedMatMulActivation"),
    *("GatedDeltaNet", "GatedRMSNorm", "GemmFloat8", "GridSample", "GroupQueryAttention", "LinearAttention"),
    *("MatMulNBitsMlp", "MaxpoolWithMask", "MoE", "NhwcConv", "NhwcFusedConv", "NhwcMaxPool"),
    *("MatMulPacked", "MoEPacked", "PackedSparseAttentionIndexer", "PackedSparseAttentionIndexerMerge", "Pad"),
    *("PagedAttention", "QLinearAveragePool", "QLinearConv", "QMoE", "RouterGateUpProj"),
    *("SparseAttentionIndexer", "SparsePagedAttention", "Tokenizer", "VarlenCausalConvWithState"),
}


def test_every_operator_that_could_name_something_was_looked_at(path):
    """Every operator of ONNX Runtime with texts or graphs among its attributes is refused or known as harmless."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    suspicious = {
        schema.name
        for schema in get_all_operator_schema()
        if schema.domain == "com.microsoft"
        and any(re.search("STRING|GRAPH", str(attribute.type)) for attribute in schema.attributes.values())
    }
    assert {"EPContext", "Snpe", "BeamSearch"} <= suspicious
    for operator in suspicious - HARMLESS:
        refused(path, model(helper.make_node(operator, ["x"], ["y"], domain="com.microsoft")), operator)


def hidden(key, content):
    """Return a field whose number ONNX Runtime reads as `key`, because it reads only 32 bits."""
    key += 2**32
    digits = [key >> shift & 0x7F for shift in range(0, 35, 7)]
    return bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1], len(content)]) + content


def test_a_field_that_only_a_runtime_sees(path):
    node = helper.make_node("Evil", ["x"], ["z"], domain="evil").SerializeToString()
    outside = model(opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("evil", 1)], ir_version=10)
    inside = outside.graph.SerializeToString() + hidden(1 << 3 | 2, node)
    outside.ClearField("graph")
    made = outside.SerializeToString() + bytes([7 << 3 | 2, len(inside)]) + inside
    with pytest.raises(Exception, match="Evil"):
        onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    refused(path, made, "a field's number")


PLACES = {
    "initializer": lambda tensor: model(tensors=[tensor]),
    "constant": lambda tensor: model(helper.make_node("Constant", [], ["y"], value=tensor)),
    "deep": lambda tensor: model(nested(helper.make_node("Constant", [], ["y"], value=tensor), 2)),
}


@pytest.mark.parametrize("place", PLACES)
def test_weights_in_known_files_only(path, place):
    data = {"model.onnx.data": 24}
    accepted(path, PLACES[place](external("model.onnx.data")), data)
    accepted(path, PLACES[place](external("model.onnx.data", length=None, offset=None)), data)
    for location in ("../secret", "/etc/passwd", "other.data", "", "./model.onnx.data", "model.onnx.data\0", "é"):
        refused(path, PLACES[place](external(location)), "is in another file", data)
    refused(path, PLACES[place](external("model.onnx.data")), "no data outside the graph")


def test_weights_of_sparse_tensors(path):
    sparse = onnx.SparseTensorProto(values=external("../secret"), dims=[6])
    made = model()
    made.graph.sparse_initializer.append(sparse)
    refused(path, made, "is in another file")


def test_weights_that_are_not_marked(path):
    tensor = external("../secret")
    tensor.data_location = TensorProto.DEFAULT
    refused(path, model(tensors=[tensor]), "is in another file")


BEYOND = [("1", "24"), ("25", "0"), ("0", "25"), ("-1", "3"), ("0", "x"), ("9" * 30, "1"), ("", "1"), ("٣", "1")]


@pytest.mark.parametrize(("offset", "length"), BEYOND)
def test_weights_beyond_the_end(path, offset, length):
    made = model(tensors=[external("model.onnx.data", offset, length)])
    refused(path, made, "beyond the end of its file", {"model.onnx.data": 24})


@pytest.mark.parametrize(
    "blob",
    [b"", b"\0", b"not this", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x38\x01", b"\x3a\x05\x0a"],
)
def test_a_file_that_is_not_a_model(path, blob):
    refused(path, blob, "ONNX model|1 byte")


def test_every_truncation_and_many_changes_end_in_an_answer(path):
    whole = PLACES["deep"](external("model.onnx.data")).SerializeToString()
    generator = random.Random(0)
    blobs = [whole[:length] for length in range(len(whole))]
    for _ in range(400):
        changed = bytearray(whole)
        for _ in range(generator.randrange(1, 4)):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
        blobs.append(bytes(changed))
    n_refused = 0
    for blob in blobs:
        path.write_bytes(blob)
        try:
            check_graph(path, {"model.onnx.data": 24})
        except CorruptFile:
            n_refused += 1
    assert n_refused > len(whole) // 2
