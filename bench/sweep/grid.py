"""The settings that `bench.sweep.tradeoff` compares: each differs from a plain one in one or two ways."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

from quarry.engine.backends.registry import BACKENDS
from quarry.engine.representation.base import Representation
from quarry.engine.representation.first_m import Cls, FirstM
from quarry.engine.representation.kmeans import KMeans
from quarry.engine.representation.pieces import Pieces
from quarry.engine.representation.single import Mean

__all__ = ["IndexSetting", "LibraryCodes", "SearchSetting", "Setting", "representations", "settings"]


@dataclass(frozen=True)
class IndexSetting:
    """What an index is built with.

    Attributes:
        representation: key of the vectors, see `bench.data.prepare.representation_key`.
        build: fields of `quarry.engine.options.BuildOptions`.
        nlist: inverted lists; None: as many as the engine takes.
        lists: whether there are lists, however few the vectors; False: as the engine decides.
    """

    representation: str
    build: Mapping[str, object] = field(default_factory=dict)
    nlist: int | None = None
    lists: bool = False


@dataclass(frozen=True)
class LibraryCodes:
    """Codes that the engine does not have, measured with FAISS, see `bench.sweep.faiss_codes`.

    Attributes:
        representation: key of the vectors.
        factory: FAISS's name of the codes.
    """

    representation: str
    factory: str


@dataclass(frozen=True)
class SearchSetting:
    """What an index is searched with: fields of `quarry.engine.options.SearchOptions`, None for the default."""

    backend: str = "auto"
    nprobe: int | None = None
    candidates: int | None = None


@dataclass(frozen=True)
class Setting:
    """One point of the sweep.

    Attributes:
        axis: what is varied here.
        index: what is built.
        search: how it is searched.
    """

    axis: str
    index: IndexSetting | LibraryCodes
    search: SearchSetting

    @property
    def key(self) -> str:
        """A digest of index and search, the same in every run."""
        text = json.dumps([asdict(self.index), asdict(self.search)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


_DEFAULT = "pieces-24"
_CODE_BYTES = (8, 12, 16, 24, 32, 48, 64, 96)
_FEW_CODE_BYTES = (8, 24, 48, 96)


def representations(*, quick: bool) -> list[Representation]:
    """Whose vectors the sweep needs."""
    if quick:
        return [Mean(), Pieces(24), Pieces(96)]
    pieces = [Pieces(tokens) for tokens in (16, 24, 32, 48, 64, 96)]
    return [Mean(), Cls(), *pieces, KMeans(4), KMeans(8), FirstM(8)]


def settings(keys: list[str], dim: int, *, quick: bool) -> list[Setting]:
    """The sweep, without repetitions, settings of one index next to each other.

    Args:
        keys: of the representations there are.
        dim: dimension of a vector; code sizes that do not divide it are left out.
        quick: a few settings only, for a look and for tests.
    """
    found: dict[str, Setting] = {}
    for setting in (_quick if quick else _full)(keys, dim):
        found.setdefault(setting.key, setting)
    return sorted(found.values(), key=lambda each: (keys.index(each.index.representation), repr(each.index)))


def _quick(keys: list[str], dim: int) -> Iterator[Setting]:
    sizes = _fitting((8, 48), dim)
    for key in keys:
        yield from _one("representation", IndexSetting(key, {"code_bytes": 0}))
    for n_bytes in sizes:
        yield from _one(
            "codes alone", IndexSetting(keys[-1], {"code_bytes": n_bytes, "centroids": "none"}, lists=True)
        )
    listed = IndexSetting(
        _DEFAULT if _DEFAULT in keys else keys[-1], {"code_bytes": sizes[-1]}, nlist=2, lists=True
    )
    yield from (Setting("nprobe", listed, SearchSetting(nprobe=nprobe)) for nprobe in (1, 2))
    yield from _library_codes(keys[-1], ["RaBitQ"])


def _full(keys: list[str], dim: int) -> Iterator[Setting]:
    for key in keys:
        yield from _one("representation", IndexSetting(key, {"code_bytes": 0}))
    compared = [key for key in keys if key in ("mean", _DEFAULT, "pieces-64", "synthetic")]
    main = _DEFAULT if _DEFAULT in compared else compared[-1]
    for key in compared:
        yield from _one("precision", IndexSetting(key, {"centroids": "float16"}, lists=True))
        yield from _codes(key, _fitting(_CODE_BYTES if key == main else _FEW_CODE_BYTES, dim), "none")
    yield from _codes(main, _fitting(_FEW_CODE_BYTES, dim), "int8")
    yield from _one("default", IndexSetting(main))
    default = IndexSetting(main, {}, lists=True)
    yield from _searches(default)
    for nlist in (64, 256, 1024):
        narrowed = replace(default, nlist=nlist)
        yield from (
            Setting("nlist", narrowed, SearchSetting(nprobe=nprobe))
            for nprobe in (1, 4, 16, 64)
            if nprobe <= nlist
        )
    for backend in BACKENDS.keys() - {"exact"}:  # which the oracle stands for
        yield Setting("backend", default, SearchSetting(backend))
    yield from _library_codes(main, [*(f"PQ{n}x8" for n in _FEW_CODE_BYTES if dim % n == 0), "RaBitQ"])


def _library_codes(key: str, factories: list[str]) -> Iterator[Setting]:
    for factory in factories:
        yield Setting("other codes alone (FAISS)", LibraryCodes(key, factory), SearchSetting("faiss"))


def _codes(key: str, sizes: list[int], centroids: str) -> Iterator[Setting]:
    """Sizes of codes, beside centroids or alone."""
    axis = "codes alone" if centroids == "none" else "codes and centroids"
    for n_bytes in sizes:
        yield from _one(axis, IndexSetting(key, {"code_bytes": n_bytes, "centroids": centroids}, lists=True))


def _searches(index: IndexSetting) -> Iterator[Setting]:
    for nprobe in (2, 4, 8, 16, 32, 64, 128):
        for candidates in (100, 300) if nprobe != 64 else (50, 100, 300, 1000):
            yield Setting("nprobe and candidates", index, SearchSetting("cpu_faiss", nprobe, candidates))


def _one(axis: str, index: IndexSetting) -> Iterator[Setting]:
    yield Setting(axis, index, SearchSetting())


def _fitting(sizes: tuple[int, ...], dim: int) -> list[int]:
    return [n_bytes for n_bytes in sizes if dim % (2 * n_bytes) == 0 and n_bytes <= dim // 2]
