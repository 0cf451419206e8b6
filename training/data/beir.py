"""Examples of collections in BEIR format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from quarry.engine.documents.document import full_text
from quarry.formats.errors import InvalidDocument, InvalidSetting
from quarry.training.data.example_store import ExampleWriter
from quarry.training.data.json_lines import json_lines

__all__ = ["BeirPart", "draw_held_out_titles", "iterate_beir_entries", "read_beir", "read_qrels", "read_titles"]

_ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst")


@dataclass(frozen=True)
class BeirPart:
    """Which documents of a collection to take.

    Attributes:
        folder: the folder of the collection.
        excluded_titles: documents with one of these titles are left out.
        held_out: articles (documents of one title) kept for validation: those whose titles have the smallest
            digests among all titles of the collection, so that they are the same in every order of the file and
            for every `id_prefix`.
        is_held_out: take the held-out articles instead of all others.
        id_prefix: take only documents whose id begins so.
        limit: maximum number of documents, the first ones; None: all.
    """

    folder: Path
    excluded_titles: tuple[str, ...] = ()
    held_out: int = 0
    is_held_out: bool = False
    id_prefix: str = ""
    limit: int | None = None

    def entries(self) -> Iterator[dict[str, str]]:
        """The entries of the documents, in the order of the file."""
        held_out: set[str] = set()
        if self.held_out:
            held_out = draw_held_out_titles(self.folder, self.held_out, self.excluded_titles)
        n_taken = 0
        for entry in iterate_beir_entries(self.folder, "corpus"):
            title = entry["title"]
            is_wanted = (title in held_out) == self.is_held_out and entry["_id"].startswith(self.id_prefix)
            if is_wanted and title not in self.excluded_titles:
                if n_taken == self.limit:
                    return
                n_taken += 1
                yield entry


def iterate_beir_entries(folder: Path, stem: str) -> Iterator[dict[str, str]]:
    """Yield the objects of ``corpus.jsonl`` or ``queries.jsonl`` (or .gz, .zst) with ``_id``, ``text``, ``title``.

    Raises:
        InvalidSetting: there is no such file.
        InvalidDocument: an object lacks a member, or one is not a string.
    """
    paths = [folder / f"{stem}{ending}" for ending in _ENDINGS if (folder / f"{stem}{ending}").is_file()]
    if not paths:
        raise InvalidSetting("the collection lacks a file", path=folder, expected=f"{stem}.jsonl, .gz or .zst")
    for place, value in json_lines(paths[0]):
        entry = {"_id": value.get("_id"), "text": value.get("text"), "title": value.get("title", "")}
        wrong = [name for name, member in entry.items() if not isinstance(member, str)]
        if wrong:
            raise InvalidDocument(
                f"{place}: {wrong[0]!r} is not a string", path=paths[0], actual=type(entry[wrong[0]]).__name__
            )
        yield {name: str(member) for name, member in entry.items()}


def draw_held_out_titles(folder: Path, count: int, excluded: tuple[str, ...] = ()) -> set[str]:
    """The titles of the articles kept for validation: those with the smallest digests.

    Raises:
        InvalidSetting: there are not more articles than are to be held out.
    """
    titles = {entry["title"] for entry in iterate_beir_entries(folder, "corpus")} - set(excluded)
    if not 0 <= count < len(titles):
        raise InvalidSetting(
            "too many articles to hold out", path=folder, expected=f"below {len(titles)}", actual=count
        )
    return set(sorted(titles, key=lambda title: sha256(title.encode("utf-8", "replace")).digest())[:count])


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """The judgments of a split: for each query id the scores of documents by id.

    Raises:
        InvalidSetting: there is no such file.
        InvalidDocument: a line is malformed.
    """
    if not path.is_file():
        raise InvalidSetting("the collection lacks a split", path=path, expected="a file of judgments")
    qrels: dict[str, dict[str, int]] = {}
    for number, line in enumerate(path.read_text("utf-8").rstrip("\n").split("\n")[1:], 2):
        fields = line.split("\t")
        try:
            query, document, score = fields
            qrels.setdefault(query, {})[document] = int(score)
        except ValueError:
            raise InvalidDocument(
                f"line {number} is not a judgment",
                path=path,
                expected="query, document, whole number",
                actual=fields,
            ) from None
    return qrels


def read_beir(part: BeirPart, split: str, writer: ExampleWriter) -> None:
    """Write the judged queries of a split, with the judged documents that `part` takes.

    Documents scored above 0 are relevant, others negatives. Left out are queries without a relevant document among
    those taken and, of the part that is trained on, queries that are also asked about the held-out articles.
    Memory: the ids.

    Raises:
        InvalidSetting, InvalidDocument: see `iterate_beir_entries`, `read_qrels` and `ExampleWriter`.
    """
    qrels = read_qrels(part.folder / "qrels" / f"{split}.tsv")
    judged = {document for scores in qrels.values() for document in scores}
    held_out = _held_out_queries(part, qrels)
    number_of: dict[str, int | None] = {}
    for entry in part.entries():
        if entry["_id"] in judged:
            text = full_text(entry["title"], entry["text"])
            number_of[entry["_id"]] = writer.document(text, entry["title"], f"{part.folder.name} {entry['_id']}")
    for entry in iterate_beir_entries(part.folder, "queries"):
        scores = qrels.get(entry["_id"], {})
        taken = {document: score for document, score in scores.items() if document in number_of}
        positives = [number_of[document] for document, score in taken.items() if score > 0]
        others = [number_of[document] for document, score in taken.items() if score <= 0]
        negatives = [number for number in others if number not in positives]  # the same text may have two ids
        if positives and entry["text"] not in held_out:
            writer.example(entry["text"], positives, negatives, f"{part.folder.name} {entry['_id']}")


def _held_out_queries(part: BeirPart, qrels: Mapping[str, Mapping[str, int]]) -> set[str]:
    """The texts of the queries with a relevant document in the held-out articles; none of the held-out part."""
    if not part.held_out or part.is_held_out:
        return set()
    held_out = replace(part, is_held_out=True, limit=None, id_prefix="")
    documents = {entry["_id"] for entry in held_out.entries()}
    return {
        entry["text"]
        for entry in iterate_beir_entries(part.folder, "queries")
        if any(score > 0 and document in documents for document, score in qrels.get(entry["_id"], {}).items())
    }


def read_titles(part: BeirPart, writer: ExampleWriter) -> None:
    """Write titles as queries for the texts of documents, without a title; documents without one are left out.

    All documents of one title are relevant to it, for example the passages of an article.

    Raises:
        InvalidSetting, InvalidDocument: see `iterate_beir_entries` and `ExampleWriter`.
    """
    writer.titles(
        (entry["title"], entry["text"], f"{part.folder.name} {entry['_id']}") for entry in part.entries()
    )
