"""The contract of representations, in numpy and on a device (torch's CPU device here)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from quarry.engine.encoding.batch_encoder import PreparedText
from quarry.engine.encoding.token_vectors import TokenVectors
from quarry.engine.encoding.tokenizer import Tokens
from quarry.engine.representation.base import DocumentVectors, Representation
from quarry.engine.representation.first_m import Cls, FirstM
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.pieces import Pieces
from quarry.engine.representation.single import Mean, Passages, Pooled

DIM = 16
LENGTHS = (1, 2, 7, 61, 250)
WINDOW = 60
ON_DEVICE = (Pieces(5), Pieces(4096), KMeans(1), KMeans(4))
IN_NUMPY = (*ON_DEVICE, FirstM(3), Mean(), Cls(), Pooled(), Passages())
FIRST_TOKENS = {FirstM(3): 3, Cls(): 1}  # these use only the first tokens, the others all


@dataclass(frozen=True)
class TokenizedDocument:
    """A text of one-word tokens with a vector for each token."""

    text: str
    prepared: PreparedText
    values: np.ndarray


def make_document(n_tokens: int, seed: int, values: np.ndarray | None = None) -> TokenizedDocument:
    generator = np.random.default_rng(seed)
    words = [
        word + (". " if generator.random() < 0.2 else " ") for word in generator.choice(["Abc", "De"], n_tokens)
    ]
    starts = np.cumsum([0, *(len(word) for word in words[:-1])]).astype(np.int64)
    ends = starts + [len(word.strip(". ")) for word in words]
    bounds = tuple(pairwise([*range(0, n_tokens, WINDOW), n_tokens]))
    if values is None:
        values = generator.standard_normal((n_tokens, DIM)).astype(np.float32)
    return TokenizedDocument(
        "".join(words), PreparedText(Tokens(np.ones(n_tokens, np.int64), starts, ends), bounds), values
    )


def represent_in_numpy(
    representation: Representation, documents: list[TokenizedDocument], normalize: bool
) -> list[DocumentVectors]:
    found = []
    for document in documents:
        tokens, values = document.prepared.tokens, document.values
        windows = [
            TokenVectors(
                values[low:high],
                tokens.starts[low:high],
                tokens.ends[low:high],
                values[low:high].mean(0),
                values[low],
                values[low:high].max(0),
            )
            for low, high in document.prepared.bounds
        ]
        found.append(representation.represent(document.text, windows, normalize))
    return found


def represent_on_device(
    representation: Representation, documents: list[TokenizedDocument], normalize: bool
) -> list[DocumentVectors]:
    torch = pytest.importorskip("torch", reason="representations on a device need torch")
    from quarry.engine.encoding.batch_encoder import DeviceTokens
    from quarry.engine.representation.on_device import device_representation

    on_device = device_representation(representation)
    offsets = np.cumsum([0, *(len(document.values) for document in documents)])
    values = torch.from_numpy(np.concatenate([document.values for document in documents]))
    plans = [on_device.plan(document.text, document.prepared) for document in documents]
    prepared = [document.prepared for document in documents]
    return on_device.represent(DeviceTokens(values, offsets), prepared, plans, normalize)


Represent = Callable[[Representation, list[TokenizedDocument], bool], list[DocumentVectors]]
IMPLEMENTATIONS = [
    *(pytest.param(represent_in_numpy, each, id=f"numpy {each!r}") for each in IN_NUMPY),
    *(pytest.param(represent_on_device, each, id=f"device {each!r}") for each in ON_DEVICE),
]

pytestmark = pytest.mark.parametrize(("represent", "representation"), IMPLEMENTATIONS)


@pytest.fixture(scope="module")
def documents() -> list[TokenizedDocument]:
    return [make_document(length, seed) for seed, length in enumerate(LENGTHS)]


@pytest.mark.parametrize("normalize", [True, False])
def test_centroids_are_finite_float32_rows_with_one_span_tuple_each(
    represent: Represent, representation: Representation, documents: list[TokenizedDocument], normalize: bool
) -> None:
    found = represent(representation, documents, normalize)
    assert len(found) == len(documents)
    for each in found:
        assert each.values.dtype == np.float32
        assert each.values.ndim == 2
        assert each.values.shape[1] == DIM
        assert len(each.values) == len(each.spans) >= 1
        assert np.isfinite(each.values).all()


def test_spans_are_ascending_disjoint_and_begin_and_end_at_tokens(
    represent: Represent, representation: Representation, documents: list[TokenizedDocument]
) -> None:
    for document, each in zip(documents, represent(representation, documents, True), strict=True):
        starts, ends = (
            set(values.tolist()) for values in (document.prepared.tokens.starts, document.prepared.tokens.ends)
        )
        for spans in each.spans:
            assert all(low < high for low, high in spans)
            assert all(one[1] <= other[0] for one, other in pairwise(spans))
            assert {low for low, _ in spans} <= starts
            assert {high for _, high in spans} <= ends


def test_every_token_that_is_used_is_in_a_span(
    represent: Represent, representation: Representation, documents: list[TokenizedDocument]
) -> None:
    for document, each in zip(documents, represent(representation, documents, True), strict=True):
        covered = np.zeros(len(document.text), bool)
        for low, high in (span for spans in each.spans for span in spans):
            covered[low:high] = True
        tokens, n_used = document.prepared.tokens, FIRST_TOKENS.get(representation, len(document.values))
        bounds = zip(tokens.starts[:n_used], tokens.ends[:n_used], strict=True)
        assert all(covered[low:high].all() for low, high in bounds)


def test_normalization_scales_each_centroid_to_norm_1(
    represent: Represent, representation: Representation, documents: list[TokenizedDocument]
) -> None:
    raw, scaled = (represent(representation, documents, normalize) for normalize in (False, True))
    for one, other in zip(raw, scaled, strict=True):
        norms = np.linalg.norm(one.values.astype(np.float64), axis=1, keepdims=True)
        np.testing.assert_allclose(other.values, one.values / norms, atol=1e-5)
        assert one.spans == other.spans


def test_vectors_of_zeros_stay_zeros(represent: Represent, representation: Representation) -> None:
    (found,) = represent(representation, [make_document(9, 0, np.zeros((9, DIM), np.float32))], True)
    assert not found.values.any()


def test_a_document_does_not_depend_on_the_others(
    represent: Represent, representation: Representation, documents: list[TokenizedDocument]
) -> None:
    together = represent(representation, [*documents[::-1], *documents], True)[len(documents) :]
    for document, each in zip(documents, together, strict=True):
        (alone,) = represent(representation, [document], True)
        np.testing.assert_array_equal(alone.values, each.values)
        assert alone.spans == each.spans


def test_input_is_not_modified(
    represent: Represent, representation: Representation, documents: list[TokenizedDocument]
) -> None:
    before = [document.values.copy() for document in documents]
    represent(representation, documents, True)
    for document, values in zip(documents, before, strict=True):
        np.testing.assert_array_equal(document.values, values)
