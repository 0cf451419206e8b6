"""Splitting of documents into windows."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarry.engine.encoding.windows import window_bounds


def tokens_of(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens of at most three letters, which split words like a subword tokenizer."""
    spans = np.array([found.span() for found in re.finditer(r"\w{1,3}|[^\w\s]", text)], np.int64).reshape(-1, 2)
    return spans[:, 0].copy(), spans[:, 1].copy()


def pieces(text: str, max_tokens: int) -> list[str]:
    starts, ends = tokens_of(text)
    return [text[starts[low] : ends[high - 1]] for low, high in window_bounds(text, starts, ends, max_tokens)]


@given(st.text(alphabet="abc .!?\n\"'文。é", max_size=300), st.integers(1, 40))
def test_nothing_is_lost_repeated_or_too_long(text: str, max_tokens: int) -> None:
    starts, ends = tokens_of(text)
    bounds = list(window_bounds(text, starts, ends, max_tokens))
    edges = [0, *(high for _, high in bounds)]
    assert [low for low, _ in bounds] == edges[:-1]
    assert edges[-1] == len(starts)
    assert all(0 < high - low <= max_tokens for low, high in bounds)


@given(st.text(alphabet="abc .!?\n", max_size=300), st.integers(4, 40))
def test_windows_but_the_last_are_three_quarters_full(text: str, max_tokens: int) -> None:
    starts, ends = tokens_of(text)
    for low, high in list(window_bounds(text, starts, ends, max_tokens))[:-1]:
        assert high - low > max_tokens - max(1, max_tokens // 4)


def test_a_text_that_fits_is_one_window() -> None:
    text = "one. two. tri. for."
    assert pieces(text, 8) == [text]


def test_no_tokens_no_windows() -> None:
    assert pieces(" \n", 8) == []


def test_the_cut_is_at_the_last_sentence_end_of_the_last_quarter() -> None:
    text = "A b c d e f g h. J. K l m. N o p q r s t u v w x."
    assert pieces(text, 16) == ["A b c d e f g h. J. K l m.", "N o p q r s t u v w x."]


def test_a_sentence_end_before_the_last_quarter_does_not_count() -> None:
    text = "Aa b. Cc d e f g h i j k l m n o p q r s t u v w x y z"
    assert pieces(text, 12)[0] == "Aa b. Cc d e f g h i j k"


def test_without_a_sentence_end_words_stay_whole() -> None:
    assert pieces("a b c d e f g hhhiii jjj", 8) == ["a b c d e f g", "hhhiii jjj"]


def test_a_word_that_ends_where_the_window_is_full_fits() -> None:
    assert pieces("a b c d e f g hhh iii", 8) == ["a b c d e f g hhh", "iii"]


def test_a_word_longer_than_a_window_is_cut_when_it_is_full() -> None:
    assert pieces("x" * 30, 4) == ["x" * 12, "x" * 12, "x" * 6]


def test_a_window_of_one_token() -> None:
    assert pieces("a b c", 1) == ["a", "b", "c"]


@pytest.mark.parametrize("max_tokens", [0, -1])
def test_a_window_holds_something(max_tokens: int) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        pieces("a", max_tokens)
