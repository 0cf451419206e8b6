"""Retrieval for a language model: index a book, and write a prompt with the passages that answer a question.

The book is the part of the language reference that comes with every Python. `book_questions.tsv` has questions,
each with words of the passages that answer it, by which the program counts how often one of these is found.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from pydoc_data.topics import topics

import quarry

QUESTIONS = Path(__file__).with_name("book_questions.tsv")


def chapters() -> list[dict[str, str]]:
    """Return the chapters of the book, without those that are sections of a longer one."""
    book: dict[str, str] = {}
    for name, text in sorted(topics.items(), key=lambda topic: -len(topic[1])):
        longest = max(text.split("\n\n"), key=len)
        if not any(longest in other for other in book.values()):
            book[name] = text
    return [{"id": name, "title": text.partition("\n")[0], "text": text} for name, text in book.items()]


def prompt(index: quarry.Engine, question: str) -> str:
    """Return a question with the passages that should answer it, each with the one before and after it."""
    hits = index.search(question, k=3, unit="passage", context=1)
    texts = ["\n".join((hit.title, *hit.before, hit.text, *hit.after)) for hit in hits]
    sources = [f"[{number}] {text}" for number, text in enumerate(texts, 1)]
    return "\n\n".join(("Answer from these sources, and name them:", *sources, f"Question: {question}"))


def main() -> None:
    """Print the prompt of one question, and how many of all find a passage that answers them."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "book"
        quarry.build(chapters(), path, progress=False)
        lines = QUESTIONS.read_text("utf-8").splitlines()
        with quarry.Engine.open(path) as index:
            print(prompt(index, lines[0].split("\t")[0]), end="\n\n")
            n_first = n_three = 0
            for question, *answers in (line.split("\t") for line in lines):
                texts = [" ".join(hit.text.split()) for hit in index.search(question, k=3, unit="passage")]
                is_right = [any(words in text for words in answers) for text in texts]
                n_first += is_right[0]
                n_three += any(is_right)
        print(f"{n_first} of {len(lines)} questions find such a passage first, {n_three} among the first three")


if __name__ == "__main__":
    main()
