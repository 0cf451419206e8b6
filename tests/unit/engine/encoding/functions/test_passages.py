"""Documents are split into passages at sentence ends in any script, and no word is dropped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarry.engine.encoding.functions.function_encoder import cut_passages, is_invisible

PARTS = st.lists(
    st.sampled_from(["word", "Ünï", "end.", "why?", "\n", " ", "。", "北京", "ไทย", "x" * 90, "\t"]), max_size=40
)


def texts_of(text: str, max_words: int) -> list[str]:
    return [passage.text for passage in cut_passages(text, max_words).passages]


@given(PARTS, st.integers(1, 7), st.sampled_from(["", " "]))
def test_passages_are_the_text_in_order_without_white_space_between(parts, max_words, separator):
    text = separator.join(parts)
    prepared = cut_passages(text, max_words)
    end = 0
    for passage in prepared.passages:
        assert text[end : passage.start].strip() == ""
        assert passage.text == text[passage.start : passage.end]
        assert passage.text.strip() == passage.text != ""
        assert len(passage.text.split()) <= max_words
        end = passage.end
    assert text[end:].strip() == ""
    assert prepared.n_inputs == len(prepared.passages) >= -(-prepared.n_tokens // max_words)


def test_a_text_of_at_most_the_length_of_a_passage_is_one():
    assert texts_of("One. Two three.\nFour five", 5) == ["One. Two three.\nFour five"]
    assert texts_of("One. Two three.\nFour five six", 5) == ["One. Two three.", "Four five six"]


def test_passages_have_about_the_same_length():
    assert [len(text.split()) for text in texts_of("word " * 101, 100)] == [51, 50]
    assert [len(text.split()) for text in texts_of("word " * 300, 100)] == [100, 100, 100]


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("one two three four. Five six seven eight", "four."),
        ("one two three four? Five six seven eight", "four?"),
        ("один два три четыре. Пять шесть семь восемь", "четыре."),
        ("واحد اثنان ثلاثة أربعة؟ خمسة ستة سبعة ثمانية", "أربعة؟"),
        ("एक दो तीन चार। पाँच छह सात आठ", "चार।"),
        ("one two three four\nfive six seven eight", "four"),
        ("one two three four… Five six seven eight", "four…"),
        ('one two three "four!" Five six seven eight', '"four!"'),
    ],
)
def test_a_passage_ends_with_a_sentence_in_any_script(text, cut):
    assert texts_of(text, 6)[0].split()[-1] == cut


def test_scripts_without_spaces_are_cut_too():
    sentence = "東京は日本の首都です。"
    passages = texts_of(sentence * 50, 20)
    assert "".join(passages) == sentence * 50
    assert 8 <= len(passages) <= 30
    assert all(text.endswith("。") for text in passages)


def test_a_run_without_spaces_is_cut_and_not_one_word():
    text = "QUJD" * 100_000
    passages = texts_of(text, 100)
    assert "".join(passages) == text
    assert max(map(len, passages)) == 4000


@pytest.mark.parametrize("text", ["", " ", "\n\t\r", "\u00a0\u2003", "\x00\x01", "\u200b\ufeff", "\u2028\u2029"])
def test_a_text_without_visible_characters_has_no_passage(text):
    assert is_invisible(text)
    assert cut_passages(text, 10).n_inputs == cut_passages(text, 10).n_tokens == 0


@pytest.mark.parametrize("text", ["a", "?", "😀", "\U0001fae9", "\ue000"])
def test_any_visible_character_is_a_passage(text):
    assert texts_of(f" {text}\n", 10) == [text]


def test_a_document_of_four_million_characters_is_cut():
    text = "Some words make up a sentence. " * 135_000
    prepared = cut_passages(text, 100)
    assert prepared.n_tokens == 6 * 135_000
    lengths = np.array([len(each.text.split()) for each in prepared.passages])
    assert lengths.max() <= 100
    assert lengths.min() >= 50
    assert all(each.text.endswith("sentence.") for each in prepared.passages)


def test_a_part_has_some_of_the_passages():
    prepared = cut_passages("one two three four five", 1)
    assert [each.text for each in prepared.part(1, 3).passages] == ["two", "three"]
    assert prepared.part(0, 5) == prepared
    assert prepared.part(2, 2).n_inputs == 0
