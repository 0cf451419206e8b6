"""The contracts of what makes vectors and scores of texts: encoders, representations and rerankers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import ClassVar, get_args

import numpy as np
import pytest

from quarry.engine.encoding.encoder import Encoder, TokenVectors, VectorKind
from quarry.engine.encoding.opening import open_encoder
from quarry.engine.representation.base import DocumentVectors, Representation
from quarry.engine.representation.registry import representation_from
from quarry.engine.search.reranker import Reranker, open_reranker
from quarry.formats.arrays import Float32Array, Int64Array
from quarry.formats.errors import InvalidDocument, InvalidQuery

__all__ = ["BLANK", "TEXTS", "EncoderContract", "RepresentationContract", "RerankerContract", "TokenizedDocument"]

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
_DIM = 16
_LENGTHS = (1, 2, 7, 61, 250)
_WINDOW = 60


class EncoderContract:
    """Tests of an encoder, given by a fixture ``encoder``."""

    def test_it_is_an_encoder_with_attributes_of_the_right_types(self, encoder: Encoder) -> None:
        assert isinstance(encoder, Encoder)
        assert open_encoder(encoder) is encoder
        assert encoder.name
        assert encoder.identity
        assert encoder.dim > 0
        assert isinstance(encoder.normalize, bool)
        assert encoder.beta is None or encoder.beta > 0
        assert encoder.vector_kinds <= {"token", "pooled"}
        assert encoder.trained_representation is None or isinstance(encoder.trained_representation, str)

    @pytest.mark.parametrize("text", TEXTS)
    def test_a_query_is_one_finite_vector(self, encoder: Encoder, text: str) -> None:
        vector = encoder.encode_query(text)
        assert vector.shape == (encoder.dim,)
        assert vector.dtype == np.float32
        assert np.isfinite(vector).all()
        if encoder.normalize:
            assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)

    @pytest.mark.parametrize("text", TEXTS)
    def test_windows_have_consistent_shapes(self, encoder: Encoder, text: str) -> None:
        windows = list(encoder.windows(text))
        assert windows
        for window in windows:
            n_tokens, width = len(window.values), encoder.dim if "token" in encoder.vector_kinds else 0
            assert n_tokens
            assert window.values.shape == (n_tokens, width)
            assert window.values.dtype == window.text_mean.dtype == window.first.dtype == np.float32
            assert window.starts.shape == window.ends.shape == (n_tokens,)
            assert window.starts.dtype == window.ends.dtype == np.int64
            assert window.text_mean.shape == window.first.shape == (width,)
            assert np.isfinite(window.values).all()
            assert (window.pooled is not None) == ("pooled" in encoder.vector_kinds)
            assert window.pooled is None or window.pooled.shape == (encoder.dim,)

    @pytest.mark.parametrize("text", TEXTS)
    def test_offsets_are_ascending_code_points_of_the_text(self, encoder: Encoder, text: str) -> None:
        windows = list(encoder.windows(text))
        starts = np.concatenate([window.starts for window in windows])
        ends = np.concatenate([window.ends for window in windows])
        assert (starts < ends).all()
        assert (np.diff(starts) >= 0).all()
        assert (starts[1:] >= ends[:-1]).all()
        assert starts[0] >= 0
        assert ends[-1] <= len(text)

    @pytest.mark.parametrize("text", TEXTS)
    def test_no_letter_is_dropped(self, encoder: Encoder, text: str) -> None:
        covered = np.zeros(len(text), dtype=bool)
        for window in encoder.windows(text):
            for start, end in zip(window.starts, window.ends, strict=True):
                covered[start:end] = True
        assert [c for c, seen in zip(text, covered, strict=True) if c.isalnum() and not seen] == []

    @pytest.mark.parametrize("n_threads", [1, 3])
    def test_vectors_do_not_depend_on_neighbors_order_or_threads(self, encoder: Encoder, n_threads: int) -> None:
        alone = {text: _as_bytes(encoder, text) for text in TEXTS}
        shuffled = list(TEXTS) * 2
        random.Random(n_threads).shuffle(shuffled)
        with ThreadPoolExecutor(n_threads) as pool:
            together = list(pool.map(lambda text: _as_bytes(encoder, text), shuffled))
        assert together == [alone[text] for text in shuffled]

    def test_different_texts_have_different_vectors(self, encoder: Encoder) -> None:
        assert len({_as_bytes(encoder, text) for text in TEXTS}) == len(TEXTS)

    @pytest.mark.parametrize("text", BLANK)
    def test_a_text_without_tokens_has_no_windows_and_is_no_query(self, encoder: Encoder, text: str) -> None:
        assert list(encoder.windows(text)) == []
        with pytest.raises(InvalidQuery, match="no token"):
            encoder.encode_query(text)

    @pytest.mark.parametrize("text", ["\ud800", "fine until here \udfff and on"])
    def test_lone_surrogates_are_refused(self, encoder: Encoder, text: str) -> None:
        with pytest.raises(InvalidDocument, match="lone surrogate"):
            list(encoder.windows(text))
        with pytest.raises(InvalidQuery, match="lone surrogate"):
            encoder.encode_query(text)

    def test_a_long_text_comes_window_after_window(self, encoder: Encoder) -> None:
        text = "Some words make a sentence. " * 4_000
        ends = 0
        for window in islice(encoder.windows(text), 5):
            assert isinstance(window, TokenVectors)
            assert len(window.values) <= 512
            assert text[ends : window.starts[0]].strip() == ""
            ends = int(window.ends[-1])


def _as_bytes(encoder: Encoder, text: str) -> bytes:
    """Return everything that an encoder computes from a text."""
    parts = [encoder.encode_query(text).tobytes()]
    for window in encoder.windows(text):
        arrays = (window.values, window.text_mean, window.first, window.starts, window.ends, window.pooled)
        parts += [each.tobytes() for each in arrays if each is not None]
    return b"".join(parts)


@dataclass(frozen=True)
class TokenizedDocument:
    """A text of one-word tokens with a vector for each token.

    Attributes:
        text: the text.
        starts: (n_tokens,) int64, first character of each token.
        ends: (n_tokens,) int64, one past its last character.
        bounds: (first, stop) tokens of each window.
        values: (n_tokens, dim) float32.
    """

    text: str
    starts: Int64Array
    ends: Int64Array
    bounds: tuple[tuple[int, int], ...]
    values: Float32Array

    @classmethod
    def random(cls, n_tokens: int, seed: int, values: Float32Array | None = None) -> TokenizedDocument:
        """Return a text of random words and vectors; or with these vectors."""
        generator = np.random.default_rng(seed)
        words = [
            word + (". " if generator.random() < 0.2 else " ")
            for word in generator.choice(["Abc", "De"], n_tokens)
        ]
        starts = np.cumsum([0, *(len(word) for word in words[:-1])]).astype(np.int64)
        ends = starts + np.array([len(word.strip(". ")) for word in words], np.int64)
        bounds = tuple(pairwise([*range(0, n_tokens, _WINDOW), n_tokens]))
        if values is None:
            values = generator.standard_normal((n_tokens, _DIM)).astype(np.float32)
        return cls("".join(words), starts, ends, bounds, values)


class RepresentationContract:
    """Tests of a representation, given by a fixture ``representation``.

    Attributes:
        first_tokens: number of the first tokens that it uses; None: all.
    """

    first_tokens: ClassVar[int | None] = None

    @pytest.fixture(scope="class")
    @classmethod
    def documents(cls) -> list[TokenizedDocument]:
        """Documents of one to 250 tokens."""
        return [TokenizedDocument.random(length, seed) for seed, length in enumerate(_LENGTHS)]

    def represent(
        self, representation: Representation, documents: list[TokenizedDocument], normalize: bool
    ) -> list[DocumentVectors]:
        """Return the centroids of documents."""
        return [
            representation.represent(
                document.text,
                [
                    TokenVectors(
                        document.values[low:high],
                        document.starts[low:high],
                        document.ends[low:high],
                        document.values[low:high].mean(0),
                        document.values[low],
                        document.values[low:high].max(0),
                    )
                    for low, high in document.bounds
                ],
                normalize,
            )
            for document in documents
        ]

    def test_an_index_can_store_it(self, representation: Representation) -> None:
        assert representation_from(representation) is representation
        assert representation.reads in get_args(VectorKind)
        assert representation.settings() == representation.settings()

    @pytest.mark.parametrize("normalize", [True, False])
    def test_centroids_are_finite_float32_rows_with_one_span_tuple_each(
        self, representation: Representation, documents: list[TokenizedDocument], normalize: bool
    ) -> None:
        centroids = self.represent(representation, documents, normalize)
        assert len(centroids) == len(documents)
        for each in centroids:
            assert each.values.dtype == np.float32
            assert each.values.ndim == 2
            assert each.values.shape[1] == _DIM
            assert len(each.values) == len(each.spans) >= 1
            assert np.isfinite(each.values).all()

    def test_spans_are_ascending_disjoint_and_begin_and_end_at_tokens(
        self, representation: Representation, documents: list[TokenizedDocument]
    ) -> None:
        for document, each in zip(documents, self.represent(representation, documents, True), strict=True):
            for spans in each.spans:
                assert all(low < high for low, high in spans)
                assert all(one[1] <= other[0] for one, other in pairwise(spans))
                assert {low for low, _ in spans} <= {*document.starts.tolist()}
                assert {high for _, high in spans} <= {*document.ends.tolist()}

    def test_every_token_that_is_used_is_in_a_span(
        self, representation: Representation, documents: list[TokenizedDocument]
    ) -> None:
        for document, each in zip(documents, self.represent(representation, documents, True), strict=True):
            covered = np.zeros(len(document.text), bool)
            for low, high in (span for spans in each.spans for span in spans):
                covered[low:high] = True
            n_used = len(document.values) if self.first_tokens is None else self.first_tokens
            bounds = zip(document.starts[:n_used], document.ends[:n_used], strict=True)
            assert all(covered[low:high].all() for low, high in bounds)

    def test_normalization_scales_each_centroid_to_norm_1(
        self, representation: Representation, documents: list[TokenizedDocument]
    ) -> None:
        raw, scaled = (self.represent(representation, documents, normalize) for normalize in (False, True))
        for one, other in zip(raw, scaled, strict=True):
            norms = np.linalg.norm(one.values.astype(np.float64), axis=1, keepdims=True)
            np.testing.assert_allclose(other.values, one.values / norms, atol=1e-5)
            assert one.spans == other.spans

    def test_vectors_of_zeros_stay_zeros(self, representation: Representation) -> None:
        zeros = TokenizedDocument.random(9, 0, np.zeros((9, _DIM), np.float32))
        (centroids,) = self.represent(representation, [zeros], True)
        assert not centroids.values.any()

    def test_a_document_does_not_depend_on_the_others(
        self, representation: Representation, documents: list[TokenizedDocument]
    ) -> None:
        together = self.represent(representation, [*documents[::-1], *documents], True)[len(documents) :]
        for document, each in zip(documents, together, strict=True):
            (alone,) = self.represent(representation, [document], True)
            np.testing.assert_array_equal(alone.values, each.values)
            assert alone.spans == each.spans

    def test_input_is_not_modified(
        self, representation: Representation, documents: list[TokenizedDocument]
    ) -> None:
        before = [document.values.copy() for document in documents]
        self.represent(representation, documents, True)
        for document, values in zip(documents, before, strict=True):
            np.testing.assert_array_equal(document.values, values)


class RerankerContract:
    """Tests of a reranker, given by a fixture ``reranker``."""

    query: ClassVar[str] = "the cat?"

    def test_it_is_a_reranker(self, reranker: Reranker) -> None:
        assert open_reranker(reranker) is reranker
        assert reranker.name

    def test_scores_are_float32_in_the_order_of_texts(self, reranker: Reranker) -> None:
        scores = reranker.scores(self.query, TEXTS)
        assert scores.dtype == np.float32
        assert scores.shape == (len(TEXTS),)
        assert np.isfinite(scores).all()
        assert reranker.scores(self.query, []).shape == (0,)

    def test_scores_do_not_depend_on_neighbors_order_or_threads(self, reranker: Reranker) -> None:
        alone = {text: reranker.scores(self.query, [text]).tobytes() for text in TEXTS}
        shuffled = list(TEXTS) * 2
        random.Random(1).shuffle(shuffled)

        def score(texts: Sequence[str]) -> list[bytes]:
            return [each.tobytes() for each in reranker.scores(self.query, texts)]

        with ThreadPoolExecutor(3) as pool:
            for scores in pool.map(score, [shuffled] * 3):
                assert scores == [alone[text] for text in shuffled]

    @pytest.mark.parametrize("text", [*BLANK, "\ud800", "fine until here \udfff and on"])
    def test_what_has_no_tokens_or_a_lone_surrogate_is_refused(self, reranker: Reranker, text: str) -> None:
        with pytest.raises(InvalidQuery, match=r"no token|lone surrogate"):
            reranker.scores(text, TEXTS)
        with pytest.raises(InvalidDocument, match=r"text 2 (has no token|holds a lone surrogate)"):
            reranker.scores(self.query, ["a", "b", text, "c", text])
