"""Quoted phrases and prefixes are compared with plain Python over the texts, analyzed by the same rules."""

from __future__ import annotations

import json
import math
import random
import re
from functools import cache

import pytest
from support.indexes.sharded import columns
from support.indexes.word_encoder import WordEncoder

from quarry import engine
from quarry.engine import Engine
from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.analysis.words import normalize_word, split_compound, split_words

ENCODER = WordEncoder()
ANALYZER = Analyzer()
WORDS = [
    *("the", "of", "to", "boundary", "layer", "layers", "run", "running", "runner", "runs", "international"),
    *("internal", "boundary-layer", "boundaryLayer", "e-mail", "email", "address", "Lord", "Rings", "ring", "C++"),
    *("C#", "3.14", "state-of-the-art", "state", "art", "don't", "naïve", "parse_args", "parseArgs"),
]
PREFIXES = ["boun", "runn", "internat", "ru", "ema", "parsea", "stat", "c++", "3.1", "nai", "zz"]
K1, B = 1.2, 0.75


@cache
def names(word):
    """Return the terms of a word, or its lower case for a stop word."""
    return ANALYZER.terms(word) or [word.lower()]


@cache
def readings(text):
    """Return the words of a text twice: with compounds split into parts, and with compounds as one word."""
    parts, wholes = [], []
    for word in map(normalize_word, split_words(text)):
        whole, pieces = split_compound(word)
        is_plain = not pieces or word[-1] in "+#" or (word.isalpha() and (word[1:].islower() or word.isupper()))
        wholes.append(names(word)[0] if whole else frozenset(names(word)))
        parts += [wholes[-1]] if is_plain else [names(piece)[0] for piece in pieces]
    return parts, wholes


def has_phrase(text, phrase):
    if not ANALYZER.terms(phrase):  # a phrase of stop words alone matches everything
        return True
    return any(
        words[at : at + len(wanted)] == wanted
        for words, wanted in zip(readings(text), readings(phrase), strict=True)
        for at in range(len(words))
    )


@cache
def count(text, term):
    terms = ANALYZER.terms(text)
    if not term.endswith("*"):
        return terms.count(term)
    prefix = term[:-1]
    found = sum(each.startswith(prefix) for each in terms)
    for word in split_words(text):
        whole, pieces = split_compound(word)
        own = ANALYZER.terms(word)
        spelled = any(each.lower().startswith(prefix) and ANALYZER.terms(each) for each in (whole, *pieces))
        found += bool(own) and spelled and not any(each.startswith(prefix) for each in own)
    return found


def expected(texts, words, prefixes, phrases, *, required):
    """Return the matching documents with scores: phrases are conditions, or terms of frequency 1 and length 0."""
    terms = [term for each in (words, *phrases) for term in ANALYZER.terms(each)] + [
        f"{each}*" for each in prefixes
    ]
    average = sum(len(ANALYZER.terms(text)) for text in texts.values()) / len(texts)
    frequency = {term: sum(count(text, term) > 0 for text in texts.values()) for term in terms}
    several = {each for each in phrases if len(split_words(each)) > 1 and ANALYZER.terms(each)}
    raising = (
        {} if required else {each: sum(has_phrase(text, each) for text in texts.values()) for each in several}
    )
    found = {}
    for doc_id, text in texts.items():
        score = 0.0
        for term in terms:
            tf, df = count(text, term), frequency[term]
            norm = K1 * (1 - B + B * len(ANALYZER.terms(text)) / average)
            score += math.log1p((len(texts) - df + 0.5) / (df + 0.5)) * tf / (tf + norm)
        for phrase, df in raising.items():
            score += (
                has_phrase(text, phrase) * math.log1p((len(texts) - df + 0.5) / (df + 0.5)) / (1 + K1 * (1 - B))
            )
        if score > 0 and not (required and any(not has_phrase(text, phrase) for phrase in phrases)):
            found[doc_id] = score
    return found


def check(index, texts, words, prefixes, phrases):
    query = " ".join([words, *(f"{each}*" for each in prefixes), *(f'"{each}"' for each in phrases)])
    for operators in (None, True):
        wanted = expected(texts, words, prefixes, phrases, required=bool(operators))
        given = {"mode": "lexical", "typos": False, "operators": operators}
        hits = index.search(query, k=len(texts) + 1, **given)
        assert {hit.id: hit.score for hit in hits} == pytest.approx(wanted, rel=1e-5), query
        assert columns(index.search(query, k=3, **given)) == columns(hits[:3]), query
    if phrases:
        both = index.search(query, operators=True, k=len(texts) + 1, typos=False)
        assert {hit.id for hit in both} == {
            each for each in texts if all(has_phrase(texts[each], p) for p in phrases)
        }
    return len(wanted)


def random_texts(n, seed):
    generator = random.Random(seed)
    return {f"d{number:04}": " ".join(generator.choices(WORDS, k=generator.randint(1, 12))) for number in range(n)}


def random_query(generator):
    def some(low, high):
        return " ".join(generator.choices(WORDS, k=generator.randint(low, high)))

    return some(0, 2), generator.sample(PREFIXES, generator.randint(0, 2)), [some(1, 3)] * generator.randint(0, 1)


@pytest.fixture(scope="module")
def random_index(tmp_path_factory):
    """Build an index of several segments with deleted documents; return it and the texts of the live documents."""
    folder = tmp_path_factory.mktemp("random") / "index"
    texts = random_texts(400, 0)
    items = list(texts.items())
    engine.build(
        ({"id": key, "text": text} for key, text in items[:150]), folder, encoder=ENCODER, passage_words=None
    )
    with Engine.open(folder, encoder=ENCODER, writable=True) as index:
        for low in (150, 280):
            index.add({"id": key, "text": text} for key, text in items[low : low + 130])
            index.commit()
        gone = [key for number, (key, _) in enumerate(items) if number % 7 == 3]
        index.delete(gone)
        index.commit()
        yield index, {key: text for key, text in items if key not in gone}


@pytest.mark.parametrize("seed", range(4))
def test_random_texts(random_index, seed):
    index, texts = random_index
    generator = random.Random(seed)
    n_found = sum(check(index, texts, *random_query(generator)) > 0 for _ in range(20))
    assert n_found > 5


def test_cranfield(tmp_path_factory, data_folder):
    lines = (data_folder("cranfield") / "corpus.jsonl").read_text().splitlines()[:100]
    texts = {doc["_id"]: doc["title"] + "\n" + doc["text"] for doc in map(json.loads, lines)}
    folder = tmp_path_factory.mktemp("cranfield") / "index"
    engine.build(
        ({"id": key, "text": text} for key, text in texts.items()), folder, encoder=ENCODER, passage_words=None
    )
    generator = random.Random(1)
    with Engine.open(folder, encoder=ENCODER) as index:
        for _ in range(8):
            words = generator.choice(list(texts.values())).split()
            at, length = generator.randrange(len(words) - 5), generator.randint(2, 3)
            phrase = " ".join(words[at : at + length]).replace('"', "")
            prefix = generator.choice(re.findall(r"[a-z]{6,}", " ".join(words)))[: generator.randint(3, 6)]
            assert check(index, texts, "", [prefix], [phrase]) > 0


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
@pytest.mark.parametrize("operators", [None, True])
def test_shards_and_filters(tmp_path, mode, operators):
    """Ids and scores are the same to the last bit with three shards and one."""
    texts = random_texts(240, 5)
    docs = [{"id": key, "text": text, "metadata": {"n": int(key[1:]) % 3}} for key, text in texts.items()]
    gone = list(texts)[::5]
    for name, options in (("one", {}), ("three", {"shards": 3})):
        engine.build(docs, tmp_path / name, encoder=ENCODER, **options)
        with Engine.open(tmp_path / name, encoder=ENCODER, writable=True) as index:
            index.delete(gone)
            index.commit()
    generator = random.Random(2)
    queries = []
    for _ in range(25):
        words, prefixes, phrases = random_query(generator)
        queries.append(
            " ".join([words, *(f"{each}*" for each in prefixes), *(f'"{each}"' for each in phrases), "run"])
        )
    with (
        Engine.open(tmp_path / "one", encoder=ENCODER, backend="exact") as one,
        Engine.open(tmp_path / "three", encoder=ENCODER, backend="exact") as three,
    ):
        for only in (None, {"n": 1}):
            found = one.search(queries, operators=operators, k=30, mode=mode, filter=only, explain=True)
            others = three.search(queries, operators=operators, k=30, mode=mode, filter=only, explain=True)
            for query, here, there in zip(queries, found, others, strict=True):
                ours = sorted(columns(here), key=lambda row: (-row[1], row[0]))
                assert ours == sorted(columns(there), key=lambda row: (-row[1], row[0])), query
                alone = one.search(query, operators=operators, k=30, mode=mode, filter=only)
                assert columns(alone) == columns(here)
                assert {hit.id: (dict(hit.terms), hit.words) for hit in here} == {
                    hit.id: (dict(hit.terms), hit.words) for hit in there
                }
        assert one.facets("n", query='"boundary layer"') == three.facets("n", query='"boundary layer"')
