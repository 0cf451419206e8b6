"""Measures the relevance of hits in another language than the question, and calibrates bundles for them.

``python -m bench between_languages [--encoder BUNDLE] [--indexes FOLDER] [--write BUNDLE]``

The paragraphs and questions are those of XQuAD in 12 languages. Each half of the paragraphs is an index in every
language, which is asked 100 of its own questions and 100 of the other half's in every language. With ``--write``
a model is fitted on the first hits in the first half, in six of the languages, of questions in another one: the
right ones against the wrong ones and those of questions that nothing answers; it is added to the calibration of a
bundle. Otherwise the relevance of the first hits in the second half is measured, with the calibration that the
encoder has: of questions in the language of the paragraphs, and of those in another one, both of the six
languages that were not fitted on, or one of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.data.collections import Collection, data_folder, read_collection
from bench.harness.records import add_out, append_result
from bench.training.relevance import (
    Floats,
    Vectors,
    area_under_curve,
    fit_logistic,
    index_collection,
    shipped_models,
)
from quarry.engine import Encoder, Engine, open_encoder
from quarry.engine.choices import Mode
from quarry.formats.bundle.folder import add_bundle_file
from quarry.formats.bundle.relevance import BETWEEN_LANGUAGES, RELEVANCE_NAME, write_relevance

__all__ = ["add_arguments", "run"]

_COLLECTION = "xquad"
_FITTED = ("en", "es", "ar", "zh", "ru", "tr")
_MEASURED = ("de", "el", "hi", "ro", "th", "vi")
_MODES: tuple[Mode, ...] = ("hybrid", "dense")
_N_QUESTIONS = 100  # of each half
_N_BINS = 10

Flags = npt.NDArray[np.bool_]


class FirstHits(NamedTuple):
    """The first hits of questions.

    Attributes:
        dense: (n,) dense scores.
        relevance: (n,).
        is_right: (n,) bool, whether the hit answers the question.
        is_answered: (n,) bool, whether any paragraph does.
    """

    dense: Floats
    relevance: Floats
    is_right: Flags
    is_answered: Flags


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench between_languages``."""
    parser.add_argument("--encoder", default="multilingual", help="name or bundle (default: %(default)s)")
    parser.add_argument(
        "--indexes",
        type=Path,
        default=Path(".cache/between_languages"),
        help="folder of the indexes, which are built if they are missing (default: %(default)s)",
    )
    parser.add_argument("--write", type=Path, metavar="BUNDLE", help="the folder of a bundle to calibrate")
    add_out(parser, "between_languages")


def run(args: argparse.Namespace) -> int:
    """Fit a model and write it, or measure, print tables and append the raw results."""
    encoder = open_encoder(args.encoder)
    models = shipped_models(encoder)
    languages = _FITTED if args.write else (*_FITTED, *_MEASURED)
    collections = {each: read_collection(data_folder(_COLLECTION) / each, "test") for each in languages}
    half = 0 if args.write else 1
    questions = [name for number in (0, 1) for name in _choose_questions(collections["en"], number)]
    vectors = {
        name: np.stack([encoder.encode_query(each.queries[question]) for question in questions])
        for name, each in collections.items()
    }
    found: dict[tuple[Mode, str, str], FirstHits] = {}
    for name, collection in collections.items():
        documents = {key: collection.documents[key] for key in _half(collection, half)}
        indexed = replace(collection, name=f"{name}-{half}", documents=documents)
        path = index_collection(indexed, encoder, args.indexes)
        found |= _search(path, name, encoder, collections, questions, vectors, half)
        print(f"searched {name}", flush=True)
    if args.write is None:
        shipped = models.models.get(BETWEEN_LANGUAGES)
        about = {"encoder": encoder.name, "model": None if shipped is None else asdict(shipped)}
        _measure(found, about, args.out)
        return 0
    hits = _join([each for (_, paragraphs, asked), each in found.items() if paragraphs != asked])
    n = len(hits.dense)
    model = fit_logistic(hits.dense.reshape(n, 1), hits.is_right.astype(np.float64), np.ones(n), ["dense"])
    print(f"{BETWEEN_LANGUAGES}: {model}")
    fitted_on = tuple(dict.fromkeys((*models.collections, _COLLECTION)))
    models = replace(models, models={**models.models, BETWEEN_LANGUAGES: model}, collections=fitted_on)
    add_bundle_file(args.write, RELEVANCE_NAME, write_relevance(models))
    return 0


def _half(collection: Collection, half: int) -> list[str]:
    """Return the names of the paragraphs of a half, whose articles are not in the other one."""
    names = list(collection.documents)
    middle = len(names) // 2
    return names[middle:] if half else names[:middle]


def _choose_questions(collection: Collection, half: int) -> list[str]:
    paragraphs = set(_half(collection, half))
    names = [name for name, judged in collection.qrels.items() if not paragraphs.isdisjoint(judged)]
    return names[:: max(1, len(names) // _N_QUESTIONS)][:_N_QUESTIONS]


def _search(
    path: Path,
    name: str,
    encoder: Encoder,
    collections: Mapping[str, Collection],
    questions: Sequence[str],
    vectors: Mapping[str, Vectors],
    half: int,
) -> Iterator[tuple[tuple[Mode, str, str], FirstHits]]:
    """Yield the first hits of all questions of each mode and language, by mode, index and language."""
    answers = collections[name].qrels
    paragraphs = set(_half(collections[name], half))
    is_answered = np.array([not paragraphs.isdisjoint(answers[question]) for question in questions])
    with Engine.open(path, encoder=encoder) as index:
        for mode, (asked, collection) in product(_MODES, collections.items()):
            texts = [collection.queries[question] for question in questions]
            first = [hits[0] for hits in index.search(texts, k=1, mode=mode, vector=vectors[asked])]
            right = [hit.id in answers[question] for hit, question in zip(first, questions, strict=True)]
            dense, relevance = (np.array([hit[key] for hit in first]) for key in ("dense_score", "relevance"))
            yield (mode, name, asked), FirstHits(dense, relevance, np.array(right), is_answered)


def _join(parts: Sequence[FirstHits]) -> FirstHits:
    return FirstHits(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _measure(found: Mapping[tuple[Mode, str, str], FirstHits], about: Mapping[str, object], out: Path) -> None:
    print(f"{'first hits':<28} {'mode':<7} {'right':>6} {'wrong':>6} {'none':>6} {'AUC':>6} right, by relevance")
    groups = {
        "same language": lambda one, two: one == two,
        "other, none fitted on": lambda one, two: one != two and one in _MEASURED and two in _MEASURED,
        "other, one fitted on": lambda one, two: (one in _FITTED) != (two in _FITTED),
    }
    for mode, (group, belongs) in product(_MODES, groups.items()):
        hits = _join([each for (found_by, *pair), each in found.items() if found_by == mode and belongs(*pair)])
        right, relevance = hits.is_right, hits.relevance
        bins = _reliability(relevance, right)
        record = {
            "right": _mean(relevance[right]),
            "wrong": _mean(relevance[~right & hits.is_answered]),
            "none": _mean(relevance[~hits.is_answered]),
            "auc": area_under_curve(relevance[right], relevance[~right]),
        }
        values = [*record.values(), *(share for _, share in bins)]
        row = " ".join("     -" if value is None else f"{value:6.3f}" for value in values)
        print(f"{group:<28} {mode:<7} {row}", flush=True)
        append_result(out, {**record, "bins": bins, "first_hits": group, "mode": mode, **about})


def _mean(values: npt.NDArray[np.generic]) -> float | None:
    return float(values.mean()) if len(values) else None


def _reliability(relevance: Floats, right: Flags) -> list[tuple[int, float | None]]:
    """Return for each tenth of relevance how many hits have it, and the share of right ones; None without hits."""
    bins = np.minimum((relevance * _N_BINS).astype(int), _N_BINS - 1)
    members = [right[bins == number] for number in range(_N_BINS)]
    return [(len(each), _mean(each)) for each in members]
