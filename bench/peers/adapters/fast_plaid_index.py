"""FastPlaid: late interaction over token vectors, the index of PyLate.

Default settings, with which its README (https://github.com/lightonai/fast-plaid) advises to start: 4 bits per
dimension of a residual, 8 lists per token of a query, 4096 documents scored in full. The token vectors are those
of the encoder that all libraries use, which was not trained for late interaction; they are used unchanged, or
projected to 128 dimensions (the usual size for late interaction) by PCA.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bench.peers.protocol import Corpus, FolderIndex, Found, Vector

REQUIREMENTS = ("fast-plaid",)
IMPORTS = ("torch", "fast_plaid.search")

_SAMPLE = 50_000


class Index(FolderIndex):
    """See `bench.peers.protocol.PeerIndex`; the setting ``dim`` is that of the stored vectors.

    Vectors of a corpus and of queries are (n_tokens, dim).
    """

    def build(self, corpus: Corpus) -> None:
        """Compute principal components if fewer dimensions are requested, build the index, store ids."""
        torch = import_module("torch")

        self._folder.mkdir()
        components = principal_components(corpus.vectors, cast(int, self._settings["dim"]))
        np.save(self._folder / "components.npy", components)
        projected = _project(corpus.vectors, components)
        documents = [torch.from_numpy(each) for each in np.split(projected, corpus.offsets[1:-1])]
        self._library().create(documents_embeddings=documents)
        self._write_ids(corpus.ids)

    def open(self) -> None:
        """Open the index, one thread."""
        import_module("torch").set_num_threads(1)
        self._index = self._library()
        self._components = np.load(self._folder / "components.npy")
        self._read_ids()

    def search(self, text: str, vector: Vector, k: int) -> Found:
        """Search by the token vectors of a query."""
        query = import_module("torch").from_numpy(_project(vector, self._components))
        found = self._index.search(query[None], top_k=k, show_progress=False, n_processes=1)[0]
        return self._to_hits(*zip(*found, strict=True)) if found else []

    def _library(self) -> Any:  # noqa: ANN401
        return import_module("fast_plaid.search").FastPlaid(index=str(self._folder / "index"), device="cpu")


def principal_components(vectors: npt.NDArray[np.float32], dim: int) -> npt.NDArray[np.float32]:
    """Return the first ``dim`` principal components, (dim of the vectors, ``dim``) float32.

    They keep most of the inner products. Returns the identity if ``dim`` is not smaller.
    """
    if dim >= vectors.shape[1]:
        return np.eye(vectors.shape[1], dtype=np.float32)
    sample = vectors[:: max(1, len(vectors) // _SAMPLE)].astype(np.float64)
    _, directions = np.linalg.eigh(sample.T @ sample)  # by ascending eigenvalue
    return np.ascontiguousarray(directions[:, : -dim - 1 : -1], np.float32)


def _project(vectors: npt.NDArray[np.float32], components: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    values = vectors @ components
    return cast("npt.NDArray[np.float32]", values / np.linalg.norm(values, axis=1, keepdims=True))
