"""FastPlaid: late interaction over token vectors, what PyLate stores and searches its documents with.

Default settings, which its README (https://github.com/lightonai/fast-plaid) advises to start from: 4 bits per
dimension of a residual, 8 lists for each token of a query, 4096 documents scored in full. The token vectors are
those of the same encoder as everybody's, which was not trained for late interaction: as they are, or brought to
fewer dimensions by their principal components, since models made for it end in 128.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bench.peers.protocol import Corpus, Found, Vector

REQUIREMENTS = ("fast-plaid",)
IMPORTS = ("torch", "fast_plaid.search")

_SAMPLE = 50_000


class Index:
    """See `bench.peers.protocol.PeerIndex`; the setting ``dim``: of the vectors that are stored.

    Vectors of a corpus and of queries are (n_tokens, dim).
    """

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        self._folder = folder
        self._dim = cast(int, settings["dim"])

    def build(self, corpus: Corpus) -> None:
        """Compute principal components if fewer dimensions are requested, build the index, store ids."""
        torch = import_module("torch")

        self._folder.mkdir()
        components = principal_components(corpus.vectors, self._dim)
        np.save(self._folder / "components.npy", components)
        projected = _projected(corpus.vectors, components)
        documents = [torch.from_numpy(each) for each in np.split(projected, corpus.offsets[1:-1])]
        self._library().create(documents_embeddings=documents)
        (self._folder / "ids.json").write_text(json.dumps(corpus.ids), encoding="utf-8")

    def open(self) -> None:
        """Open the index, one thread."""
        import_module("torch").set_num_threads(1)
        self._index = self._library()
        self._components = np.load(self._folder / "components.npy")
        self._ids: list[str] = json.loads((self._folder / "ids.json").read_text(encoding="utf-8"))

    def search(self, text: str, vector: Vector, k: int) -> Found:
        """Search by the token vectors of a query."""
        query = import_module("torch").from_numpy(_projected(vector, self._components))
        found = self._index.search(query[None], top_k=k, show_progress=False, n_processes=1)[0]
        return [(self._ids[number], score) for number, score in found]

    def _library(self) -> Any:  # noqa: ANN401
        return import_module("fast_plaid.search").FastPlaid(index=str(self._folder / "index"), device="cpu")


def principal_components(vectors: npt.NDArray[np.float32], dim: int) -> npt.NDArray[np.float32]:
    """(dim of the vectors, ``dim``) float32: the directions that keep most of their inner products.

    The identity if no fewer dimensions are requested.
    """
    if dim >= vectors.shape[1]:
        return np.eye(vectors.shape[1], dtype=np.float32)
    sample = vectors[:: max(1, len(vectors) // _SAMPLE)].astype(np.float64)
    _, directions = np.linalg.eigh(sample.T @ sample)  # by rising share of the squared lengths
    return np.ascontiguousarray(directions[:, : -dim - 1 : -1], np.float32)


def _projected(vectors: npt.NDArray[np.float32], components: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    values = vectors @ components
    return cast("npt.NDArray[np.float32]", values / np.linalg.norm(values, axis=1, keepdims=True))
