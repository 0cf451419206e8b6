"""Retrieval-augmented answering with LangChain: a function on this machine takes the place of a language model."""

from __future__ import annotations

import tempfile
from pathlib import Path

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from quarry.integrations.langchain import QuarryRetriever, QuarryVectorStore

NOTES = {
    "kitchen": "The oven needs twenty minutes to reach 220 degrees. Bread is baked for forty minutes.",
    "garden": "Tomatoes are planted in May, after the last frost. Water them in the morning.",
    "bicycle": "The chain is oiled every 300 kilometers. The tires have a pressure of four bar.",
}

PROMPT = ChatPromptTemplate.from_template("Answer from the notes alone.\nNotes:\n{notes}\nQuestion: {question}")


def answer(prompt: PromptValue) -> str:
    """Return the sentence of the notes that shares most words with the question, as a model would."""
    notes, question = prompt.to_string().split("Notes:\n")[1].split("\nQuestion: ")
    asked = set(question.lower().strip("?").split())
    sentences = [sentence.strip() for sentence in notes.replace("\n", " ").split(".") if sentence.strip()]
    return max(sentences, key=lambda sentence: len(asked & set(sentence.lower().split()))) + "."


def join(documents: list[Document]) -> str:
    """Return the texts of documents as the notes of a prompt."""
    return "\n".join(document.page_content for document in documents)


def main() -> None:
    """Index the notes, and answer two questions."""
    with tempfile.TemporaryDirectory() as temporary:
        store = QuarryVectorStore(Path(temporary) / "notes")
        store.add_texts(list(NOTES.values()), ids=list(NOTES))
        retriever = QuarryRetriever(store=store, k=1)
        chain = (
            {"notes": retriever | join, "question": RunnablePassthrough()}
            | PROMPT
            | RunnableLambda(answer)
            | StrOutputParser()
        )
        for question in ("when are tomatoes planted?", "how often is the chain oiled?"):
            print(f"{question} {chain.invoke(question)}")
        store.close()


if __name__ == "__main__":
    main()
