"""Properties of the centroids of any document."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarry.engine.encoding.encoder import TokenVectors
from quarry.engine.representation.first_m import Cls, FirstM
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.pieces import Pieces, piece_starts
from quarry.engine.representation.single import Mean

DIM = 5
small = st.integers(1, 40)
representations = st.one_of(
    st.builds(Pieces, small),
    st.builds(KMeans, small),
    st.builds(FirstM, small),
    st.just(Mean()),
    st.just(Cls()),
)


@st.composite
def documents(draw):
    """Draw a text of words and full stops, with its tokens in windows and a vector for each token."""
    words = draw(st.lists(st.sampled_from(["a", "bc.", "def", "Gh!", "ijkl\n", "é。"]), min_size=1, max_size=120))
    text = " ".join(words)
    lengths = np.array([len(word) for word in words])
    starts = np.cumsum([0, *(lengths[:-1] + 1)])
    cuts = sorted(draw(st.sets(st.integers(1, len(words)), max_size=3)) - {len(words)})
    values = np.random.default_rng(draw(st.integers(0, 99))).standard_normal((len(words), DIM)).astype("f4")
    windows = [
        TokenVectors(values[part], starts[part], (starts + lengths)[part], values[0], values[0])
        for part in np.split(np.arange(len(words)), cuts)
    ]
    return text, windows


@given(st.lists(st.booleans(), min_size=1, max_size=600), st.integers(1, 700))
def test_pieces_are_not_empty_and_as_many_as_declared(flags, tokens_per_piece):
    starts = piece_starts(np.array(flags), tokens_per_piece)
    assert starts[0] == 0
    assert (np.diff([*starts, len(flags)]) > 0).all()
    assert len(starts) == max(1, round(len(flags) / tokens_per_piece))


@given(st.lists(st.booleans(), min_size=1, max_size=600), st.integers(1, 100))
def test_every_cut_is_the_nearest_sentence_end_or_far_from_any(flags, tokens_per_piece):
    starts = piece_starts(np.array(flags), tokens_per_piece)
    length = len(flags) / len(starts)
    ends = [token + 1 for token, ends_here in enumerate(flags[:-1]) if ends_here]
    for piece, cut in enumerate(starts.tolist()):
        ideal = piece * length
        nearest = min((abs(end - ideal) for end in ends), default=np.inf)
        if piece > 0 and nearest <= length / 3:
            assert cut in ends
            assert abs(cut - ideal) == nearest
        else:
            assert cut == int(ideal + 1e-9)


@given(documents(), representations, st.booleans())
def test_values_and_spans_fit_together(document, representation, normalize):
    text, windows = document
    found = representation.represent(text, iter(windows), normalize)
    assert found.values.shape == (len(found.spans), DIM)
    assert found.values.dtype == np.float32
    assert len(found.values) >= 1
    for spans in found.spans:
        bounds = [position for span in spans for position in span]
        assert bounds
        assert bounds[0] >= 0
        assert bounds[-1] <= len(text)
        assert bounds == sorted(set(bounds))
        assert all(type(position) is int for position in bounds)


@given(documents(), representations, st.booleans())
def test_twice_the_same(document, representation, normalize):
    text, windows = document
    first, second = (representation.represent(text, iter(windows), normalize) for _ in range(2))
    assert first.values.tobytes() == second.values.tobytes()
    assert first.spans == second.spans


@pytest.mark.parametrize("family", [Pieces, KMeans])
@given(document=documents(), setting=small)
def test_spans_cover_every_token_once_and_centroids_are_their_means(family, document, setting):
    text, windows = document
    found = family(setting).represent(text, iter(windows), normalize=False)
    starts = np.concatenate([window.starts for window in windows])
    values = np.concatenate([window.values for window in windows])
    has_mean = family is Pieces and len(found.spans) > 1
    n_seen = np.zeros(len(starts), np.int64)
    for centroid, spans in enumerate(found.spans):
        inside = np.zeros(len(starts), np.bool_)
        for start, end in spans:
            inside |= (starts >= start) & (starts < end)
        np.testing.assert_allclose(found.values[centroid], values[inside].mean(axis=0), rtol=1e-4, atol=1e-5)
        n_seen += inside
    assert (n_seen == 1 + has_mean).all()


@given(documents(), small)
def test_the_last_of_several_pieces_is_the_mean_of_all(document, setting):
    text, windows = document
    found = Pieces(setting).represent(text, iter(windows), normalize=False)
    values = np.concatenate([window.values for window in windows])
    np.testing.assert_allclose(found.values[-1], values.mean(axis=0), rtol=1e-4, atol=1e-5)
    assert found.spans[-1] == ((0, int(windows[-1].ends[-1])),)
