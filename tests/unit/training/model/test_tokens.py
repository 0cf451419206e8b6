"""Batches of tokenized texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import WORDS
from support.training.tiny_run import tiny_encoder

torch = pytest.importorskip("torch", reason="batches need torch")

from quarry.formats.errors import CorruptFile, InvalidDocument, InvalidSetting  # noqa: E402
from quarry.training.model.tokens import TextBatcher  # noqa: E402

CLS, SEP = WORDS.index("[CLS]"), WORDS.index("[SEP]")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("tiny") / "checkpoint") / "tokenizer.json"


def test_texts_are_padded_to_the_longest(tokenizer: Path) -> None:
    batch = TextBatcher(tokenizer, "", 40).batch(["a b", "a b c d", "z"])
    a, b, c, d, z = (WORDS.index(letter) for letter in "abcdz")
    assert batch.ids.tolist() == [[CLS, a, b, SEP, 0, 0], [CLS, a, b, c, d, SEP], [CLS, z, SEP, 0, 0, 0]]
    assert batch.mask.tolist() == [[1, 1, 1, 1, 0, 0], [1] * 6, [1, 1, 1, 0, 0, 0]]
    assert (len(batch), batch.n_before) == (3, 1)
    assert [each.text[low] for each in batch.texts for low in each.starts] == list("ababcdz")


def test_a_part_has_only_its_own_padding(tokenizer: Path) -> None:
    batch = TextBatcher(tokenizer, "", 40).batch(["a b c d", "a b", "z"])
    part = batch.part(1, 3)
    assert part.ids.shape == part.mask.shape == (2, 4)
    assert part.mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert part.texts == batch.texts[1:]
    assert part.to(torch.device("cpu")).ids.tolist() == part.ids.tolist()


def test_long_texts_are_cut_and_prefixes_count(tokenizer: Path) -> None:
    batcher = TextBatcher(tokenizer, "q r ", 6)
    batch = batcher.batch(["a b c d", "z"])
    assert batch.ids.shape == (2, 6)
    assert batch.ids[0].tolist() == [CLS, *(WORDS.index(letter) for letter in "qrab"), SEP]
    assert batch.n_before == 3
    assert [len(each.ids) for each in batch.texts] == [2, 1]
    np.testing.assert_array_equal(batch.texts[0].ends, [1, 3])


def test_what_has_no_token_is_refused(tokenizer: Path) -> None:
    batcher = TextBatcher(tokenizer, "", 6)
    with pytest.raises(InvalidDocument, match="without tokens"):
        batcher.batch(["a", " "])
    with pytest.raises(InvalidSetting, match="no texts"):
        batcher.batch([])
    with pytest.raises((CorruptFile, InvalidSetting)):
        TextBatcher(tokenizer, "", 2)
