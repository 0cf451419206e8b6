"""LIMIT (O. Weller et al., On the theoretical limitations of embedding-based retrieval, 2025), made anew.

A document says what a person likes, a query asks who likes one thing, and two documents answer it. The pairs that
answer are those of 46 documents: all combinations, as many as there are queries. No vectors of few dimensions can
rank all of them first; the words of the texts do.

The recipe is the published one: a thing of its own for each query, given to the two documents that answer it; all
documents filled up to the same number with things that no query asks for. The things are plural nouns of a corpus
instead of a list, and the names of the persons are made of syllables.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable

from bench.data.collections import Collection
from quarry.engine.analysis.analyzer import Analyzer

__all__ = ["make_limit", "plural_nouns"]

N_THINGS = 1850
"""Number of different things, as in the paper."""
_PER_DOCUMENT = 46
_ANSWERING = 2
_SEED = 42
_PLURAL = re.compile(r"\b(?:of|many|some|other|the) ([a-z]{3,}[^s\W\d_]s)\b")


def plural_nouns(texts: Iterable[str], count: int) -> list[str]:
    """Return the most frequent words that look like plural nouns, with different stems, most frequent first.

    They end in one s, follow a word such as "many", and are a word of the texts without the s, too.
    """
    plurals: Counter[str] = Counter()
    words: set[str] = set()
    for text in texts:
        plurals.update(_PLURAL.findall(text))
        words.update(re.findall("[a-z]+", text))
    analyzer = Analyzer()
    by_stem: dict[tuple[str, ...], str] = {}
    for word, _ in sorted(plurals.items(), key=lambda item: (-item[1], item[0])):
        if word[:-1] in words:
            by_stem.setdefault(tuple(analyzer.terms(word)), word)
    return list(by_stem.values())[:count]


def make_limit(things: list[str], n_documents: int, n_queries: int) -> Collection:
    """Make the collection, the same in every run.

    Args:
        things: more than queries.
        n_documents: at least as many as the pairs of the queries take: 46 for 1,000 queries.
        n_queries: number of queries.

    Raises:
        ValueError: there are too few things or documents.
    """
    n_combined = next(n for n in itertools.count(_ANSWERING) if n * (n - 1) // 2 >= n_queries)
    if len(things) <= n_queries + _PER_DOCUMENT or n_documents < n_combined:
        raise ValueError(
            f"{n_queries} queries need more than {n_queries + _PER_DOCUMENT} things and {n_combined} documents;"
            f" found {len(things)} and {n_documents}"
        )
    generator = random.Random(_SEED)
    shuffled = generator.sample(things, len(things))
    asked, others = shuffled[:n_queries], shuffled[n_queries:]
    likes: list[list[str]] = [[] for _ in range(n_documents)]
    qrels: dict[str, dict[str, int]] = {}
    for number, (thing, pair) in enumerate(
        zip(asked, itertools.combinations(range(n_combined), _ANSWERING), strict=False)
    ):
        qrels[f"q{number}"] = {f"d{document}": 1 for document in pair}
        for document in pair:
            likes[document].append(thing)
    documents = {}
    for number, liked in enumerate(likes):
        liked.extend(generator.sample(others, max(0, _PER_DOCUMENT - len(liked))))
        generator.shuffle(liked)
        name = " ".join("".join(generator.choices(_SYLLABLES, k=3)).capitalize() for _ in range(2))
        documents[f"d{number}"] = f"{name} likes {', '.join(liked[:-1])} and {liked[-1]}."
    queries = {f"q{number}": f"Who likes {thing}?" for number, thing in enumerate(asked)}
    return Collection("limit", "test", documents, queries, qrels)


_SYLLABLES = ["".join(pair) for pair in itertools.product("bdfgklmnprstvz", "aeiou")]
