"""The contract of encoders, with every runtime."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.indexes.embedding_function import EmbeddingFunction
from support.indexes.word_encoder import WordEncoder
from support.models.tiny_checkpoint import random_weights, write_checkpoint

from quarry.engine.encoding.encoder import Encoder
from quarry.engine.encoding.functions.function_encoder import FunctionEncoder
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.encoding.runtimes.batched_encoder import BatchedEncoder
from quarry.engine.encoding.runtimes.onnx_runner import OnnxRunner
from quarry.exporters.export import export
from quarry.formats.errors import InvalidSetting
from quarry.testing import EncoderContract
from quarry.testing.models import TEXTS


def tiny_fp32(folder: Path) -> Encoder:
    prompts = {"query": "q: ", "document": "d: "}
    checkpoint = write_checkpoint(folder / "tiny", prompts=prompts)
    return open_encoder(export(checkpoint, folder / "bundle", "fp32").path)


def tiny_unnormalized(folder: Path) -> Encoder:
    checkpoint = write_checkpoint(folder / "tiny", pooling="cls_token", normalize=False)
    return open_encoder(export(checkpoint, folder / "bundle", "fp32").path)


def tiny_variant(precision: str, folder: Path) -> Encoder:
    checkpoint = write_checkpoint(folder / "tiny")
    return open_encoder(export(checkpoint, folder / "bundle", precision, texts=TEXTS, retrieval=False).path)


def tiny_with_two_graphs(folder: Path) -> Encoder:
    checkpoint = write_checkpoint(folder / "tiny")
    queries = write_checkpoint(folder / "queries", weights=random_weights(seed=1))
    return open_encoder(export(checkpoint, folder / "bundle", "fp32", query_checkpoint=queries).path)


def tiny_batched(folder: Path) -> Encoder:
    pytest.importorskip("torch", reason="what runs batches gives torch's tensors")
    checkpoint = write_checkpoint(folder / "tiny", prompts={"query": "q: ", "document": "d: "})
    bundle = export(checkpoint, folder / "bundle", "fp32")
    return BatchedEncoder(bundle, partial(OnnxRunner, device="cpu"))


ENCODERS: dict[str, Callable[[Path], Encoder]] = {
    "bundled int8": lambda _: open_encoder(None),
    "bundled lean": lambda _: open_encoder(None, lean=True),
    "tiny fp32": tiny_fp32,
    "tiny unnormalized": tiny_unnormalized,
    "tiny fp16": partial(tiny_variant, "fp16"),
    "tiny int8-weights": partial(tiny_variant, "int8-weights"),
    "tiny with two graphs": tiny_with_two_graphs,
    "tiny batched": tiny_batched,
    "words": lambda _: WordEncoder(),
    "function": lambda _: FunctionEncoder(EmbeddingFunction(24), dim=24, name="function", passage_words=8),
    "function unnormalized": lambda _: FunctionEncoder(
        EmbeddingFunction(24), dim=24, name="function", normalize=False, max_in_flight=2, batch_size=2
    ),
}


@pytest.fixture(scope="module", params=ENCODERS.values(), ids=ENCODERS)
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return request.param(tmp_path_factory.mktemp("encoder"))


class TestContract(EncoderContract):
    """The tests that encoders of other packages have to pass too."""


@pytest.mark.parametrize("name", ["vector_kinds", "trained_representation", "normalize"])
def test_an_object_that_lacks_an_attribute_is_not_an_encoder(name: str) -> None:
    class Partial:
        def windows(self, text: str) -> None: ...
        def encode_query(self, text: str) -> None: ...

    for attribute in ("name", "identity", "dim", "normalize", "beta", "vector_kinds", "trained_representation"):
        if attribute != name:
            setattr(Partial, attribute, None)
    with pytest.raises(InvalidSetting, match="not an encoder"):
        open_encoder(Partial())  # type: ignore[arg-type]
    setattr(Partial, name, None)
    assert isinstance(Partial(), Encoder)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        *(("name", value) for value in (5, "", "x" * 1025, "\ud800")),
        *(("identity", value) for value in (None, "", "i" * 129)),
        *(("dim", value) for value in (0, True, 8.0, np.int64(8), 1 << 17)),
        *(("normalize", value) for value in (1, "no", None)),
        *(("beta", value) for value in (0.0, "2", float("nan"), float("inf"))),
        *(("vector_kinds", value) for value in (frozenset(), "token", {"words"}, None)),
    ],
)
def test_an_attribute_that_an_index_cannot_store_is_named(attribute: str, value: object) -> None:
    class Changed:
        name = identity = "changed"
        dim, normalize, beta, vector_kinds, trained_representation = 8, True, None, {"token"}, None

        def windows(self, text: str) -> None: ...
        def encode_query(self, text: str) -> None: ...

    assert open_encoder(Changed()).name == "changed"
    setattr(Changed, attribute, value)
    with pytest.raises(InvalidSetting, match=f"{attribute} of the encoder is not valid"):
        open_encoder(Changed())


@pytest.mark.parametrize("text", TEXTS)
def test_pooled_vectors_of_documents_are_the_encoders_own(encoder: Encoder, text: str) -> None:
    windows = list(encoder.windows(text))
    if "pooled" not in encoder.vector_kinds:
        assert all(window.pooled is None for window in windows)
        return
    assert {window.pooled.shape for window in windows} == {(encoder.dim,)}
    if len(windows) == 1 and encoder.name != "tiny":  # tiny has different prefixes for queries and documents
        np.testing.assert_allclose(windows[0].pooled, encoder.encode_query(text), atol=1e-5)
