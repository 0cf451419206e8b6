from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from quarry.engine.encoding.encoder import TokenVectors
from quarry.engine.representation.first_m import Cls, FirstM
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.pieces import Pieces, piece_starts, piece_sums
from quarry.engine.representation.registry import check_readable, representation_for, representation_from
from quarry.engine.representation.single import Mean, Passages, Pooled
from quarry.formats.errors import InvalidDocument, InvalidSetting

DIM = 6


def word_window(text, start=0, stop=None, seed=0):
    """Return a window of the words of ``text[start:stop]``, with random vectors and two special tokens."""
    stop = len(text) if stop is None else stop
    starts, position = [], start
    words = text[start:stop].split()
    for word in words:
        position = text.index(word, position)
        starts.append(position)
        position += len(word)
    starts = np.array(starts, np.int64)
    ends = starts + [len(word) for word in words]
    vectors = np.random.default_rng(seed).standard_normal((len(words) + 2, DIM)).astype(np.float32)
    return TokenVectors(vectors[1:-1], starts, ends, vectors.mean(axis=0), vectors[0], vectors.max(axis=0))


def empty_window():
    none = np.empty(0, np.int64)
    return TokenVectors(
        np.empty((0, DIM), np.float32), none, none, np.ones(DIM, np.float32), np.ones(DIM, np.float32)
    )


def shown(text, found):
    """Return the texts of every centroid's spans."""
    return [[text[start:end] for start, end in spans] for spans in found.spans]


TEXT = "One two three four. Five six seven. Eight nine ten eleven twelve."
LONG = "a b c d e f g h\ni j k l m n o p"

ALL = (Pieces(4), KMeans(3), FirstM(5), Mean(), Cls(), Pooled(), Passages())


class TestPooled:
    def test_windows_count_by_their_tokens(self):
        windows = [word_window(LONG, 0, 7, seed=1), word_window(LONG, 8, seed=2)]
        found = Pooled().represent(LONG, windows, normalize=False)
        expected = (4 * windows[0].pooled + 12 * windows[1].pooled) / 16
        np.testing.assert_allclose(found.values, expected[np.newaxis], rtol=1e-6)
        assert found.values.dtype == np.float32
        assert shown(LONG, found) == [[LONG]]

    def test_token_vectors_are_not_read(self):
        window = word_window(TEXT)
        bare = replace(window, values=window.values[:, :0], first=window.first[:0], text_mean=window.first[:0])
        found, expected = (Pooled().represent(TEXT, [each], normalize=True) for each in (bare, window))
        np.testing.assert_array_equal(found.values, expected.values)

    def test_an_encoder_without_pooled_vectors(self):
        with pytest.raises(InvalidDocument, match="no pooled vector"):
            Pooled().represent(TEXT, [replace(word_window(TEXT), pooled=None)], normalize=False)


class _Encoder:
    """What the choice of a representation reads of an encoder."""

    def __init__(self, kinds, pooling=None, trained_for=None):
        self.vector_kinds, self.pooling, self.trained_representation = frozenset(kinds), pooling, trained_for


class TestPassages:
    def test_each_window_and_the_mean_of_all(self):
        windows = [word_window(LONG, 0, 7, seed=1), word_window(LONG, 8, seed=2)]
        found = Passages().represent(LONG, windows, normalize=False)
        whole = Pooled().represent(LONG, windows, normalize=False).values
        np.testing.assert_array_equal(found.values, [windows[0].pooled, windows[1].pooled, *whole])
        assert shown(LONG, found) == [[LONG[:7]], [LONG[8:]], [LONG]]

    def test_a_single_passage_is_the_text(self):
        found, expected = (each().represent(TEXT, [word_window(TEXT)], True) for each in (Passages, Pooled))
        np.testing.assert_array_equal(found.values, expected.values)
        assert found.spans == expected.spans


BOTH = {"token", "pooled"}


@pytest.mark.parametrize(
    ("encoder", "expected"),
    [
        (_Encoder({"token"}), Pieces()),
        (_Encoder(BOTH), Pieces()),
        (_Encoder(BOTH, "mean"), Pieces()),
        (_Encoder(BOTH, "cls"), Pooled()),
        (_Encoder({"pooled"}), Pooled()),
        (_Encoder(BOTH, "cls", "kmeans"), KMeans()),
    ],
)
def test_an_encoder_has_a_representation(encoder, expected):
    assert representation_for(encoder) == expected


@pytest.mark.parametrize(
    ("encoder", "refused", "fitting"),
    [
        (_Encoder({"pooled"}), {KMeans: "'kmeans' reads token vectors"}, {Pooled, Passages}),
        (_Encoder({"token"}), {Pooled: "'pooled' reads pooled"}, {Pieces, KMeans, FirstM, Mean, Cls}),
        (
            _Encoder(BOTH, "cls"),
            {Pieces: "'pieces' is for mean pooling.*cls pooling", KMeans: "'kmeans'", Mean: "'mean'"},
            {FirstM, Cls, Pooled, Passages},
        ),
        (
            _Encoder(BOTH, "mean"),
            {Cls: "'cls' is for cls pooling.*mean pooling", FirstM: "'first_m'"},
            {Pieces, KMeans, Mean, Pooled, Passages},
        ),
        (_Encoder(BOTH, "max"), {Pieces: "'pieces' is for mean.*max", Cls: "'cls'"}, {Pooled, Passages}),
        (_Encoder(BOTH, "cls", "pieces"), {KMeans: "'kmeans' is for mean.*cls"}, {Pieces, Passages}),
    ],
)
def test_a_representation_fits_the_encoder(encoder, refused, fitting):
    for each in fitting:
        check_readable(each(), encoder)
    for each, message in refused.items():
        with pytest.raises(InvalidSetting, match=f"{message}.*expected .* found {each.name}"):
            check_readable(each(), encoder)


class TestPieces:
    def test_cuts_at_sentence_ends_and_adds_the_mean(self):
        window = word_window(TEXT)
        found = Pieces(4).represent(TEXT, [window], normalize=False)
        assert shown(TEXT, found) == [
            ["One two three four."],
            ["Five six seven."],
            ["Eight nine ten eleven twelve."],
            [TEXT],
        ]
        v = window.values
        expected = [v[:4].mean(axis=0), v[4:7].mean(axis=0), v[7:].mean(axis=0), v.mean(axis=0)]
        np.testing.assert_allclose(found.values, expected, rtol=1e-5, atol=1e-6)
        assert found.values.dtype == np.float32

    def test_one_piece_has_no_second_vector(self):
        window = word_window(TEXT)
        found = Pieces(32).represent(TEXT, [window], normalize=False)
        assert shown(TEXT, found) == [[TEXT]]
        np.testing.assert_allclose(found.values, window.values.mean(axis=0)[np.newaxis], rtol=1e-5, atol=1e-6)

    def test_pieces_do_not_reach_into_the_next_window(self):
        windows = [word_window(LONG, 0, 15), word_window(LONG, 16, seed=1)]
        found = Pieces(8).represent(LONG, iter(windows), normalize=False)
        assert shown(LONG, found) == [["a b c d e f g h"], ["i j k l m n o p"], [LONG]]
        tokens = np.concatenate([window.values for window in windows])
        np.testing.assert_allclose(found.values[-1], tokens.mean(axis=0), rtol=1e-5, atol=1e-6)

    def test_special_tokens_take_no_part(self):
        window = word_window(TEXT)
        other = TokenVectors(window.values, window.starts, window.ends, window.text_mean + 9, window.first - 9)
        found, same = (Pieces(4).represent(TEXT, [each], True).values for each in (window, other))
        assert found.tobytes() == same.tobytes()


class TestPieceStarts:
    def test_equal_cuts_where_no_sentence_ends(self):
        assert piece_starts(np.zeros(10, np.bool_), 3).tolist() == [0, 3, 6]

    def test_number_of_pieces_is_rounded(self):
        sizes = {n: len(piece_starts(np.zeros(n, np.bool_), 10)) for n in (1, 14, 16, 24, 26, 100)}
        assert sizes == {1: 1, 14: 1, 16: 2, 24: 2, 26: 3, 100: 10}

    @pytest.mark.parametrize(("sentence_end", "cut"), [(5, 6), (6, 7), (12, 13), (4, 9), (13, 9), (17, 9)])
    def test_a_sentence_end_within_a_third_of_a_piece_is_taken(self, sentence_end, cut):
        """With 18 tokens and 2 pieces, the cut is before token 9, or at a sentence end before tokens 6 to 12."""
        flags = np.zeros(18, np.bool_)
        flags[sentence_end] = True
        taken = cut if 6 <= cut <= 12 else 9
        assert piece_starts(flags, 9).tolist() == [0, taken]

    def test_the_nearest_sentence_end_is_taken_and_the_earlier_of_two(self):
        flags = np.zeros(18, np.bool_)
        flags[[5, 7, 9]] = True
        assert piece_starts(flags, 9).tolist() == [0, 8]

    def test_sums(self):
        values = np.arange(12, dtype=np.float32).reshape(6, 2)
        found = piece_sums(values, np.array([0, 1, 4]))
        assert found.tolist() == [[0, 1], [2 + 4 + 6, 3 + 5 + 7], [8 + 10, 9 + 11]]


class TestKMeans:
    def test_centroids_are_means_of_their_spans(self):
        """Two alternating kinds of tokens give two clusters of two spans each."""
        text = "a b c d e f g h"
        kinds = np.array([0, 0, 1, 1, 0, 0, 1, 1])
        window = word_window(text)
        values = (np.eye(DIM)[kinds] * 10 + window.values * 0.01).astype(np.float32)
        window = TokenVectors(values, window.starts, window.ends, window.text_mean, window.first)
        found = KMeans(2).represent(text, [window], normalize=False)
        assert shown(text, found) == [["a b", "e f"], ["c d", "g h"]]
        expected = [values[kinds == 0].mean(axis=0), values[kinds == 1].mean(axis=0)]
        np.testing.assert_allclose(found.values, expected, rtol=1e-5, atol=1e-5)

    def test_clusters_reach_over_windows(self):
        windows = [word_window(LONG, 0, 15), word_window(LONG, 16, seed=1)]
        together = word_window(LONG)
        values = np.concatenate([window.values for window in windows])
        whole = TokenVectors(values, together.starts, together.ends, together.text_mean, together.first)
        found = KMeans(3).represent(LONG, iter(windows), normalize=True)
        expected = KMeans(3).represent(LONG, [whole], normalize=True)
        assert found.values.tobytes() == expected.values.tobytes()
        assert found.spans == expected.spans

    def test_no_more_centroids_than_tokens(self):
        text = "a b c"
        window = word_window(text)
        found = KMeans(8).represent(text, [window], normalize=False)
        assert found.values.tobytes() == window.values.tobytes()
        assert shown(text, found) == [["a"], ["b"], ["c"]]

    def test_spans_of_tokens_that_share_a_character_stay_disjoint(self):
        """Three byte-level tokens of one character, two in one cluster, have one span for each cluster."""
        values = np.array([[1, 0], [0, 1], [1, 0]], np.float32)
        ones = np.ones(3, np.int64)
        window = TokenVectors(values, ones - 1, ones, values.mean(axis=0), values[0])
        found = KMeans(2).represent("\N{GRINNING FACE}", [window], normalize=False)
        assert found.spans == (((0, 1),), ((0, 1),))


class TestFirstM:
    def test_cls_comes_first(self):
        window = word_window(TEXT)
        found = FirstM(3).represent(TEXT, [window], normalize=False)
        assert found.values.tolist() == [window.first.tolist(), *window.values[:2].tolist()]
        assert shown(TEXT, found) == [[TEXT], ["One"], ["two"]]

    def test_reaches_into_later_windows_whose_cls_it_leaves_out(self):
        windows = [word_window(LONG, 0, 15), word_window(LONG, 16, seed=1)]
        found = FirstM(11).represent(LONG, iter(windows), normalize=False)
        expected = [windows[0].first, *windows[0].values, *windows[1].values[:2]]
        assert found.values.tolist() == np.array(expected).tolist()
        assert shown(LONG, found)[-2:] == [["i"], ["j"]]

    def test_a_short_document_has_fewer(self):
        found = FirstM(8).represent("a b", [word_window("a b")], normalize=False)
        assert found.values.shape == (3, DIM)
        assert shown("a b", found) == [["a b"], ["a"], ["b"]]

    @pytest.mark.parametrize("representation", [FirstM(9), Cls()])
    def test_reads_no_window_that_it_does_not_need(self, representation):
        def windows():
            yield word_window(LONG, 0, 15)
            raise AssertionError("the second window was read")

        assert len(representation.represent(LONG, windows(), normalize=True).values) in {1, 9}


class TestSingleVectors:
    def test_mean_of_one_window_is_the_encoders_own(self):
        window = word_window(TEXT)
        found = Mean().represent(TEXT, [window], normalize=False)
        assert found.values.tolist() == [window.text_mean.tolist()]
        assert shown(TEXT, found) == [[TEXT]]

    def test_windows_are_weighted_by_their_tokens(self):
        windows = [word_window(LONG, 0, 15), word_window(LONG, 16, 23, seed=1)]
        assert [len(window.values) for window in windows] == [8, 4]
        found = Mean().represent(LONG, iter(windows), normalize=False)
        expected = (8 * windows[0].text_mean + 4 * windows[1].text_mean) / 12
        np.testing.assert_allclose(found.values, [expected], rtol=1e-5, atol=1e-6)
        assert shown(LONG, found) == [[LONG[:23]]]

    def test_cls(self):
        windows = [word_window(LONG, 0, 15), word_window(LONG, 16, seed=1)]
        found = Cls().represent(LONG, iter(windows), normalize=False)
        assert found.values.tolist() == [windows[0].first.tolist()]
        assert shown(LONG, found) == [["a b c d e f g h"]]


@pytest.mark.parametrize(
    "representation", [each for each in ALL if each.name != "kmeans"], ids=lambda each: each.name
)
def test_squares_that_overflow_are_normalized(representation):
    windows = [word_window(LONG, 0, 15), word_window(LONG, 16, seed=1)]
    large = [
        TokenVectors(
            each.values * np.float32(1e30),
            each.starts,
            each.ends,
            each.text_mean * np.float32(1e30),
            each.first * np.float32(1e30),
            each.pooled * np.float32(1e30),
        )
        for each in windows
    ]
    usual = representation.represent(LONG, windows, normalize=True).values
    found = representation.represent(LONG, large, normalize=True).values
    np.testing.assert_allclose(found, usual, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("representation", ALL, ids=lambda each: each.name)
class TestAll:
    def test_normalizes_on_request(self, representation):
        windows = [word_window(LONG, 0, 15), word_window(LONG, 16, seed=1)]
        plain = representation.represent(LONG, windows, normalize=False).values
        scaled = representation.represent(LONG, windows, normalize=True).values
        np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 1, rtol=1e-6)
        np.testing.assert_allclose(scaled * np.linalg.norm(plain, axis=1, keepdims=True), plain, rtol=1e-5)

    def test_a_vector_of_zeros_stays_one(self, representation):
        window = word_window(TEXT)
        zeros = np.zeros_like(window.values)
        silent = TokenVectors(zeros, window.starts, window.ends, zeros[0], zeros[0], zeros[0])
        found = representation.represent(TEXT, [silent], normalize=True)
        assert not found.values.any()

    @pytest.mark.parametrize("windows", [[], [empty_window()]])
    def test_a_document_without_tokens_is_an_error(self, representation, windows):
        with pytest.raises(InvalidDocument, match="no token"):
            representation.represent("", windows, normalize=True)

    def test_a_window_without_tokens_is_passed_over(self, representation):
        window = word_window(TEXT)
        found = representation.represent(TEXT, [empty_window(), window], normalize=True)
        assert found.values.tobytes() == representation.represent(TEXT, [window], True).values.tobytes()

    def test_comes_back_from_its_name_and_settings(self, representation):
        assert representation_from(representation.name, representation.settings()) == representation

    def test_an_instance_is_returned(self, representation):
        assert representation_from(representation) is representation
        assert representation_from(representation, {}) is representation


class TestRepresentationFrom:
    def test_names(self):
        names = ["pieces", "kmeans", "first_m", "mean", "cls"]
        assert [type(representation_from(name)) for name in names] == [Pieces, KMeans, FirstM, Mean, Cls]

    def test_settings_left_out_have_defaults(self):
        assert representation_from("kmeans") == KMeans()
        assert representation_from("kmeans", {"n_centroids": 4}) == KMeans(4)

    def test_stored_settings(self):
        assert KMeans(4).settings() == {"n_centroids": 4}
        assert Mean().settings() == {}

    def test_unknown_name(self):
        with pytest.raises(InvalidSetting, match=r"one of pieces, kmeans, first_m, mean, cls.*'piece'"):
            representation_from("piece")

    def test_unknown_setting(self):
        with pytest.raises(InvalidSetting, match="'pieces'; expected tokens_per_piece; found n_pieces"):
            representation_from("pieces", {"n_pieces": 3})
        with pytest.raises(InvalidSetting, match="expected no setting"):
            representation_from("mean", {"n_pieces": 3})

    @pytest.mark.parametrize("value", [0, -1, 4097, 2.0, "8", True, None])
    def test_a_value_out_of_range(self, value):
        with pytest.raises(InvalidSetting, match=r"n_vectors of the representation 'first_m'.*1 to 4096"):
            representation_from("first_m", {"n_vectors": value})
        with pytest.raises(InvalidSetting, match="tokens_per_piece"):
            Pieces(value)

    def test_settings_beside_an_instance(self):
        with pytest.raises(InvalidSetting, match="settings go with the name"):
            representation_from(Pieces(32), {"tokens_per_piece": 16})

    @pytest.mark.parametrize("source", [Pieces, None, 7, object()])
    def test_something_else(self, source):
        with pytest.raises(InvalidSetting, match="not a representation"):
            representation_from(source)
