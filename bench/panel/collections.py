"""The collections of the panel, each with its part: what may be chosen by it, and if it counts in the mean."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from bench.data.collections import Collection, data_folder, read_collection
from bench.data.evaluation_collections import articles_by_title, held_out_articles, join_documents
from quarry.engine.analysis.analyzer import Analyzer
from quarry.engine.bundled.stdlib_docstrings import stdlib_documents
from quarry.training.data.beir import iterate_beir_entries
from quarry.training.data.json_lines import json_lines

__all__ = ["PANEL", "Member", "Part", "make_identifiers", "make_limit", "plural_nouns"]

Part = Literal["choosing", "finished versions", "comparing"]
_QUICK_QUERIES, _QUICK_DOCUMENTS = 200, 600
_QUERIES, _PAIRS = 500, 1500
_LIMIT_QUERIES = 1000
_SQUAD_DOCUMENTS = 4067  # all that are judged and 2,000 others
_ARTICLES = 600
_LIMIT_DOCUMENTS = 10_000  # a fifth of the published number, which takes half an hour to encode
_QUERY_WORDS, _LEAST_WORDS = 60, 60
_ONE_DOCSTRING_OF = 8  # enough of the thousands that encoding takes a minute
_LANGUAGES = {
    "ar": "arabic",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "hi": "hindi",
    "ro": "romanian",
    "ru": "russian",
    "th": "none",
    "tr": "turkish",
    "vi": "none",
    "zh": "none",
}


@dataclass(frozen=True)
class Member:
    """One collection of the panel.

    Attributes:
        read: returns it at full size.
        part: "choosing" if settings may be chosen by it, "finished versions" if it may only decide among finished
            ones, "comparing" if it is not evidence of quality by itself.
        language: the language of its texts, as the analyzer names it.
        in_mean: whether it counts in the mean of the panel.
    """

    read: Callable[[], Collection]
    part: Part
    language: str = "english"
    in_mean: bool = True

    def collection(self, name: str, *, is_quick: bool) -> Collection:
        """Return the collection under a name, or a small part of it."""
        named = replace(self.read(), name=name)
        return _shrink(named, _QUICK_DOCUMENTS, _QUICK_QUERIES) if is_quick else named


def _shrink(collection: Collection, n_documents: int, n_queries: int) -> Collection:
    """Return some queries, the documents judged for them, and others, so that there are as many if possible."""
    few = collection.subset(None, n_queries)
    judged = {document for scores in few.qrels.values() for document in scores}
    others = [document for document in few.documents if document not in judged]
    step = max(1, len(others) // max(1, n_documents - len(judged)))
    kept = judged.union(others[::step][: max(0, n_documents - len(judged))])
    return replace(few, documents={key: text for key, text in few.documents.items() if key in kept})


def _pairs(file: str) -> Collection:
    """The first pairs of a file, a passage that answers several queries once."""
    ids: dict[str, str] = {}
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    lines = json_lines(data_folder("pairs") / f"{file}.jsonl.gz")
    for number, (_, pair) in zip(range(_PAIRS), lines, strict=False):
        queries[f"q{number}"] = str(pair["q"])
        qrels[f"q{number}"] = {ids.setdefault(str(pair["d"]), f"d{number}"): 1}
    documents = {key: text for text, key in ids.items()}
    return Collection(file, "pairs", documents, queries, qrels).subset(None, _QUERIES)


def _long_queries() -> Collection:
    """Papers: a query is a title with the first words of the abstract, its document the rest of the abstract."""
    folder = data_folder("scale")
    titles = {entry["_id"]: entry["text"] for entry in iterate_beir_entries(folder, "queries")}
    owners = read_collection(folder, "test").qrels
    title_of = {next(iter(judged)): titles[query] for query, judged in owners.items()}
    documents: dict[str, str] = {}
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for entry in iterate_beir_entries(folder, "corpus"):
        words = entry["text"].split()
        name, rest = entry["_id"], words[_QUERY_WORDS:]
        if not name.startswith("arxiv-") or len(rest) < _LEAST_WORDS:
            continue
        if name in title_of:
            queries[name] = f"{title_of[name]} {' '.join(words[:_QUERY_WORDS])}"
            qrels[name] = {name: 1}
        documents[name] = " ".join(rest)
    return _shrink(Collection("long", "test", documents, queries, qrels), _PAIRS, 2 * _QUERIES).subset(
        None, _QUERIES
    )


def _limit(n_documents: int = _LIMIT_DOCUMENTS) -> Collection:
    corpus = (entry["text"] for entry in iterate_beir_entries(data_folder("squad"), "corpus"))
    return make_limit(plural_nouns(corpus, N_THINGS), n_documents, _LIMIT_QUERIES)


def _held_out() -> Collection:
    return held_out_articles("squad", 40, _QUERIES)


def _xquad(code: str, documents: str = "") -> Collection:
    """The questions in one language and the paragraphs in the same or another one, which have the same ids."""
    collection = read_collection(data_folder("xquad") / code, "test").subset(None, _QUERIES)
    if not documents:
        return collection
    return replace(collection, documents=read_collection(data_folder("xquad") / documents, "test").documents)


def _mixed_xquad() -> Collection:
    """The paragraphs of all languages together; the paragraph in the language of a question answers it."""
    mixed = Collection("xquad", "test", {}, {}, {})
    for code in _LANGUAGES:
        own = read_collection(data_folder("xquad") / code, "test").subset(None, _QUERIES // 10)
        mixed.documents.update({f"{code}-{key}": text for key, text in own.documents.items()})
        mixed.queries.update({f"{code}-{key}": text for key, text in own.queries.items()})
        for key, judged in own.qrels.items():
            mixed.qrels[f"{code}-{key}"] = {f"{code}-{document}": grade for document, grade in judged.items()}
    return mixed


PANEL: dict[str, Member] = {
    "held-out": Member(_held_out, "choosing"),
    "joined": Member(lambda: join_documents(_held_out(), 8), "choosing"),
    "wikipedia": Member(lambda: articles_by_title("scale", "wiki-", _ARTICLES).subset(None, _QUERIES), "choosing"),
    "ohsumed": Member(partial(_pairs, "ohsumed"), "choosing"),
    "scitldr": Member(partial(_pairs, "scitldr"), "choosing"),
    "textbooks": Member(partial(_pairs, "openstax"), "choosing"),
    "questions": Member(partial(_pairs, "qed_nq"), "choosing"),
    "long": Member(_long_queries, "choosing"),
    "limit": Member(_limit, "comparing"),
    "squad": Member(
        lambda: read_collection(data_folder("squad"), "dev").subset(_SQUAD_DOCUMENTS, 1000), "finished versions"
    ),
    **{
        name: Member(lambda name=name: read_collection(data_folder(name), "test"), "finished versions")  # type: ignore[misc]
        for name in ("cranfield", "med", "npl")
    },
    "identifiers": Member(
        lambda: make_identifiers([each["text"] for each in stdlib_documents()][::_ONE_DOCSTRING_OF], 30, 200),
        "comparing",
        in_mean=False,
    ),
    **{
        f"xquad-{code}": Member(
            partial(_xquad, code),
            "comparing",
            language,
            in_mean=False,
        )
        for code, language in _LANGUAGES.items()
    },
    **{
        f"xquad-{code}-en": Member(partial(_xquad, code, "en"), "comparing", in_mean=False)
        for code in _LANGUAGES
        if code != "en"
    },
    "xquad-mixed": Member(_mixed_xquad, "comparing", "auto", in_mean=False),
}
"""All collections by name, in the order of the table."""


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


_COMPONENTS = ("payment", "gateway", "session", "ledger", "cache", "index", "upload", "socket", "token", "billing")
_PROBLEMS = ("timeout", "refused", "overflow", "expired", "missing", "corrupt", "denied", "mismatch", "stalled")
_ASKED = ("What does {} mean?", "{}", "why do I get {} when I start it", "How do I fix {}?", "when did {} occur")
_NAMES: tuple[Callable[[str, str, int], str], ...] = (
    lambda one, two, n: f"{one.capitalize()}{two.capitalize()}Error{n}",
    lambda one, two, n: f"E_{one}_{two}_{n}".upper(),
    lambda one, two, n: f"0x{0x80000000 + 7919 * n:08x}",
    lambda one, two, n: f"{one[:3]}-{two[:3]}-{n:05d}".upper(),
)


def make_identifiers(short: Sequence[str], n_logs: int, n_lines: int, n_queries: int = 1000) -> Collection:
    """Make logs, in each of which are identifiers that no other document has, among short texts; always the same.

    Args:
        short: the short texts.
        n_logs: number of logs.
        n_lines: lines of a log besides those with an identifier, which are about ten words long.
        n_queries: number of identifiers, each of which a query asks for.
    """
    generator = random.Random(_SEED)
    pick = generator.choice
    logs = [[f"request {n} served" for n in range(n_lines)] for _ in range(n_logs)]
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for number in range(n_queries):
        owner = generator.randrange(n_logs)
        identifier = _NAMES[number % len(_NAMES)](pick(_COMPONENTS), pick(_PROBLEMS), number)
        logs[owner].insert(generator.randrange(len(logs[owner])), f"failed with {identifier}")
        queries[f"q{number}"] = pick(_ASKED).format(identifier)
        qrels[f"q{number}"] = {f"log{owner}": 1}
    documents = {f"short{number}": text for number, text in enumerate(short)}
    for number, events in enumerate(logs):
        lines = []
        for minute, event in enumerate(events):
            source = f"{pick(_COMPONENTS)}.{pick(_COMPONENTS)}[{generator.randrange(9999)}]"
            result = f"{pick(_COMPONENTS)} {pick(_PROBLEMS)}, status={pick((200, 404, 500))}"
            lines.append(
                f"2024-03-{1 + number:02d} {minute // 60:02d}:{minute % 60:02d} {source} {event}: {result}"
            )
        documents[f"log{number}"] = "\n".join(lines)
    return Collection("identifiers", "test", documents, queries, qrels)
