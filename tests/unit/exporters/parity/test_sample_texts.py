"""Sample texts, questions and pairs for comparisons."""

from __future__ import annotations

from quarry.exporters.parity.sample_texts import sample_pairs, sample_questions, sample_texts


def test_sample_texts_are_real_and_plenty() -> None:
    texts = sample_texts()
    assert len(texts) == 200
    assert texts == sample_texts()
    assert len(set(texts)) > 150
    assert min(map(len, texts)) >= 80


def test_every_sample_question_has_one_answer() -> None:
    questions = sample_questions()
    assert questions == sample_questions()
    assert len(questions) == 80
    assert len({query for query, _ in questions}) == len({text for _, text in questions}) == 80


def test_sample_pairs_are_some_near_and_some_far() -> None:
    pairs = sample_pairs()
    assert len(pairs) == len(set(pairs)) == 120
    assert pairs == sample_pairs()
    assert len({query for query, _ in pairs}) >= 38
    assert all(query.strip() and text.strip() for query, text in pairs)
