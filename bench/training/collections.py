"""The collections that trained encoders are compared on, by the part they play."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.data.collections import Collection, data_folder, read_collection
from quarry.training.data.beir import BeirPart, iterate_beir_entries, read_qrels
from quarry.training.data.evaluation_texts import EXCLUDED_ARTICLES
from quarry.training.data.json_lines import json_lines

__all__ = [
    "COLLECTIONS",
    "SMALL_COLLECTIONS",
    "articles_by_title",
    "articles_of_split_train",
    "held_out_articles",
    "join_documents",
    "pairs_collection",
    "write_collection",
]

_SQUAD_DOCUMENTS, _SQUAD_QUERIES = 4067, 1000
_HELD_OUT_ARTICLES = 40
_PAIRS, _ARTICLES = 1500, 1000


def held_out_articles(name: str, n_articles: int, n_queries: int) -> Collection:
    """The articles of a collection's split train that training holds out, and questions on them."""
    folder = data_folder(name)
    part = BeirPart(folder, EXCLUDED_ARTICLES, n_articles, is_held_out=True, id_prefix="train-")
    return articles_of_split_train(part, f"{name}-held-out").subset(None, n_queries)


def articles_of_split_train(part: BeirPart, name: str) -> Collection:
    """Documents of a collection, and the queries of split train whose judged documents are all among them.

    Args:
        part: which documents.
        name: of the result.
    """
    folder = part.folder
    documents = {entry["_id"]: f"{entry['title']}\n{entry['text']}" for entry in part.entries()}
    qrels = {
        query: scores
        for query, scores in read_qrels(folder / "qrels" / "train.tsv").items()
        if scores.keys() <= documents.keys()
    }
    entries = iterate_beir_entries(folder, "queries")
    queries = {entry["_id"]: entry["text"] for entry in entries if entry["_id"] in qrels}
    return Collection(name, "train", documents, queries, qrels)


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


def write_collection(collection: Collection, folder: Path) -> Path:
    """Write a collection in BEIR format into a new folder, complete or not at all, and return the folder.

    Args:
        collection: documents with their title in the first line.
        folder: is left alone if it is there.
    """
    if folder.is_dir():
        return folder
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "qrels").mkdir(parents=True)
    with (partial / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for name, text in collection.documents.items():
            title, _, body = text.partition("\n")
            file.write(json.dumps({"_id": name, "title": title, "text": body}) + "\n")
    with (partial / "queries.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(
            json.dumps({"_id": name, "text": text}) + "\n" for name, text in collection.queries.items()
        )
    with (partial / "qrels" / f"{collection.split}.tsv").open("w", encoding="utf-8") as file:
        file.write("query-id\tcorpus-id\tscore\n")
        for query, judged in collection.qrels.items():
            file.writelines(f"{query}\t{document}\t{score}\n" for document, score in judged.items())
    partial.rename(folder)
    return folder


def pairs_collection(name: str, count: int) -> Collection:
    """The first pairs of a file: the query of each has one relevant document, its own."""
    documents: dict[str, str] = {}
    queries: dict[str, str] = {}
    lines = json_lines(data_folder("pairs") / f"{name}.jsonl.gz")
    for number, (_, pair) in zip(range(count), lines, strict=False):
        documents[f"d{number}"], queries[f"q{number}"] = str(pair["d"]), str(pair["q"])
    qrels = {query: {f"d{query[1:]}": 1} for query in queries}
    return Collection(name, "pairs", documents, queries, qrels)


def articles_by_title(name: str, id_prefix: str, n_articles: int) -> Collection:
    """Articles whose passages are the documents, without their titles; a title is a query for all of them.

    Args:
        name: of a collection of passages with the titles of their articles.
        id_prefix: of the passages.
        n_articles: number of articles, taken at equal distances in the order of the file.
    """
    passages: dict[str, dict[str, str]] = {}
    for entry in iterate_beir_entries(data_folder(name), "corpus"):
        if entry["_id"].startswith(id_prefix) and entry["title"]:
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
