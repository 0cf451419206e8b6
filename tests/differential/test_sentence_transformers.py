"""Exported encoders against sentence-transformers' own vectors of queries and documents, in fp32."""

from __future__ import annotations

import json
import warnings
from importlib.util import find_spec

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

import quarry
from quarry.exporters.export import export
from quarry.formats.errors import InvalidSetting

transformers = pytest.importorskip("transformers", reason="sentence-transformers needs transformers")
pytestmark = pytest.mark.skipif(
    not find_spec("torch") or not find_spec("sentence_transformers"),
    reason="vectors are compared with sentence-transformers, which needs torch",
)

WORDS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "moon", "Moon", "raises", "tides", "Paris", "paris"),
    *("query", "passage", "search", ":", "bread"),
)
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "initializer_range": 0.3,
}  # fmt: skip
WINDOW = 24
TEXTS = ("the Moon raises tides", "Paris", "bread: the moon, the Moon and Paris", "tides raises " * 30)


def word_tokenizer():
    tokenizer = Tokenizer(models.WordPiece({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def byte_tokenizer():
    """As of RoBERTa: a blank belongs to the word that follows it."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("\u0120", letter) for letter in "tmMrPpqsb"]
    words = [*WORDS[:5], *letters, *map("".join, pairs)]
    tokenizer = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, pairs, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def piece_tokenizer():
    """As of XLM-R, MPNet's multilingual relatives and T5: a blank is a mark before a word, or a token."""
    letters = sorted(set("".join(WORDS[5:])))
    pieces = [*WORDS[:5], "\u2581", *letters, *(f"\u2581{word}" for word in WORDS[5:])]
    tokenizer = Tokenizer(
        models.Unigram([(piece, -1.0 - len(pieces) / (n + 9)) for n, piece in enumerate(pieces)], 1)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def ending_tokenizer():
    """As of Qwen: no token before a text, one after it."""
    tokenizer = byte_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A [SEP]", special_tokens=[("[SEP]", 3)])
    return tokenizer


def network(kind, n_words):
    long = {"max_position_embeddings": 64, "vocab_size": n_words}
    configs = {  # of one layer, where torch traces the network: a trace of two takes twice as long
        "bert": lambda: {**SIZES, **long},
        "roberta": lambda: {**SIZES, **long, "pad_token_id": 1},
        "xlm-roberta": lambda: {**SIZES, **long, "pad_token_id": 1},
        "mpnet": lambda: {**SIZES, **long, "pad_token_id": 1},
        "distilbert": lambda: {
            "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "initializer_range": 0.3, **long,
        },
        "modernbert": lambda: {
            **SIZES, **long, "pad_token_id": 0, "global_attn_every_n_layers": 2, "local_attention": 8,
        },
        "deberta-v2": lambda: {
            **SIZES, **long, "num_hidden_layers": 1, "relative_attention": True, "pos_att_type": ["p2c", "c2p"],
            "max_relative_positions": 16,
        },
        "nomic_bert": lambda: {**SIZES, **long, "num_hidden_layers": 1},
        "gte": lambda: {**SIZES, **long, "num_hidden_layers": 1},
        "qwen3": lambda: {**SIZES, **long, "num_hidden_layers": 1, "num_key_value_heads": 2, "head_dim": 8},
        "gemma3_text": lambda: {
            **SIZES, **long, "num_hidden_layers": 1, "num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 0,
            "use_bidirectional_attention": True, "sliding_window": 8, "layer_types": ["sliding_attention"],
        },
        "t5": lambda: {
            "vocab_size": n_words, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4,
        },
    }  # fmt: skip
    config = transformers.AutoConfig.for_model(kind, **configs[kind]())
    if kind == "t5":
        return transformers.T5EncoderModel(config)
    return transformers.AutoModel.from_config(config)


def save(folder, pooling, kind="bert", tokenizer=word_tokenizer, *, edits=(), activations=(), **options):
    """Save a model of sentence-transformers with random weights.

    `edits` are (file, changes) of its files, `activations` those of linear layers behind the pooling.
    """
    import torch

    torch.manual_seed(0)
    raw = tokenizer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # imported here, since it takes seconds that those who only collect tests need not wait
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer import modules  # as of version 6

        network(kind, raw.get_vocab_size()).eval().save_pretrained(folder / "network")
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=raw, cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]"
        ).save_pretrained(folder / "network")
        body = modules.Transformer(str(folder / "network"), max_seq_length=WINDOW)
        layers = [modules.Dense(32, 32, activation_function=each) for each in activations]
        parts = [body, modules.Pooling(32, pooling_mode=pooling, **options), *layers, modules.Normalize()]
        SentenceTransformer(modules=parts, device="cpu").save(str(folder / "model"))
    for name, changes in edits:
        path = folder / "model" / name
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")
    return folder / "model"


def export_and_compare(folder, model, query="", document=""):
    """Export, and compare vectors with those of the library with these prompts; None: those that it chooses."""
    from sentence_transformers import SentenceTransformer

    export(model, folder / "bundle", "fp32", texts=["the moon"], retrieval=False)
    encoder = quarry.open_encoder(folder / "bundle")
    expected = SentenceTransformer(str(model), device="cpu")
    for text in TEXTS:
        found = encoder.encode_query(text)
        assert found @ expected.encode_query(text, prompt=query) >= 1 - 1e-5, text
        window = next(iter(encoder.windows(text)))
        if window.ends[-1] >= len(text.strip()):  # a document of more windows is not cut
            assert window.pooled @ expected.encode_document(text, prompt=document) >= 1 - 1e-5, text
    return encoder


PROMPTS = "config_sentence_transformers.json"


@pytest.mark.parametrize(
    ("pooling", "include_prompt"),
    [
        *((pooling, True) for pooling in ("mean", "weightedmean", "cls", "lasttoken", "max")),
        *((pooling, False) for pooling in ("mean", "cls", "lasttoken", "max")),
    ],
)
def test_prompts_that_are_saved_with_the_model(tmp_path, pooling, include_prompt):
    prompts = {"query": "search query: ", "document": "passage: "}
    model = save(tmp_path, pooling, include_prompt=include_prompt, edits=[(PROMPTS, {"prompts": prompts})])
    export_and_compare(tmp_path, model, None, None)


@pytest.mark.parametrize(
    ("config", "query", "document"),
    [
        ({"prompts": {}}, "", ""),
        ({"prompts": {"query": "query:", "passage": "passage : "}}, "query:", "passage : "),
        ({"prompts": {"query": "query : ", "corpus": "passage : "}}, "query : ", "passage : "),
        ({"prompts": {"query": "", "document": "", "s": "search : "}, "default_prompt_name": "s"}, "", ""),
        ({"prompts": {"s": "search : "}, "default_prompt_name": "s"}, "search : ", "search : "),
        ({"prompts": {"query": "search : "}, "default_prompt_name": "query"}, "search : ", ""),
    ],
)
def test_prompts_of_other_names(tmp_path, config, query, document):
    model = save(tmp_path, "cls", edits=[(PROMPTS, config)])
    export_and_compare(tmp_path, model, query, document)


@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken", "max"])
def test_linear_layers_behind_the_pooling(tmp_path, pooling):
    from torch import nn

    activations = [nn.Identity(), nn.Tanh()] if pooling == "cls" else [nn.Identity(), nn.Identity()]
    export_and_compare(tmp_path, save(tmp_path, pooling, activations=activations), None, None)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize(
    ("kind", "tokenizer"),
    [
        ("distilbert", word_tokenizer),
        ("roberta", byte_tokenizer),
        ("xlm-roberta", piece_tokenizer),
        ("mpnet", word_tokenizer),
    ],
)
def test_networks(tmp_path, kind, tokenizer, pooling):
    prompts = {"query": "search query: ", "document": "passage: "}
    model = save(tmp_path, pooling, kind, tokenizer, edits=[(PROMPTS, {"prompts": prompts})])
    export_and_compare(tmp_path, model, None, None)


@pytest.mark.parametrize(
    ("kind", "tokenizer", "pooling"),
    [
        ("t5", piece_tokenizer, "mean"),
        ("modernbert", byte_tokenizer, "cls"),
        ("deberta-v2", piece_tokenizer, "mean"),
        ("nomic_bert", word_tokenizer, "mean"),
        ("gte", word_tokenizer, "cls"),
        ("qwen3", ending_tokenizer, "lasttoken"),
        ("gemma3_text", piece_tokenizer, "mean"),
    ],
)
def test_a_traced_network(tmp_path, kind, tokenizer, pooling):
    pytest.importorskip("onnxscript", reason="torch traces with onnxscript")
    prompts = {"query": "search query: ", "document": "passage: "}
    model = save(tmp_path, pooling, kind, tokenizer, edits=[(PROMPTS, {"prompts": prompts})])
    export_and_compare(tmp_path, model, None, None)


@pytest.mark.parametrize(
    "edits",
    [
        [("sentence_bert_config.json", {"do_lower_case": True})],
        [("sentence_bert_config.json", {"max_seq_length": 9})],
        [("tokenizer_config.json", {"model_max_length": 11})],
        [("tokenizer_config.json", {"model_max_length": 1e30})],
    ],
)
def test_settings_of_the_tokenizer(tmp_path, edits):
    encoder = export_and_compare(tmp_path, save(tmp_path, "mean", edits=edits))
    assert encoder.pooling == "mean"


@pytest.mark.parametrize(
    ("name", "changes", "setting"),
    [
        ("sentence_bert_config.json", {"query_length": 32}, "query_length"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task"),
        ("sentence_bert_config.json", {"modality_config": {"message": {}}}, "modality_config"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pooling_mode"),
        ("1_Pooling/config.json", {"pooling_mode": "mean_sqrt_len_tokens"}, "mean_sqrt_len_tokens"),
    ],
)
def test_what_is_not_supported_is_refused_by_its_name(tmp_path, name, changes, setting):
    model = save(tmp_path, "mean", edits=[(name, changes)])
    with pytest.raises(InvalidSetting, match=setting):
        export(model, tmp_path / "bundle", "fp32")


def test_documents_have_the_vectors_of_their_passages(tmp_path):
    encoder = export_and_compare(tmp_path, save(tmp_path, "cls"))
    texts = [f"{text} {number}" for number, text in enumerate(TEXTS[:3])]
    quarry.build(texts, tmp_path / "index", encoder=encoder)
    with quarry.Engine.open(tmp_path / "index", encoder=encoder) as index:
        for text in texts:
            (hit,) = index.search(text, k=1, mode="dense")
            assert hit.text == text
            assert hit.score == pytest.approx(1, abs=1e-2)
    for refused in ("pieces", "mean", "kmeans"):
        with pytest.raises(InvalidSetting, match=f"'{refused}' is for mean pooling.*cls pooling"):
            quarry.build(texts, tmp_path / "other", encoder=encoder, representation=refused)
