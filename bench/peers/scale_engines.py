"""The libraries of ``python -m bench scale_curve``: how each builds an index of many vectors and searches it.

Quarry and FAISS are built from the stream, in bounded memory; the others, through the adapters of
`bench.peers.adapters`, from one array of all vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bench.data.vector_stream import VectorStream
from bench.peers.protocol import Corpus
from quarry.engine.quantization.training import choose_nlist

__all__ = ["ENGINES", "ScaleEngine", "Setting", "make_texts"]

Floats = npt.NDArray[np.float32]
Found = Sequence[str]
"""Ids, best first: the numbers of rows."""

_K = 10
_BITS_OF_CODE = 1  # for each dimension
_TRAINED_PER_LIST = 64
_VOCABULARY = 30_000
_WORDS = 8


class Setting(NamedTuple):
    """Parameters of a search.

    Attributes:
        name: of the parameters.
        find: from a (dim,) float32 query to the ten ids found.
    """

    name: str
    find: Callable[[Floats], Found]


class ScaleEngine(Protocol):
    """A library; each method is called in a process of its own, but for `settings` after `open`."""

    bytes_per_row: int
    """Memory that a build or a search needs at least, for leaving out what does not fit."""

    imports: tuple[str, ...]
    """Modules whose import is not measured."""

    def build(self, folder: Path, stream: VectorStream, n: int) -> None:
        """Build an index of the first n rows."""
        ...

    def open(self, folder: Path) -> None:
        """Open it for searches on one thread."""
        ...

    def settings(self) -> Iterator[Setting]:
        """Yield settings from fast to exact, the defaults first."""
        ...


def make_texts(first: int, n: int) -> list[str]:
    """Return the texts of n rows: eight words each, of 30,000 with frequencies inverse to their ranks (Zipf)."""
    shares = np.cumsum(1 / np.arange(1, _VOCABULARY + 1))
    chosen = np.random.default_rng((1, first)).random((n, _WORDS)) * shares[-1]
    words = np.searchsorted(shares, chosen) + 1
    return [" ".join(f"w{word:x}" for word in line) for line in words.tolist()]


class Quarry:
    """Quarry: `Engine.add_columns` of ids, vectors and short texts, in one commit.

    Args:
        stored: how vectors are stored: ``"int8"``, the default of an index, or ``"float16"``.
    """

    bytes_per_row = 100
    imports: tuple[str, ...] = ("quarry.engine.engine", "faiss", "simsimd", "Stemmer")

    def __init__(self, stored: Literal["int8", "float16"] = "int8") -> None:
        self._stored = stored

    def build(self, folder: Path, stream: VectorStream, n: int) -> None:
        from quarry.engine import Engine

        code_bytes = _BITS_OF_CODE * stream.dim // 8
        with Engine.open(
            folder, writable=True, create=True, dim=stream.dim, code_bytes=code_bytes, centroids=self._stored
        ) as index:
            first = 0
            for block in stream.blocks(n):
                ids = [str(number) for number in range(first, first + len(block))]
                index.add_columns(ids=ids, vectors=block, texts=make_texts(first, len(block)))
                first += len(block)
            index.commit()

    def open(self, folder: Path) -> None:
        from quarry.engine import Engine

        self._index = Engine.open(folder, threads=1)

    def settings(self) -> Iterator[Setting]:
        def find(query: Floats, **options: Any) -> Found:  # noqa: ANN401  # of a search
            return [hit.id for hit in self._index.search_vectors(query[None], _K, **options)[0]]

        yield Setting("default", find)
        for nprobe in (8, 16, 32, 64, 128, 256, 512):
            for candidates in (50, 100, 200, 400):
                given = partial(find, nprobe=nprobe, candidates=candidates)
                yield Setting(f"nprobe={nprobe} candidates={candidates}", given)

    def find_hybrid(self, text: str, query: Floats) -> Found:
        """Return the ten ids of a hybrid search with the caller's vector."""
        return [hit.id for hit in self._index.search(text, _K, vector=query)]


class Faiss:
    """FAISS: IVF with as many lists and code bytes, codes of 4 bits for fast scan, rescored in 8 bits."""

    bytes_per_row = 500
    imports: tuple[str, ...] = ("faiss",)

    def build(self, folder: Path, stream: VectorStream, n: int) -> None:
        import faiss

        nlist = choose_nlist(n)
        factory = f"IVF{nlist},PQ{2 * (_BITS_OF_CODE * stream.dim // 8)}x4fs,Refine(SQ8)"
        index = faiss.index_factory(stream.dim, factory, faiss.METRIC_INNER_PRODUCT)
        step = max(1, n // (_TRAINED_PER_LIST * nlist))
        index.train(np.concatenate([block[::step] for block in stream.blocks(n)]))
        for block in stream.blocks(n):
            index.add(block)
        folder.mkdir()
        faiss.write_index(index, str(folder / "index.faiss"))

    def open(self, folder: Path) -> None:
        import faiss

        faiss.omp_set_num_threads(1)
        self._index = faiss.read_index(str(folder / "index.faiss"))

    def settings(self) -> Iterator[Setting]:
        import faiss

        space = faiss.ParameterSpace()

        def find(query: Floats, nprobe: int, factor: int) -> Found:
            space.set_index_parameter(self._index, "nprobe", nprobe)
            space.set_index_parameter(self._index, "k_factor_rf", factor)
            return [str(row) for row in self._index.search(query[None], _K)[1][0]]

        for nprobe in (8, 16, 32, 64, 128, 256, 512):
            for factor in (10, 20, 40):
                yield Setting(f"nprobe={nprobe} k_factor={factor}", partial(find, nprobe=nprobe, factor=factor))


class Hnswlib:
    """hnswlib: M=16, ef_construction=200, as its documentation recommends."""

    bytes_per_row = 3400  # with the vectors that it is built from
    imports: tuple[str, ...] = ("hnswlib",)

    def build(self, folder: Path, stream: VectorStream, n: int) -> None:
        hnswlib = import_module("hnswlib")

        index = hnswlib.Index(space="ip", dim=stream.dim)
        index.init_index(max_elements=n, ef_construction=200, M=16)
        first = 0
        for block in stream.blocks(n):
            index.add_items(block, np.arange(first, first + len(block)))
            first += len(block)
        folder.mkdir()
        index.save_index(str(folder / "index.hnsw"))
        (folder / "dim").write_text(str(stream.dim), encoding="utf-8")

    def open(self, folder: Path) -> None:
        hnswlib = import_module("hnswlib")

        self._index = hnswlib.Index(space="ip", dim=int((folder / "dim").read_text(encoding="utf-8")))
        self._index.load_index(str(folder / "index.hnsw"))
        self._index.set_num_threads(1)

    def settings(self) -> Iterator[Setting]:
        def find(query: Floats, breadth: int) -> Found:
            self._index.set_ef(breadth)
            return [str(row) for row in self._index.knn_query(query, k=_K)[0][0]]

        for breadth in (50, 100, 200, 400, 800, 1600):
            yield Setting(f"ef={breadth}", partial(find, breadth=breadth))


class Peer:
    """A library with its own defaults, through its adapter in `bench.peers.adapters`.

    Args:
        module: of the adapter.
        settings: of the adapter.
    """

    bytes_per_row = 6000  # all vectors in memory, and the library's copies

    def __init__(self, module: str, settings: dict[str, object]) -> None:
        self._module = module
        self.imports: tuple[str, ...] = import_module(f"bench.peers.adapters.{module}").IMPORTS
        self._settings = settings

    def build(self, folder: Path, stream: VectorStream, n: int) -> None:
        offsets = np.arange(n + 1)
        self._make(folder).build(Corpus([str(row) for row in range(n)], None, stream.rows(n), offsets))

    def open(self, folder: Path) -> None:
        self._index = self._make(folder)
        self._index.open()

    def settings(self) -> Iterator[Setting]:
        yield Setting("default", lambda query: [name for name, _ in self._index.search("", query, _K)])

    def _make(self, folder: Path) -> Any:  # noqa: ANN401  # of the adapter
        return import_module(f"bench.peers.adapters.{self._module}").Index(folder, self._settings)


ENGINES: dict[str, Callable[[], ScaleEngine]] = {
    "quarry": Quarry,
    "quarry-float16": lambda: Quarry("float16"),
    "faiss": Faiss,
    "hnswlib": Hnswlib,
    "lancedb": lambda: Peer("databases.lancedb_index", {"index": True}),
    "qdrant_edge": lambda: Peer("databases.qdrant_edge_index", {}),
    "zvec": lambda: Peer("databases.zvec_index", {}),
}
"""Libraries by name."""
