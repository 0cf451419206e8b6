"""Tokenizers that make texts much longer are refused before they see one."""

from __future__ import annotations

import json

import pytest
from support.models.tiny_checkpoint import tokenizer_object

from quarry.engine.encoding.tokenizer import TextTokenizer
from quarry.formats.errors import CorruptFile


def replacement(before, after):
    return {"type": "Replace", "pattern": before, "content": after}


def sequence(*steps):
    return {"type": "Sequence", "normalizers": [*steps]}


DOUBLE = replacement({"String": "a"}, "aa")
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
LIGATURE = replacement({"String": "\u0627"}, "\ufdfa")  # one letter, of which NFKD makes 18
USUAL = (  # of ALBERT
    replacement({"String": "``"}, '"'),
    {"type": "NFKD"},
    {"type": "StripAccents"},
    {"type": "Lowercase"},
    replacement({"Regex": " {2,}"}, " "),
)


def open_tokenizer(folder, **parts):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**tokenizer_object(), **parts}), "utf-8")
    return TextTokenizer(path)


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": sequence(*[DOUBLE] * 30)},
        {"normalizer": sequence(*[sequence(*[DOUBLE] * 5)] * 6)},
        {"normalizer": sequence(*[replacement({"Regex": "a?"}, "aa")] * 30)},
        {"normalizer": sequence(*[{"type": "ByteLevel"}] * 20)},
        {"normalizer": sequence(*[LIGATURE, {"type": "NFKD"}] * 8)},
        {"normalizer": sequence(*[{"type": "Prepend", "prepend": "a" * 50}] * 9)},
        {"normalizer": replacement({"String": "a"}, "a" * 10_000)},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES] * 20}},
        {"normalizer": sequence(*[{"type": "Nmt"}] * 300)},
    ],
    ids=["doubled", "nested", "expression", "bytes", "ligatures", "prepended", "at once", "pre-tokenizer", "many"],
)
def test_a_tokenizer_that_makes_texts_long_is_refused(tmp_path, parts):
    with pytest.raises(CorruptFile, match=r"tokenizer.json: .*too long; expected at most 256 .* found \d+"):
        open_tokenizer(tmp_path, **parts)


def test_a_tokenizer_that_takes_long_is_refused(tmp_path):
    text, token = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
    many = {"[CLS]": {"id": "[CLS]", "ids": [2] * 100_000, "tokens": ["[CLS]"] * 100_000}}
    template = {"type": "TemplateProcessing", "single": [token, text], "pair": [text], "special_tokens": many}
    for parts in (
        {"post_processor": template},
        {"post_processor": {"type": "Sequence", "processors": [template]}},
        {"post_processor": {**template, "single": [text] * 300, "special_tokens": {}}},
        {"model": {**tokenizer_object()["model"], "max_input_chars_per_word": 10**9}},
    ):
        with pytest.raises(CorruptFile, match=r"tokenizer.json: the tokenizer could take too long; expected"):
            open_tokenizer(tmp_path, **parts)


@pytest.mark.parametrize(
    "normalizer", [None, sequence(*USUAL), sequence(*[replacement({"String": "ab"}, "b")] * 50)]
)
def test_usual_tokenizers_are_opened(tmp_path, normalizer):
    assert len(open_tokenizer(tmp_path, normalizer=normalizer).tokenize("ab").ids)
