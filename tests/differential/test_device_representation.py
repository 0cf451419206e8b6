"""Centroids computed on a device (torch's CPU device) are compared with those of `quarry.engine.representation`.

Pieces agree within the rounding of float32 sums. Clusters have the same tokens, and their centroids agree within
that rounding; a token may be in another cluster only if two centroids are equally near within the oracle's
rounding.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models.tiny_checkpoint import write_checkpoint
from support.models.tokenized import prepared_text

from quarry.engine.bundled import default_bundle_path
from quarry.engine.encoding.encoder import TokenVectors
from quarry.engine.representation.kmeans import MAX_ITERATIONS, KMeans, kmeans
from quarry.engine.representation.pieces import Pieces
from quarry.exporters.export import export

torch = pytest.importorskip("torch", reason="centroids on a device need torch")

pytestmark = pytest.mark.usefixtures("one_torch_thread")

from support.models.batched import batched_encoder  # noqa: E402
from support.models.downloads import Downloads  # noqa: E402

from quarry.engine.encoding.batch_encoder import DeviceTokens  # noqa: E402
from quarry.engine.encoding.runtimes.device_batches import mean_over_windows  # noqa: E402
from quarry.engine.representation.on_device import device_representation, kmeans_of_documents  # noqa: E402

ROUNDING = 2e-6  # of a mean of vectors of length 1 or so
EQUALLY_NEAR = 1e-6  # of squared distances: the oracle's rounding in float32
DIM = 24
REPRESENTATIONS = [Pieces(), Pieces(3), Pieces(4096), KMeans(1), KMeans(4), KMeans(40)]


def made_text(generator, n_tokens):
    """Return a text of one-token words with random sentence ends, and where its tokens start and end."""
    words = [
        word + (". " if generator.random() < 0.2 else " ")
        for word in generator.choice(["Abc", "De", "F"], n_tokens)
    ]
    stops = np.cumsum([len(word) for word in words])
    starts = (stops - [len(word) for word in words]).astype(np.int64)
    ends = starts + [len(word.strip()) for word in words]
    return "".join(words), starts, ends


def windows_of(generator, n_tokens):
    """Return consecutive windows of 1 to 60 tokens."""
    cuts = [0]
    while cuts[-1] < n_tokens:
        cuts.append(min(n_tokens, cuts[-1] + int(generator.integers(1, 61))))
    return tuple(pairwise(cuts))


def made_documents(generator, lengths):
    """Return prepared texts with random token vectors of length 1 around a few directions."""
    made = []
    for n_tokens in lengths:
        text, starts, ends = made_text(generator, n_tokens)
        values = (
            generator.standard_normal((n_tokens, DIM))
            + 3 * generator.standard_normal((5, DIM))[generator.integers(0, 5, n_tokens)]
        )
        values = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
        made.append((text, prepared_text(starts, ends, windows_of(generator, n_tokens)), values))
    return made


def by_numpy(representation, document, normalize):
    text, prepared, values = document
    windows = [
        TokenVectors(
            values[first:stop],
            prepared.tokens.starts[first:stop],
            prepared.tokens.ends[first:stop],
            values[first:stop].mean(0),
            values[first],
        )
        for first, stop in prepared.bounds
    ]
    return representation.represent(text, windows, normalize)


def on_device(representation, documents, normalize):
    there = device_representation(representation)
    texts, prepared, values = zip(*documents, strict=True)
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in values])])
    tokens = DeviceTokens(torch.from_numpy(np.concatenate(values)), offsets)
    plans = [there.plan(text, each) for text, each in zip(texts, prepared, strict=True)]
    return there.represent(tokens, prepared, plans, normalize)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("representation", REPRESENTATIONS, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_random_documents(representation, normalize, seed):
    generator = np.random.default_rng(seed)
    documents = made_documents(generator, [1, 1, 2, 500, *generator.integers(1, 200, 30).tolist()])
    found = on_device(representation, documents, normalize)
    assert len(found) == len(documents)
    for document, each in zip(documents, found, strict=True):
        expected = by_numpy(representation, document, normalize)
        assert each.spans == expected.spans
        assert each.values.dtype == np.float32
        np.testing.assert_allclose(each.values, expected.values, atol=ROUNDING, rtol=0)


@pytest.mark.parametrize("representation", [Pieces(5), KMeans(3)], ids=repr)
def test_a_document_does_not_depend_on_those_beside_it(representation):
    documents = made_documents(np.random.default_rng(5), [7, 1, 300, 45, 46, 45])
    together = on_device(representation, documents, normalize=True)
    for document, each in zip(documents, together, strict=True):
        (alone,) = on_device(representation, [document], normalize=True)
        np.testing.assert_array_equal(alone.values, each.values)
        assert alone.spans == each.spans


@given(st.integers(0, 2**32), st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_clusters_of_whole_numbers_are_the_same_to_the_last_bit(seed, lengths, n_clusters):
    """Clusters of small integers, many of them equal or equally near, agree to the last bit."""
    generator = np.random.default_rng(seed)
    values = [generator.integers(-1, 2, (n, 3)).astype(np.float32) for n in lengths]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    found = kmeans_of_documents(torch.from_numpy(np.concatenate(values)), starts, np.array(lengths), n_clusters)
    for number, each in enumerate(values):
        if n_clusters > 1 and not _converges_exactly(each, n_clusters):
            continue
        centroids, labels = kmeans(each, n_clusters)
        kept = np.flatnonzero(found.counts[number].numpy())
        np.testing.assert_array_equal(np.searchsorted(kept, found.labels[number, : len(each)].numpy()), labels)
        np.testing.assert_allclose(found.centroids[number].numpy()[kept], centroids, rtol=1e-6, atol=1e-6)


def _converges_exactly(values, n_clusters):
    """Return whether the first centroids are the final ones, so that no rounded means are compared."""
    first = values[np.arange(min(n_clusters, len(values))) * len(values) // min(n_clusters, len(values))]
    centroids, _ = kmeans(values, n_clusters)
    return len(np.unique(np.concatenate([first, centroids]), axis=0)) == len(np.unique(first, axis=0))


def test_means_of_windows():
    vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0], [0.0, 0.0]])
    found = mean_over_windows(vectors, [[3, 1], [7], [2]], normalize=False)
    assert found.tolist() == [[0.75, 0.25], [3.0, 4.0], [0.0, 0.0]]
    found = mean_over_windows(vectors, [[1, 1], [7], [2]], normalize=True)
    np.testing.assert_allclose(found, [[0.5**0.5, 0.5**0.5], [3.0, 4.0], [0.0, 0.0]], atol=1e-7)


@pytest.mark.parametrize("representation", [Pieces(4), KMeans(3)], ids=repr)
def test_nothing_is_read_on_the_way(representation):
    texts, prepared, values = zip(*made_documents(np.random.default_rng(6), [7, 1, 300, 45]), strict=True)
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in values])])
    there = device_representation(representation)
    plans = [there.plan(*each) for each in zip(texts, prepared, strict=True)]
    with Downloads() as seen:
        there.represent(
            DeviceTokens(torch.empty((offsets[-1], DIM), device="meta"), offsets), prepared, plans, True
        )
    assert seen.shapes
    assert all(DIM not in shape or np.prod(shape[:-1]) < offsets[-1] for each in seen.shapes for shape in each)


@pytest.fixture(scope="module", params=["tiny", "bundled"])
def encoder(request, tmp_path_factory):
    """Return a network of 32 dimensions, or the bundled one, whose vectors are realistic."""
    if request.param == "bundled":
        return batched_encoder(default_bundle_path())
    folder = tmp_path_factory.mktemp("representation")
    return batched_encoder(export(write_checkpoint(folder / "tiny"), folder / "bundle", "fp32").path)


def real_texts():
    paragraphs = (Path(__file__).parents[2] / "LICENSE").read_text("utf-8").split("\n\n")
    paragraphs = [each for each in paragraphs if each.strip()]
    return [*paragraphs[:12], "one", "\u200b", " ".join(paragraphs)[:4000]]


@pytest.mark.parametrize("representation", [Pieces(), KMeans(8)], ids=repr)
def test_real_text(encoder, representation):
    there = device_representation(representation)
    prepared = {text: encoder.prepare(text) for text in real_texts()}
    texts = [text for text, each in prepared.items() if each.n_inputs]
    assert len(texts) == len(prepared) - 1
    inputs = [prepared[text] for text in texts]
    windows = encoder.run(inputs)
    assert max(map(len, windows)) > 1
    plans = [there.plan(text, each) for text, each in zip(texts, inputs, strict=True)]
    represented = there.represent(encoder.run_on_device(inputs), inputs, plans, encoder.normalize)
    n_close = 0
    for text, each, expected in zip(texts, represented, windows, strict=True):
        right = representation.represent(text, expected, encoder.normalize)
        values = np.concatenate([window.values for window in expected])
        if isinstance(representation, KMeans) and smallest_lead(values, representation.n_centroids) < EQUALLY_NEAR:
            n_close += 1  # a token may be in another cluster, and others may follow it
            continue
        assert each.spans == right.spans
        np.testing.assert_allclose(each.values, right.values, atol=ROUNDING, rtol=0)
    assert n_close <= len(texts) // 3


def smallest_lead(values, n_clusters):
    """Return the smallest difference between the distances to the two nearest centroids over all rounds.

    Distances are squared, in units of the largest squared length.
    """
    k = min(n_clusters, len(values))
    if k == 1:
        return np.inf
    centroids, lead = values[np.arange(k) * len(values) // k], np.inf
    for _ in range(MAX_ITERATIONS):
        wide = centroids.astype(np.float64)
        distances = np.sort((wide**2).sum(1) - 2 * values.astype(np.float64) @ wide.T, axis=1)
        lead = min(lead, (distances[:, 1] - distances[:, 0]).min())
        nearest = ((wide**2).sum(1) - 2 * values.astype(np.float64) @ wide.T).argmin(1)
        means = [values[nearest == number].mean(0) for number in np.unique(nearest)]
        centroids = centroids.copy()
        centroids[np.unique(nearest)] = means
    return lead / (values.astype(np.float64) ** 2).sum(1).max()
