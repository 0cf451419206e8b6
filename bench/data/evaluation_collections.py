"""The collections that encoders and ranking are compared on, by the part they play."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from bench.data.collections import Collection, data_folder, read_collection, read_entries
from quarry.training.data.beir import BeirPart
from quarry.training.data.evaluation_texts import EXCLUDED_ARTICLES

__all__ = [
    "COLLECTIONS",
    "SMALL_COLLECTIONS",
    "articles_by_title",
    "held_out_articles",
    "join_documents",
    "pairs_collection",
]

_SQUAD_DOCUMENTS, _SQUAD_QUERIES = 4067, 1000
_HELD_OUT_ARTICLES = 40
_PAIRS, _ARTICLES = 1500, 1000


def held_out_articles(name: str, n_articles: int, n_queries: int) -> Collection:
    """Articles of a collection's split train that training holds out, and questions on them.

    Args:
        name: the name of the collection.
        n_articles: number of articles.
        n_queries: number of queries, of those whose judged documents are all among the articles.
    """
    folder = data_folder(name)
    part = BeirPart(folder, EXCLUDED_ARTICLES, n_articles, is_held_out=True, id_prefix="train-")
    whole = read_collection(folder, "train")
    documents = {entry["_id"]: whole.documents[entry["_id"]] for entry in part.entries()}
    qrels = {query: scores for query, scores in whole.qrels.items() if scores.keys() <= documents.keys()}
    queries = {query: text for query, text in whole.queries.items() if query in qrels}
    return Collection(f"{name}-held-out", "train", documents, queries, qrels).subset(None, n_queries)


def join_documents(collection: Collection, count: int) -> Collection:
    """Documents of several paragraphs each: those that follow each other and have the same first line, a title.

    A document is relevant as its most relevant paragraph; its id is that of the first one.

    Args:
        collection: paragraphs, with their title in the first line.
        count: how many paragraphs are joined; the last ones of an article may be fewer.
    """
    documents: dict[str, str] = {}
    owners: dict[str, str] = {}
    owner, title, n_joined = "", "", 0
    for name, text in collection.documents.items():
        first, _, body = text.partition("\n")
        if owner and first == title and n_joined < count:
            documents[owner] += f"\n{body}"
        else:
            owner, title, n_joined = name, first, 0
            documents[owner] = text
        owners[name], n_joined = owner, n_joined + 1
    qrels: dict[str, dict[str, int]] = {}
    for query, judged in collection.qrels.items():
        joined: dict[str, int] = {}
        for name, score in judged.items():
            joined[owners[name]] = max(score, joined.get(owners[name], score))
        qrels[query] = joined
    return replace(collection, documents=documents, qrels=qrels)


def pairs_collection(name: str, count: int) -> Collection:
    """The first pairs of a file: the query of each has one relevant document, its own."""
    documents: dict[str, str] = {}
    queries: dict[str, str] = {}
    for number, pair in enumerate(islice(read_entries(data_folder("pairs"), name), count)):
        documents[f"d{number}"], queries[f"q{number}"] = pair["d"], pair["q"]
    qrels = {query: {f"d{query[1:]}": 1} for query in queries}
    return Collection(name, "pairs", documents, queries, qrels)


def articles_by_title(name: str, id_prefix: str, n_articles: int) -> Collection:
    """Articles whose passages are the documents, without their titles; a title is a query for all of them.

    Args:
        name: the name of a collection of passages with the titles of their articles.
        id_prefix: what the ids of the passages begin with.
        n_articles: number of articles, taken at equal distances in the order of the file.
    """
    passages: dict[str, dict[str, str]] = {}
    for entry in read_entries(data_folder(name), "corpus"):
        if entry["_id"].startswith(id_prefix) and entry.get("title"):
            passages.setdefault(entry["title"], {})[entry["_id"]] = entry["text"]
    titles = list(passages)
    chosen = titles[:: max(1, len(titles) // n_articles)][:n_articles]
    documents = {key: text for title in chosen for key, text in passages[title].items()}
    queries = {f"q{number}": title for number, title in enumerate(chosen)}
    qrels = {query: dict.fromkeys(passages[title], 1) for query, title in queries.items()}
    return Collection(f"{name}-titles", "titles", documents, queries, qrels)


SMALL_COLLECTIONS: dict[str, Callable[[], Collection]] = {
    # For choices: never trained on, and not what is reported.
    "held-out": lambda: held_out_articles("squad", _HELD_OUT_ARTICLES, _SQUAD_QUERIES),
    "ohsumed": lambda: pairs_collection("ohsumed", _PAIRS),
    "wikipedia": lambda: articles_by_title("scale", "wiki-", _ARTICLES),
    # To report.
    "squad": lambda: read_collection(data_folder("squad"), "dev").subset(_SQUAD_DOCUMENTS, _SQUAD_QUERIES),
    "cranfield": lambda: read_collection(data_folder("cranfield"), "test"),
}
"""Collections by name that are measured in minutes."""

COLLECTIONS: dict[str, Callable[[], Collection]] = {
    **SMALL_COLLECTIONS,
    "squad-whole": lambda: read_collection(data_folder("squad"), "dev"),
}
"""All collections by name."""
