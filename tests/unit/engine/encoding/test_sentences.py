"""Detection of sentence ends."""

from __future__ import annotations

import re

import numpy as np
import pytest

from quarry.engine.encoding.windows import sentence_end_flags


def tokens_of(text: str) -> tuple[np.ndarray, np.ndarray]:
    spans = np.array([found.span() for found in re.finditer(r"\w+|[^\w\s]", text)], np.int64).reshape(-1, 2)
    return spans[:, 0].copy(), spans[:, 1].copy()


@pytest.mark.parametrize(
    "marked",  # a bar marks each sentence end
    [
        "One.| Two!| Three?| Four",
        "It ends here.|",
        "No end at all",
        "He said \"stop.\"| Then (he left.)| Done.|",
        "Wait...| What?!| Yes",
        "Version 3.14 of e.g. this thing, i.e. that.| Good",
        "By J. R. Doe.| Next",
        "\"Who?\" she asked.| \u201cMe.\u201d| So",
        "A title|\nand its text.| End",
        "first|\r\nsecond|\u2028third",
        "\u4f60\u597d\u3002|\u4e16\u754c\uff01|\u300c\u55ef\uff1f\u300d|\u662f",
        "\u0928\u092e \u0964| \u0905\u092c",
        "Is it?| 42 is.| 7",
        "a.b.c x.y",
    ],
)  # fmt: skip
def test_sentence_ends(marked: str) -> None:
    text = marked.replace("|", "")
    starts, ends = tokens_of(text)
    flags = sentence_end_flags(text, starts, ends)
    assert flags.dtype == np.bool_
    shown = ""
    last = 0
    for end, flag in zip(ends, flags, strict=True):
        shown += text[last:end] + "|" * bool(flag)
        last = end
    assert shown + text[last:] == marked


def test_no_tokens() -> None:
    none = np.empty(0, np.int64)
    assert sentence_end_flags("...", none, none).shape == (0,)


def test_only_the_part_that_the_tokens_cover_counts() -> None:
    text = "Before. Here it is. And after. More"
    starts, ends = tokens_of(text)
    whole = sentence_end_flags(text, starts, ends)
    for low in range(len(starts)):
        for high in range(low + 1, len(starts) + 1):
            part = sentence_end_flags(text, starts[low:high], ends[low:high])
            np.testing.assert_array_equal(part[:-1], whole[low : high - 1])


def test_a_stop_that_belongs_to_no_token_ends_the_token_before_it() -> None:
    text = "one. Two"
    flags = sentence_end_flags(text, np.array([0, 5]), np.array([3, 8]))
    assert flags.tolist() == [True, False]
