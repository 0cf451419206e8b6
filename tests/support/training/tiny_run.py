"""Training data and recipes for runs of seconds: the checkpoint of `tiny_checkpoint`, and texts of its letters."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from support.models.tiny_checkpoint import random_weights, write_checkpoint

N_ARTICLES, N_PARAGRAPHS = 6, 4


def tiny_encoder(folder: Path) -> Path:
    """Write a checkpoint with smaller word vectors than those of `random_weights`, so that it can learn."""
    weights = {
        name: values * (0.3 if "embeddings.word" in name else 1) for name, values in random_weights().items()
    }
    return write_checkpoint(folder, weights=weights)


def words(rng: np.random.Generator, count: int) -> str:
    """Return random words of two or three letters; every fourth ends a sentence."""
    letters = "abcdefghijklmnop"
    found = ["".join(rng.choice(list(letters), rng.integers(2, 4))) for _ in range(count)]
    return " ".join(word + "." * (number % 4 == 3) for number, word in enumerate(found))


def write_collection(folder: Path, seed: int = 0) -> Path:
    """Write a BEIR collection: six articles of four paragraphs, each with two questions of its words."""
    rng = np.random.default_rng(seed)
    (folder / "qrels").mkdir(parents=True)
    documents, queries, judgments = [], [], ["query-id\tcorpus-id\tscore"]
    for article in range(N_ARTICLES):
        for paragraph in range(N_PARAGRAPHS):
            name, text = f"train-{article}-{paragraph}", words(rng, 9)
            documents.append({"_id": name, "title": f"title {'abcdef'[article]}", "text": text})
            for number in range(2):
                queries.append({"_id": f"q-{name}-{number}", "text": " ".join(text.split()[number * 4 :][:4])})
                judgments.append(f"q-{name}-{number}\t{name}\t1")
    for stem, entries in (("corpus", documents), ("queries", queries)):
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        (folder / f"{stem}.jsonl").write_text(lines, "utf-8")
    (folder / "qrels" / "train.tsv").write_text("\n".join(judgments) + "\n", "utf-8")
    return folder


def write_pairs(path: Path, count: int = 12, seed: int = 1) -> Path:
    """Write a file of pairs of question and document."""
    rng = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            text = words(rng, 8)
            file.write(json.dumps({"q": " ".join(text.split()[2:5]), "d": text}) + "\n")
    return path


RECIPE = """\
[model]
checkpoint = "checkpoint"
frozen = ["embeddings."]
precision = "fp32"
dropout = 0.1
rounds_weights = true
query_tokens = 16
document_tokens = 32
window = 32

[objective]
name = "passages"
tokens_per_piece = [4, 8]

[[teachers]]
name = "original"
encoders = ["checkpoint"]
weight = 0.5
passage_weight = 0.25

[[data]]
name = "articles"
kind = "beir"
path = "collection"
held_out = 2
batch_size = 6
group_size = 3
by_document = true

[[data]]
name = "pairs"
kind = "pairs"
path = "pairs.jsonl"
weight = 0.5
cluster_size = 3
group_size = 2

[negatives]
mode = "hybrid"
every = 4
depth = 6
count = 2
margin = 1.0

[training]
steps = 6
batch_size = 8
chunk_size = 4
n_negatives = 1
checkpoint_every = 2
validate_every = 3

[optimizer]
learning_rate = 1e-3
warmup_steps = 1
schedule = "linear"

[validation]
source = "articles"

[output]
name = "tiny"
licence = "mit"
original_share = 0.25
"""


def write_recipe(folder: Path, text: str = RECIPE) -> Path:
    """Write a recipe with all files that it names."""
    folder.mkdir(parents=True, exist_ok=True)
    tiny_encoder(folder / "checkpoint")
    write_collection(folder / "collection")
    write_pairs(folder / "pairs.jsonl")
    (folder / "recipe.toml").write_text(text, "utf-8")
    return folder / "recipe.toml"


_SHORT_RECIPE = """\
[model]
checkpoint = "checkpoint"
frozen = ["embeddings."]
precision = "fp32"
query_tokens = 16
document_tokens = 32
window = 32

[objective]
name = "passages"
tokens_per_piece = [8]

[[data]]
name = "articles"
kind = "beir"
path = "collection"
held_out = 2
group_size = 4

[[data]]
name = "pairs"
kind = "pairs"
path = "pairs.jsonl"
weight = 0.5

[training]
steps = 5
batch_size = 8
chunk_size = 4
checkpoint_every = 2

[optimizer]
learning_rate = 1e-3

[validation]
source = "articles"

[output]
name = "tiny"
licence = "mit"
"""


def short_recipe(table: str) -> str:
    """Return a recipe of five steps without dropout, teachers or mined negatives, and with a table more."""
    return _SHORT_RECIPE.replace("[training]", f"{table}\n[training]")
