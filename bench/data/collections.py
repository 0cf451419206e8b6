"""Retrieval test collections in the folder layout of BEIR, and the command ``collection``, which copies one."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.data.prepared import cache_folder
from quarry.engine.bundled.stdlib_docstrings import StdlibDocument, stdlib_documents
from quarry.engine.evaluation.judgments import read_qrels

__all__ = [
    "DOCSTRINGS",
    "Collection",
    "CollectionNotFound",
    "add_arguments",
    "add_collection",
    "data_folder",
    "docstrings_folder",
    "load_collection",
    "read_collection",
    "read_entries",
    "run",
    "split_of",
    "write_docstrings",
]


class CollectionNotFound(FileNotFoundError):
    """There is no collection of that name; the message names the folders that were tried."""


@dataclass(frozen=True)
class Collection:
    """Documents, queries and judgments of one split.

    Attributes:
        name: the folder's name.
        split: the split whose judgments these are.
        documents: text by document id, in the order of the file: the title, a line break and the text, or only the
            text if the title is empty.
        queries: text by query id, in the order of the file: the queries with judgments in the split.
        qrels: ids and scores of the judged documents by query id; a higher score is better.
    """

    name: str
    split: str
    documents: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]

    def subset(self, n_documents: int | None, n_queries: int | None) -> Collection:
        """Return a collection with fewer documents and queries, the same in every run.

        Queries are sampled at equal distances. All documents with a judgment in the split are kept, those of
        dropped queries too; the others are sampled at equal distances.

        Args:
            n_documents: number of documents; None: all. Never less than the number of judged documents.
            n_queries: number of queries; None: all.
        """
        judged = {document for scores in self.qrels.values() for document in scores}
        others = [document for document in self.documents if document not in judged]
        n_others = len(others) if n_documents is None else max(0, n_documents - len(judged))
        kept = judged.union(_sample(others, n_others))
        queries = _sample(list(self.queries), len(self.queries) if n_queries is None else n_queries)
        return Collection(
            self.name,
            self.split,
            {document: text for document, text in self.documents.items() if document in kept},
            {query: self.queries[query] for query in queries},
            {query: self.qrels[query] for query in queries},
        )


def data_folder(name: str) -> Path:
    """Return the folder of a collection, given by name or path.

    Names are looked up in the folder that the environment variable QUARRY_DATA names, or else in
    ``../shared/data`` beside the repository. The collection `docstrings` is created if there is no folder of that
    name.

    Raises:
        CollectionNotFound: there is no such folder.
    """
    root = os.environ.get("QUARRY_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data"
    candidates = [Path(root) / name, Path(name)]
    for folder in candidates:
        if folder.is_dir():
            return folder
    if name == DOCSTRINGS:
        return docstrings_folder(cache_folder())
    raise CollectionNotFound(
        f"no collection {name!r}: neither {candidates[0]} nor {candidates[1]} is a folder; "
        f"QUARRY_DATA names the folder of collections, and {DOCSTRINGS!r} is always available"
    )


def add_collection(parser: argparse.ArgumentParser, *, is_sized: bool = True, queries: int | None = None) -> None:
    """Declare the arguments that select a collection, for `load_collection`.

    Args:
        parser: the parser of the measurement's arguments.
        is_sized: whether to add the options ``--documents`` and ``--queries``.
        queries: default of ``--queries``; None: all.
    """
    about = "name or path of a folder in BEIR's layout (default: %(default)s)"
    parser.add_argument("collection", nargs="?", default=DOCSTRINGS, metavar="COLLECTION", help=about)
    parser.add_argument(
        "--split", help="the split whose judgments are used (default: dev if there is one, otherwise test)"
    )
    if is_sized:
        parser.add_argument("--documents", type=int, help="use only this many documents")
        default = "all" if queries is None else "%(default)s"
        parser.add_argument(
            "--queries", type=int, default=queries, help=f"use at most this many (default: {default})"
        )


def load_collection(args: argparse.Namespace) -> Collection:
    """Read the collection that the arguments of `add_collection` select, reduced to the requested size.

    Raises:
        CollectionNotFound: there is no such collection.
    """
    folder = data_folder(args.collection)
    collection = read_collection(folder, args.split or split_of(folder))
    return collection.subset(args.documents, args.queries) if hasattr(args, "queries") else collection


def split_of(folder: Path) -> str:
    """Return the split that measurements use: dev if the collection has one, otherwise test."""
    return "dev" if (folder / "qrels" / "dev.tsv").exists() else "test"


def read_collection(folder: Path, split: str) -> Collection:
    """Read ``corpus.jsonl`` (or ``.jsonl.gz``), ``queries.jsonl`` and ``qrels/<split>.tsv`` of a folder.

    Raises:
        FileNotFoundError: there are no documents, or no queries.
        AccessFailed: the judgments cannot be read.
        InvalidQuery: a line of them is not valid.
        ValueError: a judgment is of a query or a document that is missing.
    """
    qrels = read_qrels(folder / "qrels" / f"{split}.tsv")
    documents = {
        entry["_id"]: f"{entry['title']}\n{entry['text']}" if entry.get("title") else entry["text"]
        for entry in read_entries(folder, "corpus")
    }
    queries = {entry["_id"]: entry["text"] for entry in read_entries(folder, "queries") if entry["_id"] in qrels}
    judged = {document for scores in qrels.values() for document in scores}
    missing = sorted(qrels.keys() - queries.keys()) + sorted(judged - documents.keys())
    if missing:
        raise ValueError(f"{folder}: qrels/{split}.tsv has judgments of missing ids: {missing[:5]}")
    return Collection(folder.resolve().name, split, documents, queries, qrels)


def read_entries(folder: Path, stem: str) -> Iterator[dict[str, str]]:
    """Yield the objects of ``STEM.jsonl`` or ``STEM.jsonl.gz`` in a folder.

    Raises:
        FileNotFoundError: there is neither.
    """
    for path in (folder / f"{stem}.jsonl", folder / f"{stem}.jsonl.gz"):
        if path.exists():
            with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
                yield from map(json.loads, lines)
            return
    raise FileNotFoundError(f"{folder}: neither {stem}.jsonl nor {stem}.jsonl.gz exists")


def _sample(values: list[str], count: int) -> list[str]:
    """Return ``count`` of the values at equal distances, or all if there are fewer."""
    if count >= len(values):
        return values
    return [values[index * len(values) // count] for index in range(count)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m bench collection``."""
    add_collection(parser, is_sized=False)
    parser.add_argument("--out", type=Path, help="folder to copy it to; without it only the path is printed")


def run(args: argparse.Namespace) -> int:
    """Copy the collection if requested and print its folder."""
    folder = data_folder(args.collection)
    if args.out is not None and not args.out.exists():
        shutil.copytree(folder, args.out)
    print(args.out or folder)
    return 0


DOCSTRINGS = "docstrings"
_MIN_CHARACTERS = 80  # of a document


def docstrings_folder(cache: Path) -> Path:
    """Return the folder of the collection in BEIR's layout; it is created on first use."""
    folder = cache / "collections" / f"python-{platform.python_version()}" / DOCSTRINGS
    if not folder.is_dir():
        unfinished = folder.with_name(f"{DOCSTRINGS}.tmp")
        shutil.rmtree(unfinished, ignore_errors=True)
        write_docstrings(unfinished, stdlib_documents())
        unfinished.replace(folder)
    return folder


def write_docstrings(folder: Path, documents: Iterable[StdlibDocument]) -> None:
    """Write a collection made of docstrings into a new folder.

    Args:
        folder: the folder to create, with ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv``.
        documents: docstrings; those of one paragraph are skipped.
    """
    (folder / "qrels").mkdir(parents=True)
    pairs = _split_docstrings(documents)
    _write_lines(folder / "corpus.jsonl", ({"_id": name, "title": "", "text": rest} for name, _, rest in pairs))
    _write_lines(folder / "queries.jsonl", ({"_id": f"q-{name}", "text": query} for name, query, _ in pairs))
    judgments = ["query-id\tcorpus-id\tscore", *(f"q-{name}\t{name}\t1" for name, _, _ in pairs)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(judgments) + "\n", encoding="utf-8")


def _split_docstrings(documents: Iterable[StdlibDocument]) -> list[tuple[str, str, str]]:
    """Return id, first paragraph and rest of each docstring; duplicates of either are dropped."""
    by_query: dict[str, tuple[str, str, str]] = {}
    rests: set[str] = set()
    for document in documents:
        first, _, rest = document["text"].partition("\n\n")
        query = " ".join(first.split())
        if len(rest) >= _MIN_CHARACTERS and query not in by_query and rest not in rests:
            by_query[query] = (document["id"], query, rest)
            rests.add(rest)
    return list(by_query.values())


def _write_lines(path: Path, entries: Iterable[Mapping[str, str]]) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
