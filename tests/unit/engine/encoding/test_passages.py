"""Texts are cut into passages at the best places, and no word is lost."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from quarry.engine.encoding.passages import cut_into_passages
from quarry.formats.manifest import PassageRecord


def sentence(n_words: int) -> str:
    return " ".join(["Word", *["word"] * (n_words - 1)]) + "."


def parts(text: str, max_words: int, overlap: int = 0, headings: tuple[int, ...] = ()) -> list[str]:
    bounds = cut_into_passages(text, PassageRecord(max_words=max_words, overlap=overlap), headings)
    return [text[start:end] for start, end in bounds]


def test_a_short_text_is_one_passage():
    assert parts("  One two three.\n", 3) == ["  One two three.\n"]
    assert parts("", 3) == [""]


def test_cuts_are_at_sentence_ends():
    text = " ".join(sentence(5) for _ in range(6))
    assert parts(text, 12) == [" ".join(sentence(5) for _ in range(2))] * 3


def test_a_paragraph_is_a_better_place_than_a_sentence():
    text = f"{sentence(6)}\n\n{sentence(5)} {sentence(5)} {sentence(4)}"
    assert parts(text, 16) == [sentence(6), f"{sentence(5)} {sentence(5)} {sentence(4)}"]


def test_a_heading_begins_a_passage():
    text = f"{sentence(4)}\n\nHeading\n\n{sentence(6)}\n\n{sentence(7)}"
    assert parts(text, 14, headings=(text.index("Heading"),))[0] == sentence(4)
    assert parts(text, 14)[0] != sentence(4)


def test_without_any_good_place_passages_are_equally_long():
    assert [len(part.split()) for part in parts("word " * 100, 30)] == [25, 25, 25, 25]


def test_the_next_passage_begins_with_the_overlap():
    found = [part.split() for part in parts(" ".join(map(str, range(100))), 30, 5)]
    assert all(before[-5:] == after[:5] for before, after in pairwise(found))


def test_a_passage_that_ends_early_is_repeated_by_half_at_most():
    text = "\n\n".join(f"{'before ' * 100}# Heading{number}" for number in range(4))
    headings = tuple(text.index(f"# Heading{number}") for number in range(4))
    assert len(parts(text, 260, 129, headings)) <= 6


def test_leaders_of_a_table_of_contents_take_no_time_of_their_own():
    text = "Chapter " + "." * 100_000 + "x " * 300  # took hours when the time was that of the square
    assert parts(text, 260)[-1].endswith("x")


def test_scripts_without_spaces_and_encoded_data():
    assert len(parts("漢" * 900, 100)) == 3
    assert len(parts("x" * 40_000, 100)) == 10


@given(
    st.text(st.sampled_from("ab .\n#é漢"), max_size=400),
    st.integers(1, 12),
    st.lists(st.integers(0, 400), max_size=3),
)
def test_no_word_is_lost(text, max_words, headings):
    bounds = cut_into_passages(
        text, PassageRecord(max_words=max_words, overlap=0), sorted(each for each in headings if each <= len(text))
    )
    assert bounds == sorted(bounds)
    outside = [text[end:start] for (_, end), (start, _) in pairwise(bounds)]
    assert not "".join(outside).strip()
    assert not (text[: bounds[0][0]] + text[bounds[-1][1] :]).strip()
