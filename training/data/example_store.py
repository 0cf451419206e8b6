"""Examples on disk: queries, documents, and which documents are relevant to which queries."""

from __future__ import annotations

import json
import os
import shutil
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
import numpy.typing as npt

from quarry.formats.errors import CorruptFile, InvalidDocument, InvalidSetting
from quarry.training.data.refusal import Refusal

__all__ = ["ExampleStore", "ExampleWriter"]

Numbers = npt.NDArray[np.int64]

_ABOUT = "about.json"
# Short questions and popular paragraphs occur in several collections by coincidence: so many are tolerated.
_COINCIDENCES = 1e-3  # of the examples
_LEAST_COINCIDENCES = 3  # texts that may be equal to evaluation texts by chance
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # BERT's tokenizers leave it out


class ExampleWriter:
    """Writes a store, which appears under its name once it is complete.

    A context manager: at its end an unfinished store is deleted. Memory: about 100 bytes for each document and
    query, whatever their length.

    Args:
        folder: the store to write; an existing one is replaced.
        refusal: recognizes the texts that must not be trained on.
    """

    def __init__(self, folder: Path, refusal: Refusal) -> None:
        self._folder = folder
        self._refusal = refusal
        self._partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir(parents=True)
        self._documents = _TextWriter(self._partial / "documents")
        self._queries = _TextWriter(self._partial / "queries")
        self._positives = _Ragged()
        self._negatives = _Ragged()
        self._number_of: dict[bytes, int] = {}
        self._groups: list[int] = []
        self._left_out: list[str] = []
        self._group_numbers: dict[str, int] = {}
        self._n_seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._documents.close()
        self._queries.close()
        shutil.rmtree(self._partial, ignore_errors=True)

    def document(self, text: str, group: str, place: str) -> int | None:
        """Add a document and return its number; the same text has the same number.

        A text of an evaluation collection is left out: its number is None.

        Args:
            text: what the network reads: title, line break, text.
            group: documents of one group are similar, for example paragraphs of an article; empty: unknown.
            place: file and line or id, for messages.

        Raises:
            InvalidDocument: the text is blank.
        """
        if _is_blank(text):
            raise InvalidDocument(f"{place}: the passage is blank", expected="a text")
        digest = _digest(text)
        number = self._number_of.get(digest)
        if number is None:
            if self._refusal.is_kept_for_evaluation(text):
                self._left_out.append(f"{place}, {text[:80]!r}")
                return None
            number = self._number_of[digest] = self._documents.add(text)
            self._groups.append(self._group_numbers.setdefault(group, len(self._group_numbers)) if group else -1)
        return number

    def example(
        self, query: str, positives: Sequence[int | None], negatives: Sequence[int | None], place: str
    ) -> None:
        """Add a query with the numbers of its relevant documents, one at least, and of documents that are not.

        Left out are queries of evaluation collections, and queries whose relevant documents were all left out.

        Raises:
            InvalidDocument: the query is blank, it has no relevant document, or one is in both lists.
        """
        if _is_blank(query):
            raise InvalidDocument(f"{place}: the query is blank", expected="a text")
        self._n_seen += 1
        if self._refusal.is_kept_for_evaluation(query):
            self._left_out.append(f"{place}, {query[:80]!r}")
            return
        if positives and all(each is None for each in positives):
            return
        self._add(
            [each for each in positives if each is not None],
            [each for each in negatives if each is not None],
            query,
            place,
        )

    def titles(self, passages: Iterable[tuple[str, str, str]]) -> None:
        """Add titles as queries for texts without a title; all texts of one title are relevant to it.

        Args:
            passages: title, text and place of each; those without a title are left out.

        Raises:
            InvalidDocument: a text is blank.
        """
        documents: dict[str, list[int | None]] = {}
        first_places: dict[str, str] = {}
        for title, text, place in passages:
            if title.strip():
                first_places.setdefault(title, place)
                documents.setdefault(title, []).append(self.document(text, "", place))
        for title, place in first_places.items():
            self.example(title, documents[title], [], place)

    def _add(self, positives: list[int], negatives: list[int], query: str, place: str) -> None:
        both = set(positives) & set(negatives)
        if not positives or both:
            raise InvalidDocument(
                f"{place}: the query has no usable relevant passage",
                expected="one at least that is not a negative too",
                actual=f"{len(positives)} relevant, {len(both)} of them negatives too",
            )
        self._queries.add(query)
        self._positives.add(dict.fromkeys(positives))
        self._negatives.add(dict.fromkeys(negatives))

    def finish(self, about: Mapping[str, object]) -> ExampleStore:
        """Write the store and open it.

        Args:
            about: what it was made of; kept as JSON.

        Raises:
            InvalidSetting: more than a few of its texts belong to evaluation collections.
            InvalidDocument: there are no examples.
        """
        self._check_left_out()
        self._documents.save()
        self._queries.save()
        if not self._queries.n_texts:
            raise InvalidDocument(
                "the source has no example", expected="a query with a relevant passage", path=self._folder
            )
        # Documents without a group are groups of their own.
        groups = np.array(self._groups, np.int64)
        alone = groups < 0
        groups[alone] = len(self._group_numbers) + np.arange(alone.sum())
        np.save(self._partial / "groups.npy", groups)
        for name, ragged in (("positives", self._positives), ("negatives", self._negatives)):
            ragged.save(self._partial, name)
        sizes = {"n_examples": self._queries.n_texts, "n_documents": self._documents.n_texts}
        sizes["n_left_out"] = len(self._left_out)
        (self._partial / _ABOUT).write_text(json.dumps({**about, **sizes}, indent=1, sort_keys=True), "utf-8")
        shutil.rmtree(self._folder, ignore_errors=True)
        self._partial.rename(self._folder)
        return ExampleStore(self._folder)

    def _check_left_out(self) -> None:
        """Refuse a source that shares more texts with evaluation collections than by coincidence."""
        if len(self._left_out) > max(_LEAST_COINCIDENCES, _COINCIDENCES * self._n_seen):
            raise InvalidSetting(
                f"{len(self._left_out)} texts belong to collections that are kept for evaluation, and training on "
                f"them is refused; the first is {self._left_out[0]}",
                path=self._folder,
                expected="training data without texts of evaluation collections",
                actual=f"{len(self._left_out)} among {self._n_seen} examples",
            )


class ExampleStore:
    """Reads a store; a text is read from disk when it is needed.

    Attributes:
        folder: the folder of the files.
        about: what it was made of, and ``n_examples`` and ``n_documents``.
        groups: (n_documents,) int64, the group of each document.

    Args:
        folder: made by `ExampleWriter`.

    Raises:
        CorruptFile: files are missing or contradict each other.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.about: dict[str, object] = json.loads((folder / _ABOUT).read_text("utf-8"))
            self._documents = _TextReader(folder / "documents")
            self._queries = _TextReader(folder / "queries")
            self._positives = _RaggedReader(folder, "positives")
            self._negatives = _RaggedReader(folder, "negatives")
            self.groups: Numbers = np.load(folder / "groups.npy")
        except (OSError, ValueError) as error:
            raise CorruptFile(f"the prepared data cannot be read: {error}", path=folder) from error
        if len(self._positives) != self.n_examples or len(self.groups) != self.n_documents:
            raise CorruptFile(
                "the prepared data contradicts itself",
                path=folder,
                expected=f"{self.n_examples} examples, {self.n_documents} documents",
                actual=f"{len(self._positives)} examples, {len(self.groups)} documents",
            )

    @property
    def n_examples(self) -> int:
        """Queries in it."""
        return len(self._queries)

    @property
    def n_documents(self) -> int:
        """Distinct documents in it."""
        return len(self._documents)

    def document(self, number: int) -> str:
        """The text of a document."""
        return self._documents[number]

    def query(self, number: int) -> str:
        """The text of an example's query."""
        return self._queries[number]

    def positives(self, example: int) -> Numbers:
        """The numbers of the relevant documents that came with an example, at least one."""
        return self._positives[example]

    def relevant(self, example: int) -> Numbers:
        """The numbers of all documents relevant to an example's query: those of other examples with it, too."""
        return self._relevant_to_repeated.get(example, self._positives[example])

    def negatives(self, example: int) -> Numbers:
        """The numbers of the documents that came with the example as not relevant."""
        return self._negatives[example]

    def example_groups(self) -> Numbers:
        """(n_examples,) int64, the group of each example's first relevant document."""
        return self.groups[self.first_documents()]

    def first_documents(self) -> Numbers:
        """(n_examples,) int64, the number of each example's first relevant document."""
        return self._positives.firsts()

    @cached_property
    def _relevant_to_repeated(self) -> dict[int, Numbers]:
        """The relevant documents of each example whose query other examples have as well."""
        examples_of: dict[bytes, list[int]] = {}
        for example in range(self.n_examples):
            examples_of.setdefault(_digest(self.query(example)), []).append(example)
        repeated = [examples for examples in examples_of.values() if len(examples) > 1]
        together = (
            np.unique(np.concatenate([self._positives[each] for each in examples])) for examples in repeated
        )
        return {
            example: relevant
            for examples, relevant in zip(repeated, together, strict=True)
            for example in examples
        }

    def replace_groups(self, groups: Numbers) -> None:
        """Store other groups, for example clusters, instead of the present ones; atomic."""
        partial = self.folder / "groups.partial.npy"
        np.save(partial, groups)
        partial.rename(self.folder / "groups.npy")
        self.groups = groups


class _TextWriter:
    def __init__(self, stem: Path) -> None:
        self._stem = stem
        self._file: BinaryIO = stem.with_suffix(".txt").open("wb")
        self._ends = [0]

    @property
    def n_texts(self) -> int:
        return len(self._ends) - 1

    def add(self, text: str) -> int:
        content = text.encode("utf-8", "replace")
        self._file.write(content)
        self._ends.append(self._ends[-1] + len(content))
        return self.n_texts - 1

    def save(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        np.save(self._stem.with_suffix(".npy"), np.array(self._ends, np.int64))

    def close(self) -> None:
        self._file.close()


class _TextReader:
    def __init__(self, stem: Path) -> None:
        self._ends: Numbers = np.load(stem.with_suffix(".npy"))
        path = stem.with_suffix(".txt")
        if path.stat().st_size != self._ends[-1]:
            raise ValueError(f"{path.name} has {path.stat().st_size} bytes, not {self._ends[-1]}")
        # An empty file cannot be mapped, but a store without texts is never written.
        self._bytes = np.memmap(path, np.uint8, "r")

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        low, high = self._ends[number : number + 2].tolist()
        return self._bytes[low:high].tobytes().decode("utf-8")


class _Ragged:
    """Lists of numbers, collected."""

    def __init__(self) -> None:
        self._values: list[int] = []
        self._ends = [0]

    def add(self, numbers: Iterable[int]) -> None:
        self._values += numbers
        self._ends.append(len(self._values))

    def save(self, folder: Path, name: str) -> None:
        np.save(folder / f"{name}.npy", np.array(self._values, np.int64))
        np.save(folder / f"{name}.ends.npy", np.array(self._ends, np.int64))


class _RaggedReader:
    def __init__(self, folder: Path, name: str) -> None:
        self._values: Numbers = np.load(folder / f"{name}.npy")
        self._ends: Numbers = np.load(folder / f"{name}.ends.npy")
        if self._ends[-1] != len(self._values):
            raise ValueError(f"{name}.npy has {len(self._values)} numbers, not {self._ends[-1]}")

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> Numbers:
        return self._values[self._ends[number] : self._ends[number + 1]]

    def firsts(self) -> Numbers:
        return self._values[self._ends[:-1]]


def _is_blank(text: str) -> bool:
    """Whether a text has nothing but spaces, control characters and marks, of which tokenizers make no token."""
    return not any(unicodedata.category(each)[0] in "LNPS" and each != _REPLACEMENT for each in text)


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
