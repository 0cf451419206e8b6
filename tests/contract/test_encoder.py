"""The contract of encoders, with every runtime."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
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
from quarry.engine.encoding.token_vectors import TokenVectors
from quarry.exporters.export import export
from quarry.formats.errors import InvalidDocument, InvalidQuery, InvalidSetting

TEXTS = (
    "The cat sat on the mat.",
    "a",
    "Ünïcödé, 北京 and 😀 emoji: ﬁne?",
    "One sentence here. Another one there! " * 12,
    "x" * 300,
    "supercalifragilisticexpialidocious " * 40,
    "A line\nand another line\n\nand a third one.",
    "3.14159 (pi) [see below] -- \"quoted\" 'text'",
)
BLANK = ("", " ", "\n\t  \r\n", "\u00a0\u2003", "\x00\x01")


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


def as_bytes(encoder: Encoder, text: str) -> bytes:
    """Return everything that an encoder computes from a text."""
    parts = [encoder.encode_query(text)]
    for window in encoder.windows(text):
        parts += [window.values, window.starts, window.ends, window.text_mean, window.first]
    return b"".join(part.tobytes() for part in parts)


def test_it_is_an_encoder_with_attributes_of_the_right_types(encoder: Encoder) -> None:
    assert isinstance(encoder, Encoder)
    assert open_encoder(encoder) is encoder
    assert encoder.name
    assert encoder.identity
    assert encoder.dim > 0
    assert isinstance(encoder.normalize, bool)
    assert encoder.beta is None or encoder.beta > 0
    assert encoder.vector_kinds <= {"token", "pooled"}
    assert encoder.trained_representation is None or isinstance(encoder.trained_representation, str)


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
def test_a_query_is_one_finite_vector(encoder: Encoder, text: str) -> None:
    vector = encoder.encode_query(text)
    assert vector.shape == (encoder.dim,)
    assert vector.dtype == np.float32
    assert np.isfinite(vector).all()
    if encoder.normalize:
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("text", TEXTS)
def test_windows_have_consistent_shapes(encoder: Encoder, text: str) -> None:
    windows = list(encoder.windows(text))
    assert windows
    for window in windows:
        n_tokens = len(window.values)
        assert n_tokens
        assert window.values.shape == (n_tokens, encoder.dim)
        assert window.values.dtype == window.text_mean.dtype == window.first.dtype == np.float32
        assert window.starts.shape == window.ends.shape == (n_tokens,)
        assert window.starts.dtype == window.ends.dtype == np.int64
        assert window.text_mean.shape == window.first.shape == (encoder.dim,)
        assert np.isfinite(window.values).all()


@pytest.mark.parametrize("text", TEXTS)
def test_offsets_are_ascending_code_points_of_the_text(encoder: Encoder, text: str) -> None:
    windows = list(encoder.windows(text))
    starts = np.concatenate([window.starts for window in windows])
    ends = np.concatenate([window.ends for window in windows])
    assert (starts < ends).all()
    assert (np.diff(starts) >= 0).all()
    assert (starts[1:] >= ends[:-1]).all()
    assert starts[0] >= 0
    assert ends[-1] <= len(text)


@pytest.mark.parametrize("text", TEXTS)
def test_no_letter_is_dropped(encoder: Encoder, text: str) -> None:
    covered = np.zeros(len(text), dtype=bool)
    for window in encoder.windows(text):
        for start, end in zip(window.starts, window.ends, strict=True):
            covered[start:end] = True
    assert [c for c, seen in zip(text, covered, strict=True) if c.isalnum() and not seen] == []


@pytest.mark.parametrize("n_threads", [1, 3])
def test_vectors_do_not_depend_on_neighbors_order_or_threads(encoder: Encoder, n_threads: int) -> None:
    alone = {text: as_bytes(encoder, text) for text in TEXTS}
    shuffled = list(TEXTS) * 2
    random.Random(n_threads).shuffle(shuffled)
    with ThreadPoolExecutor(n_threads) as pool:
        together = list(pool.map(lambda text: as_bytes(encoder, text), shuffled))
    assert together == [alone[text] for text in shuffled]


@pytest.mark.parametrize("text", TEXTS)
def test_pooled_vectors_of_documents_are_the_encoders_own(encoder: Encoder, text: str) -> None:
    windows = list(encoder.windows(text))
    if "pooled" not in encoder.vector_kinds:
        assert all(window.pooled is None for window in windows)
        return
    assert {window.pooled.shape for window in windows} == {(encoder.dim,)}
    if len(windows) == 1 and encoder.name != "tiny":  # tiny has different prefixes for queries and documents
        np.testing.assert_allclose(windows[0].pooled, encoder.encode_query(text), atol=1e-5)


def test_different_texts_have_different_vectors(encoder: Encoder) -> None:
    assert len({as_bytes(encoder, text) for text in TEXTS}) == len(TEXTS)


@pytest.mark.parametrize("text", BLANK)
def test_a_text_without_tokens_has_no_windows_and_is_no_query(encoder: Encoder, text: str) -> None:
    assert list(encoder.windows(text)) == []
    with pytest.raises(InvalidQuery, match="no token"):
        encoder.encode_query(text)


@pytest.mark.parametrize("text", ["\ud800", "fine until here \udfff and on"])
def test_lone_surrogates_are_refused(encoder: Encoder, text: str) -> None:
    with pytest.raises(InvalidDocument, match="lone surrogate"):
        list(encoder.windows(text))
    with pytest.raises(InvalidQuery, match="lone surrogate"):
        encoder.encode_query(text)


def test_a_long_text_comes_window_after_window(encoder: Encoder) -> None:
    text = "Some words make a sentence. " * 4_000
    assert len(text) > 100_000
    ends = 0
    for window in islice(encoder.windows(text), 5):
        assert isinstance(window, TokenVectors)
        assert len(window.values) <= 512
        assert text[ends : window.starts[0]].strip() == ""
        ends = int(window.ends[-1])
