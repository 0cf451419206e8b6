"""If the graph or tokenizer of a valid bundle fails, the error names it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.models.tiny_checkpoint import WORDS, tokenizer_object, write_reranker

from quarry.engine import CorruptFile, Engine, open_encoder
from quarry.engine.encoding.runtimes.batched_encoder import BatchedEncoder
from quarry.engine.encoding.runtimes.onnx_session import import_onnxruntime
from quarry.formats.bundle.encoder import EncoderSettings, load_bundle, write_bundle
from quarry.formats.bundle.folder import SourceRecord

DIM = 8
TEXT = "a cat sat on a mat"
SOURCE = SourceRecord("model.safetensors", "0" * 64)
ENCODER = EncoderSettings(
    name="hostile",
    precision="fp32",
    dim=DIM,
    window=64,
    pooling="mean",
    normalize=False,
    query_prefix="",
    document_prefix="",
    beta=None,
    trained_representation=None,
    source=SOURCE,
    license="mit",
    parity=None,
)
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
IDS = helper.make_tensor_value_info("input_ids", INT, ["batch", "length"])

Tokenizer = dict[str, Any]


def graph(
    table: np.ndarray, kind: int = FLOAT, last: tuple[str, ...] = (), rank: int = 3, **constants: list[int]
) -> bytes:
    """Return a graph that looks up tokens in a table and sums them; ``last`` is one more node over all tokens."""
    tensors = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([1]), "one")]
    tensors += [numpy_helper.from_array(np.array(value), name) for name, value in constants.items()]
    looked_up = "looked_up" if last else "token_vectors"
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], [looked_up]),
        helper.make_node("ReduceSum", [looked_up, "one"], ["pooled"], keepdims=0),
    ]
    if last:
        nodes.append(helper.make_node(last[0], [looked_up, *last[1:]], ["token_vectors"]))
    outputs = [
        helper.make_tensor_value_info("token_vectors", kind, [*["batch", "length"][: rank - 1], DIM]),
        helper.make_tensor_value_info("pooled", kind, ["batch", DIM]),
    ]
    made = helper.make_graph(nodes, "g", [IDS], outputs, tensors)
    model: onnx.ModelProto = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return bytes(model.SerializeToString())


def filled(value: float, n_rows: int = len(WORDS), kind: type = np.float32) -> np.ndarray:
    return np.full((n_rows, DIM), value, kind)


def bundle(folder: Path, model: bytes, tokenizer: Tokenizer | None = None) -> Path:
    written = json.dumps(tokenizer or tokenizer_object()).encode()
    return write_bundle(folder / "bundle", ENCODER, {"model.onnx": model, "tokenizer.json": written}).path


BOTH = {
    "not a number": (graph(filled(np.nan)), "found numbers that are not finite"),
    "infinite": (graph(filled(-np.inf)), "found numbers that are not finite"),
    "integers": (graph(filled(1, kind=np.int64), INT), "expected finite float32; found int64"),
    "double precision": (graph(filled(1, kind=np.float64), TensorProto.DOUBLE), "found float64"),
    "fewer words than the tokenizer has": (graph(filled(1, 3)), "cannot be run.*out of data bounds"),
}
DOCUMENTS = {
    "fewer vectors than tokens": (
        graph(filled(1), last=("Slice", "zero", "one", "one"), zero=[0]),
        r"wrong shape; expected \(1, 15, 8\); found \(1, 1, 8\)",
    ),
    "one text for a batch": (
        graph(filled(1), last=("Squeeze", "zero"), rank=2, zero=[0]),
        r"wrong shape; expected \(1, 15, 8\); found \(15, 8\)",
    ),
}


@pytest.mark.parametrize("what", BOTH)
def test_a_graph_whose_vectors_cannot_be_used_is_named(tmp_path: Path, what: str) -> None:
    model, found = BOTH[what]
    encoder = open_encoder(bundle(tmp_path, model), runtime="onnx-cpu")
    for run in (encoder.encode_query, lambda text: list(encoder.windows(text))):
        with pytest.raises(CorruptFile, match=rf"model\.onnx: (the output \w+ of )?the graph .*{found}"):
            run(TEXT)


@pytest.mark.parametrize("what", DOCUMENTS)
def test_a_graph_whose_token_vectors_have_another_shape_is_named(tmp_path: Path, what: str) -> None:
    model, found = DOCUMENTS[what]
    encoder = open_encoder(bundle(tmp_path, model), runtime="onnx-cpu")
    assert encoder.encode_query(TEXT).shape == (DIM,)
    with pytest.raises(CorruptFile, match=rf"model\.onnx: the graph returns token_vectors of the {found}"):
        list(encoder.windows(TEXT))


def test_a_batch_with_numbers_that_are_not_finite_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="batches need torch")
    from quarry.engine.encoding.runtimes.onnx_runner import OnnxRunner

    path = bundle(tmp_path, graph(filled(np.nan)))
    encoder = BatchedEncoder(load_bundle(path), lambda opened, name: OnnxRunner(opened, name, device="cpu"))
    with pytest.raises(CorruptFile, match=r"model\.onnx: the output token_vectors of the graph cannot be used"):
        list(encoder.windows(TEXT))


def test_a_batch_that_cannot_be_run_names_the_graph(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="batches need torch")
    from quarry.engine.encoding.runtimes.onnx_runner import OnnxRunner

    path = bundle(tmp_path, graph(filled(1, 3)))
    encoder = BatchedEncoder(load_bundle(path), lambda opened, name: OnnxRunner(opened, name, device="cpu"))
    with pytest.raises(CorruptFile, match=r"model\.onnx: the graph cannot be run"):
        encoder.encode_query(TEXT)


def test_a_graph_is_read_in_the_format_that_was_looked_through(tmp_path: Path) -> None:
    """A graph that resembles ONNX Runtime's own format is loaded as ONNX, the format that was checked."""
    plain = graph(filled(1))
    producer = b"\x12\x08..ORTM.."
    both = producer + plain
    assert onnx.load_model_from_string(both).producer_name == "..ORTM.."
    with pytest.raises(Exception, match="ORT model verification failed"):
        import_onnxruntime().InferenceSession(both, providers=["CPUExecutionProvider"])
    encoders = [
        open_encoder(bundle(tmp_path / name, model), runtime="onnx-cpu")
        for name, model in (("plain", plain), ("both", both))
    ]
    expected, found = (encoder.encode_query(TEXT) for encoder in encoders)
    np.testing.assert_array_equal(found, expected)


def changed(**members: object) -> Callable[[], Tokenizer]:
    return lambda: {**tokenizer_object(), **members}


def of_model(**members: object) -> Callable[[], Tokenizer]:
    return lambda: {**tokenizer_object(), "model": {**tokenizer_object()["model"], **members}}  # type: ignore[dict-item]


def without_frame(**model: object) -> Callable[[], Tokenizer]:
    return changed(model=model, added_tokens=[], post_processor=None)


def charsmap(content: bytes) -> dict[str, str]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}


A, CLS = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
TOKENIZERS = {
    "no words": of_model(vocab={}),
    "no word for unknown ones": of_model(vocab={"[CLS]": 2, "[SEP]": 3}),
    "an unknown type": of_model(type="Magic"),
    "no words at all": without_frame(type="WordLevel", vocab={}, unk_token="[UNK]"),
    "no pairs of bytes": without_frame(type="BPE", vocab={}, merges=[]),
    "no pieces": without_frame(type="Unigram", vocab=[], unk_id=None),
    "nested too deep": changed(normalizer=json.loads('{"type":"Sequence","normalizers":[' * 200 + "]}" * 200)),
    "an invalid map": changed(normalizer=charsmap(b"\xff\xff\xff\x7f")),
    "a map with offsets out of bounds": changed(normalizer=charsmap(b"\x10\0\0\0" + b"\xff" * 16 + b"abc")),
    "an invalid pattern": changed(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated", "invert": False}
    ),
    "a template without a sequence": changed(
        post_processor={
            "type": "TemplateProcessing",
            "single": [CLS],
            "pair": [A],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}},
        }
    ),
    "a template of unknown tokens": changed(
        post_processor={"type": "TemplateProcessing", "single": [CLS, A], "pair": [A], "special_tokens": {}}
    ),
}


@pytest.mark.parametrize("what", TOKENIZERS)
def test_a_tokenizer_that_fails_is_named(tmp_path: Path, what: str) -> None:
    encoder = open_encoder(bundle(tmp_path, graph(filled(1)), TOKENIZERS[what]()), runtime="onnx-cpu")
    with pytest.raises(CorruptFile, match=r"tokenizer\.json: the tokenizer (cannot be read|fails|has no token)"):
        encoder.encode_query(TEXT)


def test_an_interrupt_is_no_failure_of_a_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tokenizers

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tokenizers.Tokenizer, "from_file", interrupted, raising=False)
    with pytest.raises(KeyboardInterrupt):
        open_encoder(bundle(tmp_path, graph(filled(1))), runtime="onnx-cpu").encode_query(TEXT)


@pytest.mark.parametrize(
    ("name", "n_bytes"),
    [("tokenizer.json", 2**27 + 1), ("model.onnx", 2**31), ("query_model.onnx", 2**31), ("LICENSE", 2**36 + 1)],
)
def test_sizes_that_no_file_has_are_refused_before_the_file_is_read(
    tmp_path: Path, name: str, n_bytes: int
) -> None:
    path = bundle(tmp_path, graph(filled(1))) / "bundle.json"
    manifest = json.loads(path.read_bytes())
    manifest["files"][name] = {"sha256": "0" * 64, "n_bytes": n_bytes}
    path.write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(CorruptFile, match=rf"bundle\.json.*files\.{name}\.n_bytes.*expected an integer"):
        load_bundle(path.parent)


@pytest.mark.parametrize(
    ("value", "shape", "match"),
    [
        (np.nan, [1], "the output scores of the graph cannot be used"),
        (1.0, [3], r".*no score for a pair; expected \(1,\); found \(3,\)"),
    ],
)
def test_a_reranker_without_a_score_is_named(
    tmp_path: Path, small_index: Path, value: float, shape: list[int], match: str
) -> None:
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["float"], to=FLOAT),
        helper.make_node("ReduceMean", ["float"], ["mean"], keepdims=0),
        helper.make_node("Add", ["mean", "value"], ["scores"]),
    ]
    tensors = [numpy_helper.from_array(np.full(shape, value, np.float32), "value")]
    output = helper.make_tensor_value_info("scores", FLOAT, ["batch"])
    made = helper.make_graph(nodes, "g", [IDS], [output], tensors)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = write_reranker(tmp_path / "bundle", model.SerializeToString())
    with (
        Engine.open(small_index, reranker=path) as index,
        pytest.raises(CorruptFile, match=rf"model\.onnx: {match}"),
    ):
        index.search("bread", k=1, mode="lexical", rerank=1)
