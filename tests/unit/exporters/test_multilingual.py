"""The recipe of the documentation for a multilingual encoder, with checkpoints of its kinds and random weights.

Such checkpoints have the tokenizer of XLM-RoBERTa, a Unigram model of SentencePiece, trained here on few
sentences, and either its network or that of BERT.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from support.models.tiny_checkpoint import CONFIG, N_POSITIONS, edit_json, random_weights, write_checkpoint
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from quarry.engine import Engine, open_encoder
from quarry.engine.cli.commands import main

DOCS = Path(__file__).parents[3] / "docs" / "encoders.md"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
TEXTS = {
    "en": "The capital of France is Paris, and the river Seine flows through the city.",
    "de": "Die Hauptstadt von Österreich ist Wien; durch die Stadt fließt die Donau.",
    "ru": "Столица России — Москва, и через город течёт река Москва.",
    "ja": "日本の首都は東京です。隅田川が街を流れています。",
    "zh": "中国的首都是北京，长城在北京的北边。",
    "ko": "대한민국의 수도는 서울이고 한강이 도시를 흐른다.",
    "ar": "عاصمة مصر هي القاهرة ويجري فيها نهر النيل.",
}


def train_tokenizer() -> Tokenizer:
    """A tokenizer with the parts that the one of XLM-RoBERTa has."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=220, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS.values(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    return tokenizer


@pytest.fixture(params=["bert", "xlm-roberta"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a checkpoint of this network and documents, which is the working directory."""
    tokenizer = train_tokenizer()
    n_words = tokenizer.get_vocab_size()
    weights = random_weights()
    rng = np.random.default_rng(1)
    sizes = {"word": n_words, "position": N_POSITIONS + 2, "token_type": 1}
    if request.param == "bert":
        sizes = {"word": n_words}
    for name, n_rows in sizes.items():
        dim = weights[f"embeddings.{name}_embeddings.weight"].shape[1]
        weights[f"embeddings.{name}_embeddings.weight"] = rng.normal(0, 1, (n_rows, dim)).astype(np.float32)
    config = {**CONFIG, "model_type": request.param, "vocab_size": n_words, "pad_token_id": 1}
    if request.param == "xlm-roberta":
        config |= {"max_position_embeddings": N_POSITIONS + 2, "type_vocab_size": 1}
    checkpoint = write_checkpoint(tmp_path / "checkpoint", weights=weights, config=config, normalize=False)
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    edit_json(checkpoint / "sentence_bert_config.json", max_seq_length=32)
    lines = [json.dumps({"id": name, "text": text}, ensure_ascii=False) for name, text in TEXTS.items()]
    (tmp_path / "docs.jsonl").write_text("\n".join(lines), "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recipe() -> list[list[str]]:
    """The commands of the documentation that need no network, without the name of the program."""
    text = DOCS.read_text("utf-8").partition("**A multilingual encoder**")[2].partition("```\n")[2]
    commands = [shlex.split(line) for line in text.partition("```")[0].splitlines()]
    return [words[1:] for words in commands if words[0] == "quarry"]


def test_the_recipe_of_the_documentation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = recipe()
    assert [words[0] for words in commands] == ["export", "build", "search"]
    for words in commands:
        assert main(words) == 0, capsys.readouterr().err
    capsys.readouterr()
    tokenizer = Tokenizer.from_file(str(folder / "checkpoint" / "tokenizer.json"))
    encoder = open_encoder("multilingual")
    with Engine.open("idx", encoder=encoder) as index:
        for name, text in TEXTS.items():
            windows = list(encoder.windows(text))
            spans = [
                span for each in windows for span in zip(each.starts.tolist(), each.ends.tolist(), strict=True)
            ]
            assert spans == tokenizer.encode(text).offsets[1:-1]
            assert {hit.id for hit in index.search(text, mode="dense")} == TEXTS.keys()
            assert index.search(text, k=1, mode="lexical")[0].id == name
            hit = index.search(text, k=1, explain=True)[0]
            assert hit.passages[0].text in TEXTS[hit.id]
