"""Substitutes for other libraries' embedding models, for tests without these libraries."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from support.indexes.embedding_function import mean_vectors

Vectors = npt.NDArray[np.float32]


class SentenceTransformer:
    """The interface of ``sentence_transformers.SentenceTransformer`` of version 5 on."""

    def __init__(self, name: str = "org/small-model", dim: int = 16, similarity: str = "cosine") -> None:
        self.similarity_fn_name = similarity
        self.asked: list[tuple[str, list[str]]] = []
        self._dim = dim
        self._module = SimpleNamespace(auto_model=SimpleNamespace(name_or_path=name))

    def __getitem__(self, number: int) -> Any:
        return [self._module][number]

    def __call__(self, features: dict[str, Any]) -> Any:
        raise AssertionError("a torch module is callable, with tensors")

    def get_embedding_dimension(self) -> int:
        return self._dim

    def encode(self, sentences: list[str], show_progress_bar: bool | None = None) -> Vectors:
        return self._encode("any", sentences)

    def encode_query(self, sentences: list[str], show_progress_bar: bool | None = None) -> Vectors:
        return self._encode("query", sentences)

    def encode_document(self, sentences: list[str], show_progress_bar: bool | None = None) -> Vectors:
        return self._encode("document", sentences)

    def _encode(self, kind: str, sentences: list[str]) -> Vectors:
        self.asked.append((kind, sentences))
        return mean_vectors(sentences, self._dim)


class StaticModel:
    """The interface of ``model2vec.StaticModel``."""

    def __init__(self, seed: int = 0, base_model_name: str | None = "org/base") -> None:
        self.embedding = np.random.default_rng(seed).standard_normal((50, 12)).astype(np.float32)
        self.base_model_name = base_model_name

    @property
    def dim(self) -> int:
        return int(self.embedding.shape[1])

    def encode(self, sentences: list[str]) -> Vectors:
        rows = [[len(word) % 50 for word in text.split()] for text in sentences]
        return np.stack([self.embedding[row].mean(axis=0) for row in rows])


class Embeddings:
    """The interface of LangChain's ``Embeddings``: lists of floats."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)
        self.asked: list[Any] = []
        self._dim = 1536 if attributes.get("model", "").startswith("text-embedding") else 16

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(texts)
        return mean_vectors(texts, self._dim).tolist()

    def embed_query(self, text: str) -> list[float]:
        assert isinstance(text, str)
        self.asked.append(text)
        return mean_vectors([text], self._dim)[0].tolist()


class OpenAI:
    """The interface of the ``openai`` package's client, for embeddings."""

    def __init__(self) -> None:
        self.embeddings = self

    def create(self, *, model: str, input: list[str]) -> Any:  # noqa: A002
        assert model
        return SimpleNamespace(data=[SimpleNamespace(embedding=row.tolist()) for row in mean_vectors(input, 1536)])


class _Pretrained(StaticModel):
    @classmethod
    def from_pretrained(cls, name: str) -> StaticModel:
        return cls(base_model_name=name)


MODULES = {
    "langchain_openai": {"OpenAIEmbeddings": Embeddings},
    "model2vec": {"StaticModel": _Pretrained},
    "openai": {"OpenAI": OpenAI},
    "sentence_transformers": {"SentenceTransformer": SentenceTransformer},
}
"""What guides import, by the name of the module."""


def stand_in_modules() -> dict[str, ModuleType]:
    """Return modules that contain the substitutes under the names of the libraries."""
    modules = {name: ModuleType(name) for name in MODULES}
    for name, module in modules.items():
        vars(module).update(MODULES[name])
    return modules
