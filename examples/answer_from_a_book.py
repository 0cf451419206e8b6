"""Retrieval for a language model: index a book, and write a prompt with the passages that answer a question.

The book is the language reference, of which a part comes with every Python. `book_questions.tsv` has questions, each with
words of the passage that answers it, by which the program counts how many passages are found.
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
    """Return a question with the passages that should answer it, numbered, each with the one before and after it."""
    hits = index.search(question, k=3, unit="passage", context=1)
    sources = [
        f"[{number}] {hit.title}\n{''.join((*hit.before, hit.text, *hit.after))}"
        for number, hit in enumerate(hits, 1)
    ]
    return "\n\n".join(("Answer from these sources, and name them:", *sources, f"Question: {question}"))


def main() -> None:
    """Print the prompt of one question, and how many of all find their passage."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "book"
        quarry.build(chapters(), path, progress=False)
        with quarry.Engine.open(path) as index:
            print(prompt(index, "How do I print 1234567 as 1,234,567?"), "\n")
            lines = QUESTIONS.read_text("utf-8").splitlines()
            n_first = n_three = 0
            for question, words in (line.split("\t") for line in lines):
                found = [words in " ".join(hit.text.split()) for hit in index.search(question, 3, unit="passage")]
                n_first += found[0]
                n_three += any(found)
            print(f"{n_first} of {len(lines)} questions find their passage first, {n_three} among three")


if __name__ == "__main__":
    main()
