"""A desktop program that searches a folder of notes, made to be frozen: its users need no Python.

Usage: python examples/desktop_search.py [FOLDER [QUESTION]]; with a question it answers on the terminal, without
one it opens a window. Without arguments it answers a question from the guides of this repository.

Freeze it with PyInstaller, which finds the hooks of Quarry by itself, so no option is needed for the model:

    pip install quarry-search pyinstaller
    pyinstaller --noconfirm examples/desktop_search.py
    dist/desktop_search/desktop_search FOLDER

``desktop_search.spec`` leaves out what this program does not use, and makes one file of it too.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import quarry

GUIDES = Path(__file__).resolve().parent.parent / "docs"


def synchronize(folder: Path, index: Path) -> None:
    """Bring the index of a folder's files up to date; an index beside the folder makes the next start fast."""
    with quarry.Engine.open(index, writable=True, create=True, wait=10) as engine:
        engine.sync(folder)


def answer(engine: quarry.Engine, question: str) -> str:
    """Return the best passages with the files that they were read from."""
    hits = engine.search(question, 3)
    return "\n\n".join(f"{hit.place}\n{' '.join(hit.passages[0].text.split())}" for hit in hits)


def show_window(engine: quarry.Engine) -> None:
    """Show a window with a field for the question and the answers below."""
    import tkinter

    window = tkinter.Tk()
    window.title("Notes")
    field = tkinter.Entry(window, font=("", 14))
    answers = tkinter.Message(window, width=700, justify="left")

    def search(_: object) -> None:
        question = field.get().strip()
        answers.configure(text=answer(engine, question) if question else "")

    field.bind("<Return>", search)
    field.pack(fill="x", padx=12, pady=12)
    answers.pack(fill="both", expand=True, padx=12, pady=12)
    field.focus()
    window.mainloop()


def main(folder: Path, index: Path, question: str | None) -> None:
    """Answer one question, or show the window until it is closed."""
    synchronize(folder, index)
    with quarry.Engine.open(index) as engine:
        if question is None:
            show_window(engine)
        else:
            print(answer(engine, question))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        notes = Path(sys.argv[1]).resolve()
        main(notes, notes.with_name(f"{notes.name}.index"), " ".join(sys.argv[2:]) or None)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(GUIDES, Path(temporary) / "index", "how do I keep a backup of an index?")
