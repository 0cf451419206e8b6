"""Makes the fingerprints of the evaluation collections that training refuses.

``python -m quarry.training.data.evaluation_texts SQUAD CRANFIELD SCALE`` reads the three collections in BEIR
format and writes ``evaluation_texts.bin`` beside this file: of squad the questions of the split dev, its
paragraphs and those of the articles that are left out of training, of cranfield everything, of scale the queries
and the Wikipedia half.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from quarry.training.data.beir import iterate_beir_entries
from quarry.training.data.refusal import FINGERPRINTS_PATH, save_fingerprints

__all__ = ["EXCLUDED_ARTICLES", "evaluation_texts"]

EXCLUDED_ARTICLES = ("Egypt", "London", "Melbourne")
"""Articles of squad's split train whose subjects are evaluated elsewhere."""


def evaluation_texts(squad: Path, cranfield: Path, scale: Path) -> Iterator[str]:
    """The texts to refuse, from the folders of the three collections."""
    questions = iterate_beir_entries(squad, "queries")
    yield from (entry["text"] for entry in questions if entry["_id"].startswith("dev-"))
    for entry in iterate_beir_entries(squad, "corpus"):
        if entry["_id"].startswith("dev-") or entry["title"] in EXCLUDED_ARTICLES:
            yield entry["text"]
    for stem in ("queries", "corpus"):
        yield from (entry["text"] for entry in iterate_beir_entries(cranfield, stem))
    yield from (entry["text"] for entry in iterate_beir_entries(scale, "queries"))
    articles = iterate_beir_entries(scale, "corpus")
    yield from (entry["text"] for entry in articles if entry["_id"].startswith("wiki-"))


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m quarry.training.data.evaluation_texts", description=__doc__)
    for name in ("squad", "cranfield", "scale"):
        parser.add_argument(name, type=Path)
    save_fingerprints(evaluation_texts(**vars(parser.parse_args())), FINGERPRINTS_PATH)


if __name__ == "__main__":
    _main()
